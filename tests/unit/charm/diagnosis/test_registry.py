"""How a check is made known, and what it says where the cluster does not answer."""

import pkgutil
import types

import pytest

from istio_integrator import findings
from istio_integrator.diagnosis import checks, registry
from istio_integrator.kube import errors

FACTS = types.SimpleNamespace(application="app")


def test_every_module_of_checks_makes_one_known():
    modules = {f"{checks.__name__}.{each.name}" for each in pkgutil.iter_modules(checks.__path__)}

    assert {each.find.__module__ for each in checks.known().values()} == modules


def test_each_check_has_a_place_of_its_own():
    places = [each.place for each in checks.known().values()]

    assert places == sorted(set(places))


def failing(error):
    def find(_):
        yield findings.fine("two pods are well")
        raise error

    return registry.Check("pods", 1, find)


@pytest.mark.parametrize(
    ("error", "seen", "command"),
    [
        pytest.param(
            errors.ForbiddenError(403, 'cannot list resource "pods" in API group ""'),
            "not known: missing permission to list pods",
            "juju trust app --scope=cluster, or kubectl apply -f rbac/roles.yaml",
            id="right is missing",
        ),
        pytest.param(
            errors.UnreachableError("connection refused"),
            "not known: connection refused",
            "juju debug-log --replay --include app",
            id="no answer",
        ),
    ],
)
def test_what_was_found_before_an_error_counts_and_the_error_is_said(error, seen, command):
    found = failing(error).run(FACTS)

    assert [(each.check, each.seen) for each in found] == [
        ("pods", "two pods are well"),
        ("pods", seen),
    ]
    assert found[1].next == command
