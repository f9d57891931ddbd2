"""What README claims of versions is what the tests run on."""

import pathlib
import re
import runpy

import pytest
import yaml

from testbed import options
from tests import profiles

ROOT = pathlib.Path(__file__).parent.parent.parent


@pytest.fixture
def compatibility(monkeypatch):
    """The module that writes the table."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return runpy.run_path(str(ROOT / "docs/compatibility.py"))


def required(product, module):
    """The version of a module that a product of the testbed is built from."""
    pins = (ROOT / "testbed/go" / product / "go.mod").read_text()
    return re.findall(rf"^(?:require )?\s*{re.escape(module)} v(\S+)", pins, re.MULTILINE)


def rows(text):
    """The lines of the table, by their first cell."""
    cells = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {each[0]: each[1:] for each in cells}


def test_readme_has_the_table_of_the_pins(compatibility):
    assert compatibility["table"](ROOT) in (ROOT / "README.md").read_text()


def test_kubernetes_that_is_claimed_is_the_one_that_is_built(compatibility):
    tried, _ = rows(compatibility["table"](ROOT))["Kubernetes"]
    (version,) = required("kubernetes", "k8s.io/kubernetes")
    assert tried.startswith(f"{version}, ")
    for older in options.OLDER:
        (patch,) = required(f"kubernetes-{older}", "k8s.io/kubernetes")
        assert patch.startswith(f"{older}.")
        assert older in tried


def test_istio_that_is_claimed_is_the_one_that_is_built(compatibility):
    """Its module has no version by its tag; the API's, which it is built with, has."""
    tried, _ = rows(compatibility["table"](ROOT))["Istio"]
    pins = (ROOT / "testbed/go/istio/go.mod").read_text()
    (version,) = re.findall(r"istio\.io/api => istio\.io/api v(\S+)", pins)
    assert tried.startswith(f"{version}, ")


def test_profile_that_is_claimed_is_run_by_the_tests_that_are_named(compatibility):
    page = compatibility["istio_versions"](ROOT)
    assert page == (ROOT / "docs/reference/istio-versions.md").read_text()
    named = {
        name
        for line in page.splitlines()
        if "profiles" in line
        for name in re.findall(r"`(test_\w+)`", line)
    }
    files = ("functional/test_charm_installations.py", "e2e/test_compatibility.py")
    sources = [(ROOT / "tests" / file).read_text() for file in files]
    parametrized = re.compile(r"NATIVE\.items\(\)\)\n(?:async )?def (test_\w+)\(")
    assert named == {name for text in sources for name in parametrized.findall(text)}
    tried, _ = rows(compatibility["table"](ROOT))["Istio"]
    assert all(line in tried for line in (min(profiles.NATIVE), max(profiles.NATIVE)))


def test_juju_is_claimed_as_it_was_tried(compatibility):
    tried, expected = rows(compatibility["table"](ROOT))["Juju"]
    (juju,) = (
        each
        for each in yaml.safe_load((ROOT / "metadata.yaml").read_text())["assumes"]
        if "juju" in each
    )
    assert "once by hand" in tried
    assert expected.startswith(juju.removeprefix("juju >= "))


def test_every_installation_has_its_row_with_the_name_of_its_case():
    known = yaml.safe_load((ROOT / "tests/functional/installations.yaml").read_text())
    page = (ROOT / "docs/reference/istio-installations.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert [line.split("`")[-2] for line in lines[2:]] == [*known]
