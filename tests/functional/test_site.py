"""The site of the documentation, rendered as by `make docs`."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests import needs

DOCS = pathlib.Path(__file__).parents[2] / "docs"
NARROW = """<iframe width="400" height="900"></iframe><pre></pre><script>
const frame = document.querySelector("iframe"), found = [];
const load = page => new Promise(done => { frame.onload = done; frame.src = page });
(async () => {
    for (const page of PAGES) {
        await load(page);
        const seen = frame.contentDocument;
        for (const each of [seen.body, ...seen.querySelectorAll(".table-wrapper")])
            if (each.scrollWidth > each.clientWidth) found.push([page, each.innerText]);
    }
    document.querySelector("pre").textContent = JSON.stringify([PAGES.length, found]);
})();
</script>"""
"""A page that lists the pages and tables that are wider than a telephone."""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> pathlib.Path:
    """Render the site; no link leads nowhere, and each page is in a list."""
    folder = tmp_path_factory.mktemp("site")
    strict = ("--quiet", "--fail-on-warning", "--keep-going")
    command = [sys.executable, "-m", "sphinx", *strict, DOCS, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_site_is_rendered_without_a_warning(site):
    assert (site / "index.html").exists()


def test_tables_fit_a_narrow_screen(site, tmp_path):
    program = shutil.which("chromium")
    if program is None:
        needs.leave_out("there is no browser; as root, run: testbed/setup.sh browser")
    pages = sorted(map(str, site.rglob("*.html")))
    (site / "narrow.html").write_text(NARROW.replace("PAGES", json.dumps(pages)))
    options = (
        *("--headless", "--no-sandbox", "--allow-file-access-from-files", "--dump-dom"),
        *("--virtual-time-budget=600000", f"--user-data-dir={tmp_path}"),
        "--host-resolver-rules=MAP * ~NOTFOUND",
    )
    command = [program, *options, f"file://{site}/narrow.html"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    (answer,) = re.findall(r"<pre>(.*?)</pre>", done.stdout)
    assert json.loads(answer) == [len(pages), []]
