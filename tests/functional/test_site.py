"""The site of the documentation, as it is rendered.

Unit tests read links and anchors in the pages themselves; `make docs` renders them as here.
"""

import pathlib
import subprocess
import sys

import pytest

from istio_integrator.diagnosis import checks

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.long
"""It renders every page: half a minute."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The site of our pages: no link leads nowhere, and each page is in a list."""
    folder, docs = tmp_path_factory.mktemp("site"), ROOT / "docs"
    strict = ("--quiet", "--fail-on-warning", "--keep-going")
    command = [sys.executable, "-m", "sphinx", *strict, docs, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_site_has_every_page(site: pathlib.Path):
    written = {page.relative_to(site).with_suffix(".md") for page in site.rglob("*.html")}
    assert {page.relative_to(ROOT / "docs") for page in (ROOT / "docs").rglob("*.md")} <= written


def test_anchor_that_diagnose_prints_leads_to_its_heading_on_the_site(site: pathlib.Path):
    rendered = (site / "how-to" / "symptoms.html").read_text()
    named = {anchor for each in checks.known().values() for anchor in each.symptoms}
    assert "12-notready" in named
    assert not {anchor for anchor in named if f'id="{anchor}"' not in rendered}
