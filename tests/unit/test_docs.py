"""The documentation says what the sources say, and its links lead somewhere."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(#[^)\s]*)?\)")


def test_reference_pages_say_what_the_sources_say():
    done = subprocess.run(
        [sys.executable, ROOT / "docs/generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("page", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in PAGES])
def test_links_between_pages_lead_to_a_file(page: pathlib.Path):
    targets = [match[1] for match in LINK.finditer(page.read_text())]

    missing = [
        target for target in targets if "://" not in target and not (page.parent / target).exists()
    ]

    assert missing == []
