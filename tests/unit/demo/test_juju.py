import pytest

from demo import juju


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
        ("active", "istio-system/istiod 1.31 · policy · 14/14 pods in mesh", True),
        ("active", "istio-system/istiod 1.31 · policy · 13/14 pods in mesh", False),
        ("maintenance", "14/14 pods in mesh", False),
        ("active", "", False),
    ],
)
def test_only_active_with_all_pods_is_complete(current, message, complete):
    status = juju.parse_status(document(current, message), "istio-integrator")
    assert status is not None
    assert status.is_complete is complete
