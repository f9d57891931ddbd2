"""What becomes of the service, and of a container in which something goes wrong."""

import datetime
import io
import json
import socket
import types

import ops
import pytest
import tenacity
import yaml

from integrator_contract import answers, schema, seen
from integrator_contract import service as options
from istio_integrator.kube import errors
from istio_integrator.lifecycle import service, workload
from tests import asked, shown
from tests.unit.charm.lifecycle.world import context


def test_image_is_that_of_our_own_pod(fake):
    containers = [{"name": "charm", "image": "a"}, {"name": "lifecycle", "image": "b@sha256:1"}]
    fake.add(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "app-0", "namespace": "kubeflow"},
            "spec": {"containers": containers},
        }
    )
    assert workload.image(context(fake)) == "b@sha256:1"


class Container:
    """A workload container with our image, in which something goes wrong."""

    def __init__(self, *, replan=None, stop=None, checks=None, plan=None) -> None:
        self.trouble = {"replan": replan, "stop": stop, "checks": checks, "plan": plan}
        self.settings = b""

    def can_connect(self) -> bool:
        return True

    def add_layer(self, *_, **__) -> None: ...

    def push(self, _, content, **__) -> None:
        self.settings = content.encode()

    def pull(self, *_, **__) -> io.BytesIO:
        return io.BytesIO(self.settings)

    def replan(self) -> None:
        self._raise("replan")

    def stop(self, _) -> None:
        self._raise("stop")

    def get_plan(self) -> ops.pebble.Plan:
        self._raise("plan")
        return ops.pebble.Plan(yaml.safe_dump(service.pebble_layer()))

    def get_checks(self, _) -> dict:
        self._raise("checks")
        return {}

    def _raise(self, what) -> None:
        if self.trouble[what]:
            raise self.trouble[what]


CHANGE = ops.pebble.Change(
    id=ops.pebble.ChangeID("1"),
    kind="replan",
    summary="",
    status="Error",
    tasks=[],
    ready=True,
    err="cannot start",
    spawn_time=datetime.datetime.now(datetime.UTC),
    ready_time=None,
)
GONE = ops.pebble.ConnectionError("no socket")


@pytest.mark.parametrize(
    ("container", "words"),
    [
        pytest.param(
            Container(replan=ops.pebble.ChangeError("cannot start\nmore", CHANGE)),
            "lifecycle does not start: cannot start",
            id="service that exits at once",
        ),
        pytest.param(
            Container(replan=GONE), "lifecycle does not start: no socket", id="container gone"
        ),
        pytest.param(
            Container(checks=GONE), "waiting for Pebble in lifecycle", id="gone in between"
        ),
        pytest.param(
            Container(plan=GONE), "waiting for Pebble in lifecycle", id="gone from the start"
        ),
    ],
)
def test_workload_in_trouble_is_waited_for(fake, container, words):
    subject = service.Lifecycle(context(fake), container, lambda: True)
    sidecars, status = shown.statuses(subject.reconcile())
    assert sidecars == ops.ActiveStatus("classic sidecars")
    assert isinstance(status, ops.WaitingStatus)
    assert words in status.message
    assert "\n" not in status.message


def waiting(fake) -> str:
    subject = service.Lifecycle(context(fake), Container(), lambda: True)
    _, status = shown.statuses(subject.reconcile())
    assert isinstance(status, ops.WaitingStatus)
    return status.message


def test_service_that_does_not_listen_is_waited_for(fake, monkeypatch):
    monkeypatch.setattr(workload, "PORT", 1)
    monkeypatch.setattr(workload._answer.retry, "stop", tenacity.stop_after_attempt(2))
    assert waiting(fake).startswith("the workload does not answer: ")


