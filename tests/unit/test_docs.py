"""Endpoints that pages name are there, pages are rendered, and their links lead somewhere."""

import functools
import html
import json
import pathlib
import re
import subprocess
import sys
import tomllib

import markdown_it.token
import pytest
import yaml
from mdit_py_plugins.anchors import anchors_plugin
from mdit_py_plugins.footnote import footnote_plugin

from istio_integrator.config import config
from tests.unit.cases import cases

ROOT = pathlib.Path(__file__).parent.parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "terraform").rglob("*.md")]
)
MARKDOWN = (
    markdown_it.MarkdownIt().enable("table").use(anchors_plugin, max_level=6).use(footnote_plugin)
)
"""Headings get the names that GitHub and the site give them."""


def test_endpoints_that_pages_name_are_those_of_the_charm():
    """`istio-integrator:ENDPOINT` is what somebody types who integrates or removes a relation."""
    metadata = yaml.safe_load((ROOT / "metadata.yaml").read_text())
    known = {*metadata["provides"], *metadata["requires"], *metadata.get("peers", {})}
    named = {
        (page.relative_to(ROOT).as_posix(), endpoint)
        for page in PAGES
        for endpoint in re.findall(r"\bistio-integrator:([a-z][a-z0-9-]*)", page.read_text())
    }
    assert {endpoint for _, endpoint in named} >= {"ingress", "istio-ingress-route"}
    assert [each for each in sorted(named) if each[1] not in known] == []


OUTSIDE = [page for page in PAGES if not page.is_relative_to(ROOT / "docs")]
"""The site has the others, and its build finds links that lead nowhere."""


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: pathlib.Path):
    assert astray(page) == []


def astray(page: pathlib.Path) -> list[str]:
    """List the links and pictures of a page that lead to no file, or to no heading in it."""
    found: list[str] = []
    for token in tokens(page):
        target = str(token.attrs.get("href") or token.attrs.get("src") or "")
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not target or "://" in target:
            continue
        if not file.exists() or (anchor and anchor not in anchors(file)):
            found.append(target)
    return found


@functools.cache
def anchors(page: pathlib.Path) -> set[str]:
    return {str(token.attrs["id"]) for token in tokens(page) if "id" in token.attrs}


def tokens(page: pathlib.Path) -> list[markdown_it.token.Token]:
    blocks = MARKDOWN.parse(page.read_text())
    return [token for block in blocks for token in (block, *(block.children or ()))]


OURS = re.compile(r"(?:istio-integrator\.charmhub\.io/|PREFIX\})([a-z][a-z-]*)")


def test_every_name_with_our_prefix_is_described():
    """Labels, annotations and notices: the page has those that the sources have, no others."""
    sources = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "templates").rglob("*.j2"),
        *(ROOT / "lib/integrator_contract").rglob("*.py"),
    ]
    used = {name for source in sources for name in OURS.findall(source.read_text())}
    page = (ROOT / "docs/reference/labels-and-annotations.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| ")]
    described = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row[2])}

    assert described == used


def test_generated_pages_have_what_charm_and_workload_say():
    """Messages, checks, symptoms, help texts and metrics are stated by the sources and a page."""
    command = [sys.executable, "docs/generate.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_metrics_that_dashboard_and_alerts_use_are_described():
    page = (ROOT / "docs/reference/metrics.md").read_text()
    described = set(re.findall(r"^\| `([a-z_]+)`", page, re.MULTILINE))
    texts = [
        (ROOT / "src/grafana_dashboards/istio-integrator.json").read_text(),
        (ROOT / "src/prometheus_alert_rules/istio-integrator.rules").read_text(),
    ]
    used = set(re.findall(r"\b((?:sidecar_lifecycle|process)_[a-z_]+)\{", "".join(texts)))
    assert len(used) > 15
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in used} <= described


OPTIONS = yaml.safe_load((ROOT / "config.yaml").read_text())["options"]
NEEDS = {"gateway-service-annotations": {"gateway-service": "istio-ingress/gateway"}}
"""What an example stands beside."""


@pytest.mark.parametrize("name", OPTIONS)
def test_description_is_two_lines_and_an_example_that_the_charm_takes(name):
    *lines, last = OPTIONS[name]["description"].strip().splitlines()
    assert 1 <= len(lines) <= 2
    example = re.fullmatch(r"Example: `([^`]+)`(?: or `([^`]+)`)?", last)
    assert example
    default = OPTIONS[name]["default"]
    for value in filter(None, example.groups()):
        typed = type(default)(value) if not isinstance(default, bool) else value == "true"
        config.Config.model_validate({**NEEDS.get(name, {}), name: typed})
        assert typed != default


@cases(
    ("command", "file", "sections"),
    options=(r"juju config \{[\w.]+\} ([a-z-]+)", "config.yaml", ["options"]),
    actions=("/leader ([a-z-]+)", "actions.yaml", []),
    endpoints=(r"application\}:([a-z-]+)", "metadata.yaml", ["provides", "requires"]),
)
def test_commands_of_messages_name_what_the_charm_has(command, file, sections):
    text = "".join(source.read_text() for source in (ROOT / "src").rglob("*.py"))
    has = yaml.safe_load((ROOT / file).read_text())
    known = {name for section in sections for name in has[section]} or {*has}
    named = set(re.findall(command, text))
    assert named
    assert named <= known


def test_every_change_is_of_a_kind_that_the_changelog_has():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = {each["directory"] for each in settings["type"]}
    names = {path.name for path in (ROOT / settings["directory"]).iterdir()}
    assert {*settings["ignore"]} <= names
    changes = names - {*settings["ignore"]}
    assert [name for name in changes if name.split(".")[-2] not in kinds] == []


def test_picture_of_the_dashboard_has_its_panels_each_with_data():
    """tests/functional/test_observability.py draws it: build/dashboard.svg."""
    board = json.loads((ROOT / "src/grafana_dashboards/istio-integrator.json").read_text())
    drawn = (ROOT / "docs/pictures/dashboard.svg").read_text()
    titles = re.findall(r'class="(?:title|row)"[^>]*>([^<]*)<', drawn)
    assert [html.unescape(each) for each in titles] == [
        panel["title"] for panel in board["panels"]
    ]
    assert re.search(r"no (data|value)", drawn) is None
