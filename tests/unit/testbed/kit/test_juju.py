import pytest

from testbed.kit import juju


def document(current, message="", agent="idle"):
    unit = {
        "workload-status": {"current": current, "message": message},
        "juju-status": {"current": agent, "since": "then"},
    }
    application = {
        "application-status": {"current": current, "message": message},
        "units": {"istio-integrator/0": unit},
    }
    return {"applications": {"istio-integrator": application}}


def test_an_application_that_is_not_there_has_no_status():
    assert juju.parse_status({"applications": {}}, "istio-integrator") is None


@pytest.mark.parametrize(
    ("current", "message", "complete"),
    [
        ("active", "istio-system/istiod 1.31 · admission: webhook · 14/14 pods in mesh", True),
        ("active", "istio-system/istiod 1.31 · admission: webhook · 13/14 pods in mesh", False),
        ("maintenance", "14/14 pods in mesh", False),
        ("active", "", False),
    ],
)
def test_only_active_with_all_pods_is_complete(current, message, complete):
    status = juju.parse_status(document(current, message), "istio-integrator")
    assert status is not None
    assert status.is_complete is complete


def units(*states):
    found = {
        f"app/{number}": {
            "workload-status": {"current": workload},
            "juju-status": {"current": agent},
        }
        for number, (workload, agent) in enumerate(states)
    }
    return {"applications": {"app": {"scale": 2, "units": found}}}


@pytest.mark.parametrize(
    ("document", "want"),
    [
        pytest.param(units(("active", "idle"), ("active", "idle")), True, id="all"),
        pytest.param(units(("active", "idle"), ("active", "executing")), False, id="busy"),
        pytest.param(units(("active", "idle"), ("waiting", "idle")), False, id="one waits"),
        pytest.param(units(("active", "idle")), False, id="one is to come"),
        pytest.param(units(), False, id="none"),
        pytest.param({"applications": {}}, False, id="no application"),
    ],
)
def test_application_is_settled_when_each_unit_is(document, want):
    status = juju.parse_status(document, "app")
    assert bool(status and status.is_settled) is want
