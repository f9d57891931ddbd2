"""A plugin of pytest: what each test took, how it ended and which templates it rendered.

    python -m pytest -p tests.mutants.seen --seen FILE

Which lines of Python a test runs is coverage's to say; templates are none.
"""

import json
import pathlib
from typing import Any

import jinja2
import pytest

_render = jinja2.Template.render


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seen", type=pathlib.Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Seen(config.getoption("--seen"), hasattr(config, "workerinput")))


class Seen:
    def __init__(self, path: pathlib.Path, is_worker: bool) -> None:
        """Write to a file at the end, except in a process of which another gathers the reports."""
        self._path = path
        self._is_worker = is_worker
        self._rendered: set[str] = set()
        self._tests: dict[str, dict[str, Any]] = {}
        jinja2.Template.render = self._noting

    @property
    def _noting(self) -> Any:
        def render(template: jinja2.Template, *args: Any, **values: Any) -> str:
            self._rendered.add(template.name or "")
            return _render(template, *args, **values)

        return render

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        report = yield
        report.rendered = sorted(self._rendered)
        if report.when == "teardown":
            self._rendered.clear()
        return report

    def pytest_runtest_logreport(self, report):
        new = {"seconds": 0.0, "around": 0.0, "failed": False, "set_up": [], "templates": []}
        seen = self._tests.setdefault(report.nodeid, new)
        # What fixtures take is apart: whichever test is the first pays for what all of them share.
        phase = "seconds" if report.when == "call" else "around"
        seen[phase] = round(seen[phase] + report.duration, 3)
        seen["failed"] |= report.failed
        seen["templates"] = sorted({*seen["templates"], *report.rendered})
        if report.when == "setup":
            seen["set_up"] = report.rendered

    def pytest_unconfigure(self):
        jinja2.Template.render = _render
        if not self._is_worker:
            self._path.write_text(json.dumps(self._tests, indent=1))
