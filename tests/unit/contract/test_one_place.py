"""What both programs know is written in the contract, and nowhere else."""

import ast
import pathlib
import re

import pytest

from integrator_contract import names, reasons

ROOT = pathlib.Path(__file__).parents[3]
SOURCES = sorted(
    [*(ROOT / "src").rglob("*.py"), *(ROOT / "workload/sidecar_lifecycle").rglob("*.py")]
)
KEY = re.compile(
    r"(?<![\w.-])(?:[a-z0-9-]+\.)*(?:charmhub\.io|istio\.io|kubernetes\.io|juju\.is)/(?!v\d)[a-z]",
    re.IGNORECASE,
)
"""A label or an annotation; `networking.istio.io/v1` is a version of an API."""
WORDS = {names.INJECTION, names.PROFILE, names.PROXY, *map(str, reasons.Reason)}
KEPT = {
    # Kinds of Secrets, and conditions and reasons of Kubernetes that are called like ours.
    "kubernetes.io/tls",
    # Where the kubelet puts a ServiceAccount.
    "/var/run/secrets/kubernetes.io/serviceaccount",
}
COMMON = {"Deleted", "Disabled", "Ended", "Revision", "Forbidden", "NotReady"}
"""Reasons that are words of others, too."""


def literals(text):
    """List the strings of a source that are no docstrings."""
    tree = ast.parse(text)
    documented = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documented
    ]


def known_elsewhere(text):
    return [
        value
        for value in literals(text)
        if value not in KEPT
        and ((KEY.search(value) and "https://" not in value) or value in WORDS - COMMON)
    ]


@pytest.mark.parametrize("source", [pytest.param(p, id=str(p.relative_to(ROOT))) for p in SOURCES])
def test_names_and_reasons_are_the_contracts(source):
    assert known_elsewhere(source.read_text()) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ('LABEL = "istio-integrator.charmhub.io/owner"', ["istio-integrator.charmhub.io/owner"]),
        ('f"kubectl -l app.kubernetes.io/name={x}"', ["kubectl -l app.kubernetes.io/name="]),
        ('x = "ProxyLost"', ["ProxyLost"]),
        ('API = "networking.istio.io/v1"', []),
        ('x = 1\n"""On istio.io/rev."""', []),
    ],
)
def test_literal_that_belongs_into_the_contract_is_found(text, want):
    assert known_elsewhere(text) == want


@pytest.mark.parametrize(
    "template", sorted((ROOT / "templates").rglob("*.j2")), ids=lambda p: p.parent.name
)
def test_templates_use_no_name_of_ours_that_the_contract_lacks(template):
    ours = {value for value in vars(names).values() if isinstance(value, str)}
    used = re.findall(rf"(?<![\w.]){re.escape(names.PREFIX)}[a-z-]+", template.read_text())

    assert set(used) <= ours
