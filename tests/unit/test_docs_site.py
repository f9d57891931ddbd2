"""The pages are rendered without a warning: no link leads nowhere, and each page is in a list."""

import pathlib
import subprocess
import sys

import pytest

from istio_integrator.diagnosis import checks

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def build(pages: pathlib.Path, site: pathlib.Path) -> subprocess.CompletedProcess[str]:
    strict = ("--quiet", "--fail-on-warning", "--keep-going")
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *strict, "--conf-dir", DOCS, pages, site],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The site of our pages."""
    folder = tmp_path_factory.mktemp("site")
    done = build(DOCS, folder)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_site_has_every_page(site: pathlib.Path):
    written = {page.relative_to(site).with_suffix(".md") for page in site.rglob("*.html")}
    assert {page.relative_to(DOCS) for page in DOCS.rglob("*.md")} <= written


def test_anchor_that_diagnose_prints_leads_to_its_heading_on_the_site(site: pathlib.Path):
    shown = (site / "how-to" / "symptoms.html").read_text()
    anchors = {anchor for each in checks.known().values() for anchor in each.symptoms}
    assert "12-notready" in anchors
    assert not {anchor for anchor in anchors if f'id="{anchor}"' not in shown}
