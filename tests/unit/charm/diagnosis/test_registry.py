"""How a check is made known, and what it says where the cluster does not answer."""

import pkgutil
import types

import pytest

from istio_integrator.diagnosis import checks, registry
from istio_integrator.kube import errors
from istio_integrator.messages import Said

FACTS = types.SimpleNamespace(application="app", model="a")


def test_every_module_of_checks_makes_one_known():
    modules = {f"{checks.__name__}.{each.name}" for each in pkgutil.iter_modules(checks.__path__)}

    assert {each.find.__module__ for each in checks.known().values()} == modules


def test_each_check_has_a_place_of_its_own():
    places = [each.place for each in checks.known().values()]

    assert places == sorted(set(places))


def failing(error):
    def find(_):
        yield Said.CNI_READY()
        raise error

    return registry.Check("pods", 1, find)


@pytest.mark.parametrize(
    ("error", "said", "seen"),
    [
        pytest.param(
            errors.ForbiddenError('cannot list resource "pods" in API group ""'),
            Said.CHECK_FORBIDDEN,
            "not known: missing permission to list pods",
            id="right is missing",
        ),
        pytest.param(
            errors.UnreachableError("connection refused"),
            Said.CHECK_FAILED,
            "not known: connection refused",
            id="no answer",
        ),
    ],
)
def test_what_was_found_before_an_error_counts_and_the_error_is_said(error, said, seen):
    found = failing(error).run(FACTS)

    assert [(each.check, each.said) for each in found] == [
        ("pods", Said.CNI_READY),
        ("pods", said),
    ]
    assert found[1].seen == seen


def test_problem_without_a_command_has_that_of_the_check_and_its_symptoms():
    told = [Said.CONTAINER_STARTING(), Said.CERTIFICATES_NEED_HOSTS(application="app")]
    told += [Said.NO_AUTHENTICATOR(), Said.CNI_READY()]
    look = "kubectl -n {model} get pods"
    check = registry.Check("pods", 1, lambda _: told, symptoms=("x",), look=look)
    own = "403-at-the-gateway"
    assert [(each.next, each.symptoms) for each in check.run(FACTS)] == [
        ("kubectl -n a get pods", ("x",)),
        ("juju config app hosts=NAME", ("x",)),
        ("kubectl -n a get pods", (own,)),
        ("", ("x",)),
    ]
