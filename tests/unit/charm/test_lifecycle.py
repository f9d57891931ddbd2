import dataclasses
import datetime
import json
import shlex

import ops
import pytest
from hypothesis import given
from hypothesis import strategies as st

import component
import config
import errors
import lifecycle
import manifests

JOINED = lifecycle.Joined(namespace="istio-system", revision="default")


def scope(fake, **options) -> component.Scope:
    return component.Scope(
        cluster=fake.api(),
        manifests=manifests.Manifests(fake.api(), model="kubeflow", application="app"),
        config=config.Config(**options),
        mesh=None,
        model="kubeflow",
        application="app",
        unit="app/0",
        leader=True,
    )


def options_of(argv: list[str]) -> dict[str, str]:
    assert argv[:2] == ["/usr/bin/sidecar-lifecycle", "run"]
    assert len(argv) % 2 == 0
    return dict(zip(argv[2::2], argv[3::2], strict=True))


def test_command_line_of_a_member(fake):
    assert options_of(lifecycle.command(scope(fake), JOINED)) == {
        "--model": "kubeflow",
        "--application": "app",
        "--unit": "app/0",
        "--mesh-namespace": "istio-system",
        "--mesh-revision": "default",
        "--membership": "namespace",
        "--included-pods": "",
        "--excluded-pods": "",
        "--lifecycle-namespaces": "model,profiles,labelled",
        "--proxy-shutdown": "true",
        "--wait-for-containers": "",
        "--ignore-containers": "",
        "--status-port": "15020",
        "--replace-broken-pods": "false",
        "--convergence": "auto",
        "--convergence-max-unavailable": "2",
        "--observe-gateways": "false",
        "--listen": "0.0.0.0:8080",
        "--log-level-file": "/tmp/sidecar-lifecycle.log-level",
    }


def test_command_line_converges_only_members(fake):
    assert options_of(lifecycle.command(scope(fake), None))["--convergence"] == "off"
    manual = scope(fake, sidecar_convergence="manual")
    assert options_of(lifecycle.command(manual, JOINED))["--convergence"] == "manual"
    assert options_of(lifecycle.command(manual, JOINED, converge=False))["--convergence"] == "off"


def test_gateways_are_observed_where_somebody_is_to_be_reached(fake):
    exposing = dataclasses.replace(scope(fake), exposes=True)
    assert options_of(lifecycle.command(exposing, JOINED))["--observe-gateways"] == "true"


@given(st.sampled_from(["a=b", "a in (b, c),!d", "a='x"]))
def test_layer_keeps_arguments_apart(selector):
    argv = ["run", "--included-pods", selector, "--empty", ""]
    command = lifecycle.layer(argv)["services"]["lifecycle"]["command"]
    assert shlex.split(command) == argv


def test_layer_has_no_check_that_kills_the_container():
    layer = lifecycle.layer(["run"])
    assert all("level" not in check for check in layer["checks"].values())
    assert layer["services"]["lifecycle"]["on-check-failure"] == {"live": "restart"}


def answer(**summary) -> str:
    values = {
        "eligible": 3,
        "in_mesh": 3,
        "converging": 0,
        "proposed": 0,
        "guarded": [],
        "reported": 0,
        "settled_before_us": False,
        **summary,
    }
    return json.dumps({"summary": values})


def test_answer_is_read():
    pod = {"namespace": "kubeflow", "name": "a-0", "workload": "StatefulSet/a", "fixable": True}
    guarded = [{"workload": "Deployment/b", "reason": "AgainUninjected", "message": "no sidecar"}]
    read = lifecycle.parse(f"{json.dumps(pod)}\n{answer(guarded=guarded)}\n")
    assert read.pods == [pod]
    assert read.summary.guarded == ("Deployment/b: no sidecar",)


@pytest.mark.parametrize("output", ["", "x", "{}", '{"summary": {}}', '{"summary": 3}', "[1]"])
def test_answer_that_is_none_is_an_error(output):
    with pytest.raises(errors.LifecycleError):
        lifecycle.parse(output)


NO_EVICTION = (
    "not allowed to create pods/eviction: pods is forbidden: User "
    '"system:serviceaccount:kubeflow:app" cannot create resource "pods/eviction" in API group "" '
    'in the namespace "kubeflow"'
)


def paused(reason, message):
    return {"workload": "StatefulSet/db", "reason": reason, "message": message}


