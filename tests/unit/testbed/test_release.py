"""`make release-check` names what is missing to publish, until it is there."""

import pytest

from testbed import charmcraft, release

STATUS = """\
Track    Base                   Channel    Version    Revision    Resources
latest   ubuntu 24.04 (amd64)   stable     -          -           -
                                candidate  -          -           -
                                edge       7          7           lifecycle-image (r3)
"""
WANTED = {"address", "contact", "status", "changelog", "name", "channel", "secret"}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout that was never published, on a machine without charmcraft and gh."""
    monkeypatch.setenv("PATH", str(tmp_path))
    files = {
        "metadata.yaml": "name: x\n",
        "README.md": "**Status: not released.**\n\n## Contact\n\nNo address.\n",
        "SECURITY.md": "## Reporting\n\nBy the form.\n\n## More\n\nhttps://example.test/\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def missing(root):
    return [need.what for need in release.needs(root, "1.0.0") if not need.is_met]


def program(root, name, printed, code=0):
    (root / name).write_text(
        f"#!/bin/sh\ncat <<'END'\n{printed}END\nexit {code}\n".replace("cat", "/bin/cat")
    )
    (root / name).chmod(0o755)


def test_everything_is_missing_at_first(root):
    found = missing(root)
    assert len(found) == len([*release.needs(root, "1.0.0")])
    assert {each.partition(":")[0] for each in found} == WANTED


def test_each_thing_that_is_there_is_not_missing(root):
    addresses = (f"{key}: https://example.test/{key}\n" for key in charmcraft.ADDRESSES)
    (root / "metadata.yaml").write_text("".join(addresses))
    (root / "README.md").write_text("# X\n\n## Contact\n\nhttps://example.test/\n")
    (root / "SECURITY.md").write_text("## Reporting\n\nhttps://example.test/\n")
    (root / "CHANGELOG.md").write_text("## 1.0.0 (2027-01-01)\n")
    program(root, "gh", "CHARMCRAFT_AUTH  2027-01-01\n")
    program(root, "charmcraft", f"istio-integrator charm\n{STATUS}")
    assert missing(root) == ["channel: latest/stable"]


def test_program_that_fails_confirms_no_name_and_no_channel(root):
    program(root, "charmcraft", f"istio-integrator charm\n{STATUS}", code=1)
    assert {"name: istio-integrator", "channel: latest/edge"} <= {*missing(root)}


def test_older_changelog_is_not_that_of_the_release(root):
    (root / "CHANGELOG.md").write_text("## 0.9.0 (2026-01-01)\n\n- since ## 1.0.0 (draft)\n")
    assert "changelog: 1.0.0" in missing(root)