def test_service_that_is_silent_is_waited_for(fake, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(workload, "PORT", silent.getsockname()[1])
        monkeypatch.setitem(workload._ANSWER_SECONDS, "GET", 0.1)
        assert waiting(fake) == "the workload does not answer: timed out"


def test_service_that_can_not_tell_is_waited_for(fake):
    asked.SERVICE.fails(502, "pods is forbidden")
    assert waiting(fake) == "the workload can't tell: pods is forbidden"


def listing(*pods, contract=schema.SCHEMA, **summary) -> str:
    return json.dumps(
        {"contract": contract, "pods": pods, "summary": {**asked.SUMMARY, **summary}}
    )


def answered(text) -> answers.Listing:
    container = Container()
    container.push("", options.Options(model="m", application="a", unit="a/0").document())
    asked.SERVICE.fails(200, "")
    asked.SERVICE.answer = 200, text.encode(errors="surrogateescape")
    return workload.Workload(container).uninjected()


def test_answer_is_read():
    pod = {
        "namespace": "kubeflow",
        "name": "a-0",
        "workload": "StatefulSet/a",
        "fixable": True,
        "reason": "MissedInjection",
        "message": "it should have one",
    }
    trouble = {"workload": "Deployment/b", "reason": "AgainUninjected", "message": "no sidecar"}
    read = answered(listing({**pod, "more": 1}, troubles=[trouble]))
    assert read.pods == (answers.PodAnswer(**pod),)
    assert read.summary.troubles == (answers.Trouble(**trouble),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{}",
        "[1]",
        "[" * 9999,
        listing(eligible="many"),
        listing(1),
        listing({}),
        listing(contract="another"),
        listing() * 2,
        '{"contract": "\udce4"}',
    ],
)
def test_answer_that_is_none_is_an_error(text):
    with pytest.raises(errors.LifecycleError):
        answered(text)


@pytest.mark.parametrize(
    ("told", "want"),
    [
        (
            {"of": "x", "unseen": None, "guarded": [80]},
            seen.Seen(of="x", unseen=None, guarded=(80,)),
        ),
        (
            {"of": "x", "missing": [{"cause": "warming", "about": {"port": "443"}}]},
            seen.Seen(
                of="x", missing=(seen.Missing(cause=seen.Cause.WARMING, about={"port": "443"}),)
            ),
        ),
        (None, seen.Seen(of="")),
        ({"of": 1}, None),
    ],
    ids=["seen", "missing", "not-told-what-to-expect", "garbage"],
)
def test_gateway_is_told_as_the_service_saw_it(fake, told, want):
    subject = service.Lifecycle(context(fake), Container(), lambda: True)
    subject.reconcile()
    asked.SERVICE.fails(200, json.dumps({"contract": schema.SCHEMA, "seen": told}))
    assert subject.seen() == want
    asked.SERVICE.fails(200, json.dumps({"contract": "another", "seen": told}))
    assert subject.seen() is None


def test_removal_goes_on_without_the_container(fake):
    for kind, name in (("ConfigMap", "app-convergence"), ("ConfigMap", "other")):
        metadata = {"name": name, "namespace": "kubeflow"}
        fake.add({"apiVersion": "v1", "kind": kind, "metadata": metadata})
    service.Lifecycle(context(fake), Container(stop=GONE), lambda: False).remove()
    assert fake.find("ConfigMap", "app-convergence", "kubeflow") is None
    assert fake.find("ConfigMap", "other", "kubeflow")


@pytest.mark.parametrize(
    ("contract", "want"),
    [
        pytest.param(
            "",
            "lifecycle-image is too old; run: juju refresh app --resource lifecycle-image=IMAGE; "
            "the image of the charm's revision (contract none, here ab12)",
            id="older",
        ),
        pytest.param(
            "cd34",
            "lifecycle-image does not fit the charm; run: juju refresh app; or add --resource "
            "lifecycle-image=IMAGE, the image of the charm's revision (contract cd34, here ab12)",
            id="other",
        ),
    ],
)
def test_image_of_another_contract_is_blocked_on_with_the_command(contract, want, monkeypatch):
    monkeypatch.setattr(schema, "SCHEMA", "ab12")
    asked_image = types.SimpleNamespace(contract=lambda: contract)
    said = workload.mismatch(asked_image, application="app")
    assert shown.status(said) == ops.BlockedStatus(want)


def test_layer_has_no_check_that_kills_the_container():
    written = service.pebble_layer()
    assert all("level" not in check for check in written["checks"].values())
    assert written["services"]["lifecycle"]["on-check-failure"] == {"live": "restart"}