def progress(**values) -> list[ops.StatusBase]:
    summary = lifecycle.parse(answer(**values)).summary
    return list(lifecycle.progress(summary, application="app"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, ops.ActiveStatus("3/3 pods in mesh"), id="all in"),
        pytest.param(
            {"reported": 2},
            ops.ActiveStatus("3/3 pods in mesh, 2 not ours to replace"),
            id="some reported",
        ),
        pytest.param(
            {"in_mesh": 1, "converging": 1},
            ops.MaintenanceStatus("1/3 pods in mesh, 1 being replaced"),
            id="converging",
        ),
        pytest.param(
            {"in_mesh": 1, "proposed": 2},
            ops.BlockedStatus("1/3 pods in mesh; run: juju run app/leader restart-uninjected"),
            id="manual",
        ),
        pytest.param(
            {"in_mesh": 1, "proposed": 2, "settled_before_us": True},
            ops.BlockedStatus(
                "1/3 pods in mesh, settled before we came; run: juju run app/leader "
                "restart-uninjected"
            ),
            id="settled",
        ),
        pytest.param(
            {"in_mesh": 1, "proposed": 1, "settled_before_us": True, "converging": 1},
            ops.MaintenanceStatus("1/3 pods in mesh, 1 being replaced"),
            id="settled but asked for",
        ),
        pytest.param(
            {
                "in_mesh": 1,
                "guarded": [{"workload": "Deployment/a", "message": "m"}] * 2,
            },
            ops.BlockedStatus("Deployment/a: m (and 1 more)"),
            id="guarded",
        ),
        pytest.param(
            {"in_mesh": 2, "paused": [paused("DisruptionBudget", "it would violate the budget")]},
            ops.WaitingStatus(
                "2/3 pods in mesh, StatefulSet/db waits: it would violate the budget"
            ),
            id="budget",
        ),
        pytest.param(
            {"in_mesh": 2, "paused": [paused("Forbidden", NO_EVICTION)]},
            ops.BlockedStatus(
                "run: juju trust app --scope=cluster (may not create pods/eviction)"
            ),
            id="eviction-forbidden",
        ),
        pytest.param(
            {"stale": 3},
            ops.ActiveStatus("3/3 pods in mesh, 3 with an old proxy: restart-stale"),
            id="old proxies",
        ),
    ],
)
def test_progress_is_said(values, expected):
    assert progress(**values)[0] == expected


COUNTS = st.integers(0, 5)


@given(COUNTS, COUNTS, COUNTS, COUNTS, st.booleans())
def test_progress_is_active_only_when_every_pod_is_in(missing, inside, moving, asked, settled):
    said = progress(
        eligible=inside + missing,
        in_mesh=inside,
        converging=min(moving, missing),
        proposed=min(asked, missing),
        settled_before_us=settled,
    )
    assert all(isinstance(status, ops.ActiveStatus) for status in said) is (missing == 0)


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
    assert lifecycle.image(scope(fake)) == "b@sha256:1"


class Container:
    """A workload container in which something goes wrong."""

    def __init__(self, *, replan=None, process=None, stop=None, checks=None) -> None:
        self.trouble = {"replan": replan, "process": process, "stop": stop, "checks": checks}

    def can_connect(self) -> bool:
        return True

    def add_layer(self, *_, **__) -> None: ...

    def push(self, *_, **__) -> None: ...

    def replan(self) -> None:
        self._raise("replan")

    def stop(self, _) -> None:
        self._raise("stop")

    def get_checks(self, _) -> dict:
        self._raise("checks")
        return {}

    def exec(self, *_, **__) -> None:
        self._raise("process")

    def _raise(self, what) -> None:
        if self.trouble[what]:
            raise self.trouble[what]


SLOW = 'Execute command "sidecar-lifecycle" (timed out after 30s)'
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
            Container(process=GONE), "the workload does not answer: no socket", id="no answer"
        ),
        pytest.param(
            Container(process=TimeoutError("30s")), "the workload does not answer", id="slow"
        ),
        pytest.param(
            Container(process=ops.pebble.ChangeError(f"can't do:\n- {SLOW}", CHANGE)),
            f"the workload does not answer: {SLOW}",
            id="too slow",
        ),
    ],
)
def test_workload_in_trouble_is_waited_for(fake, container, words):
    workload = lifecycle.Lifecycle(scope(fake), container, JOINED)
    workload.reconcile()
    (status,) = workload.statuses()
    assert isinstance(status, ops.WaitingStatus)
    assert words in status.message
    assert "\n" not in status.message


def test_removal_goes_on_without_the_container(fake):
    for kind, name in (("ConfigMap", "app-convergence"), ("ConfigMap", "other")):
        metadata = {"name": name, "namespace": "kubeflow"}
        fake.add({"apiVersion": "v1", "kind": kind, "metadata": metadata})
    lifecycle.Lifecycle(scope(fake), Container(stop=GONE), None).remove()
    assert fake.find("ConfigMap", "app-convergence", "kubeflow") is None
    assert fake.find("ConfigMap", "other", "kubeflow")
