"""The site of the documentation, rendered as by `make docs`."""

import pathlib
import subprocess
import sys

import pytest

DOCS = pathlib.Path(__file__).parents[2] / "docs"


@pytest.mark.long
def test_site_is_rendered_without_a_warning(tmp_path: pathlib.Path):
    """No link leads nowhere, and each page is in a list."""
    strict = ("--quiet", "--fail-on-warning", "--keep-going")
    command = [sys.executable, "-m", "sphinx", *strict, DOCS, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "index.html").exists()
