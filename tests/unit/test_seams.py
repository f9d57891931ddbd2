"""Tests stand on seams: they import decisions, and few modules something else."""

import ast
import pathlib
from collections.abc import Iterator

TESTS = pathlib.Path(__file__).parents[1]
PRODUCT = ("istio_integrator", "sidecar_lifecycle")
DECISIONS = {
    *("sidecar_lifecycle.decide", "istio_integrator.asked.routes.plan"),
    "istio_integrator.asked.routes.requested",
    *("istio_integrator.policies.decide", "istio_integrator.mtls.exceptions"),
    "istio_integrator.istio.authorization_policy",
    *("istio_integrator.istio.peer_authentication", "istio_integrator.admission.certificates"),
    # What they decide about, as it is read: pods, objects, data bags and options.
    *("sidecar_lifecycle.model", "istio_integrator.situation.model"),
    *("istio_integrator.relations", "istio_integrator.config"),
    # What they raise.
    "istio_integrator.kube.errors",
    # The rows that tests assert in place of words.
    "istio_integrator.messages",
}
"""Pure functions of small typed values, and the values: tables of rows are their seam."""
PROGRAM = "sidecar_lifecycle.shell.cli"
"""The workload's command line, by which tests run it."""
INSIDE = {
    "workload_access.py": "has the program connect in place of a pod",
    "functional/test_charm_installations.py": "properties of an installation that no object shows",
    "unit/charm/test_rights.py": "names of all objects, without a run that makes them all",
    "unit/charm/kube/test_cluster.py": "when what a hook has read is out of date",
    "unit/workload/test_hostile.py": "a bound of memory",
    "unit/workload/test_kube_client.py": "credentials at a fixed path of a pod",
    "unit/workload/test_rules_finished.py": "what the service keeps of a pod",
    "unit/workload/test_run.py": "what libraries log, of which a run has nothing",
}
"""Modules that import something else of the product, each for what no seam shows."""


def imported(file: pathlib.Path) -> Iterator[str]:
    """Yield what a module that names the product imports, by full names."""
    text = file.read_text()
    if not any(package in text for package in PRODUCT):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{each.name}" for each in node.names)


def is_internal(name: str) -> bool:
    """Tell whether a name is one of the product and belongs to no decision."""
    steps = name.split(".")
    places = {".".join(steps[:count]) for count in range(1, len(steps) + 1)}
    return steps[0] in PRODUCT and not places & {*DECISIONS, PROGRAM}


def test_only_listed_modules_import_what_is_no_decision():
    listed = {TESTS / name for name in INSIDE}
    found = {file for file in TESTS.rglob("*.py") if any(map(is_internal, imported(file)))}
    assert sorted(found - listed) == [], "stand on a seam, or on a decision"
    assert sorted(listed - found) == [], "take them out of the list"
