"""Templates are compiled once in a pod, not in each of its hooks."""

import dataclasses
import os
import tempfile

import jinja2
import pytest

from istio_integrator.kube import manifests, templates


@dataclasses.dataclass(frozen=True)
class Values:
    text: str = "hello"


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """Render as several hooks do; return how often something was compiled."""
    (tmp_path / "templates" / "thing").mkdir(parents=True)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(manifests, "TEMPLATES", tmp_path / "templates")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    compile_one = jinja2.Environment.compile
    count = []

    def counted(*given, **more):
        count.append(1)
        return compile_one(*given, **more)

    monkeypatch.setattr(jinja2.Environment, "compile", counted)

    def hook(template="text: {{ text | tojson }}\n"):
        (tmp_path / "templates" / "thing" / "all.yaml.j2").write_text(template)
        templates.environment.cache_clear()
        count.clear()
        return manifests.render("thing", Values()), len(count)

    yield hook
    templates.environment.cache_clear()


def test_later_hook_compiles_nothing(compiled):
    assert compiled() == ([{"text": "hello"}], 1)
    assert compiled() == ([{"text": "hello"}], 0)


def test_changed_template_is_compiled_anew(compiled):
    compiled()
    assert compiled("other: {{ text | tojson }}\n") == ([{"other": "hello"}], 1)


def test_folder_that_others_may_write_to_is_not_used(compiled, tmp_path):
    folder = tmp_path / "tmp" / f"_jinja2-cache-{os.getuid()}"
    folder.symlink_to(tmp_path)
    assert compiled() == ([{"text": "hello"}], 1)
    assert compiled() == ([{"text": "hello"}], 1)


def test_disk_that_is_full_costs_time_and_nothing_else(compiled, monkeypatch):
    def full(*_given, **_more):
        raise OSError(28, "No space left on device")

    compiled()
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    assert compiled("other: {{ text | tojson }}\n") == ([{"other": "hello"}], 1)
