"""Whatever objects of others look like, every loop goes on, and honest ones get what they would.

Each run plays a few hundred spoilt objects of each kind; those marked `long` 25,000.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sidecar_lifecycle.decide.convergence import facts, memory, plan
from sidecar_lifecycle.shell import settings as options
from sidecar_lifecycle.shell.convergence import cluster as hands
from sidecar_lifecycle.shell.kube import errors, events
from sidecar_lifecycle.shell.observers import observe
from sidecar_lifecycle.shell.shutdown import controller as shutdown
from sidecar_lifecycle.shell.shutdown import stop

from integrator_contract.answers import Action
from tests.unit.workload import hostile, pods
from tests.unit.workload.fake_apiserver import running_task, until
from tests.unit.workload.scripted import Scripted

VIRTUAL_TIME = True
MODEL = "kubeflow"
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
NOW = 1_800_000_000.0

FEW = [(seed, 100) for seed in range(3)]
MANY = [(seed, 1000) for seed in range(1000, 1025)]
"""Seeds and numbers of objects, for each test."""
runs = pytest.mark.parametrize(
    ("seed", "count"), [*FEW, *(pytest.param(*run, marks=pytest.mark.long) for run in MANY)]
)


def spoilt(seed: int, count: int, *kinds: str, broken: bool = True) -> dict[str, list[bytes]]:
    """Return that many objects of the kinds together."""
    vandal = hostile.Vandal(seed, broken=broken)
    share = max(1, count // len(kinds))
    found = {
        kind: [
            vandal.spoil(hostile.pod() if kind == "pods" else hostile.DOCUMENTS[kind], number)
            for number in range(share)
        ]
        for kind in kinds
    }
    if "pods" in found:
        found["pods"] += hostile.known()
    return found


class Stopper:
    """Stops whatever it is asked to, and has the pod gone at once."""

    def __init__(self, server: Scripted) -> None:
        self.stopped: list[str] = []
        self._server = server

    async def stop(
        self, pod: Any, decision: Any, transport: stop.Transport, decide: Any, on_sent: Any
    ) -> stop.Outcome:
        meta = pod.metadata
        decide(pod)
        on_sent()
        self.stopped.append(meta.uid)
        gone = {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid}
        self._server.say("pods", "DELETED", {"metadata": gone})
        return stop.Outcome(stop.Result.ACKNOWLEDGED, transport)


def honest(name: str, main: dict[str, Any] | None = None) -> bytes:
    return json.dumps(pods.pod_json(main, name=name, uid=name)).encode()


@runs
async def test_honest_pods_among_hostile_ones_are_stopped_and_waited_for(seed: int, count: int):
    server = Scripted()
    objects = spoilt(seed, count, "pods", "namespaces")
    server.present |= objects
    server.present["namespaces"] += [
        json.dumps({"metadata": {"name": name, "uid": name, "labels": PROFILE}}).encode()
        for name in (MODEL, "tenant")
    ]
    server.present["pods"] += [honest("done"), honest("busy", pods.running())]
    stopper = Stopper(server)
    controller = shutdown.Controller(
        server,  # type: ignore[arg-type]
        options.Live(
            options.Settings(
                model=MODEL,
                application="a",
                unit="a/0",
                leader=True,
                delete_broken_pods=True,
            )
        ),
        events.Recorder(server),  # type: ignore[arg-type]
        stopper=stopper,  # type: ignore[arg-type]
    )
    async with running_task(controller.run()) as task:
        await until(lambda: "done" in stopper.stopped)
        assert {MODEL, "tenant"} <= set(controller.namespaces.served)
        for kind in ("MODIFIED", "DELETED", "ADDED"):
            for plural, texts in objects.items():
                for text in texts:
                    server.say(plural, kind, text)
        server.say("pods", "ADDED", honest("late"))
        await until(lambda: "late" in stopper.stopped)
        assert not task.done()
        assert controller.pods.live
        assert "busy" not in stopper.stopped
        decisions = {each.pod.metadata.uid: each.decision for each in controller.view}
        assert decisions["busy"].reason == "PayloadRunning"
        assert decisions["busy"].action is Action.WAIT


OBSERVED = (
    "deployments",
    "daemonsets",
    "services",
    "gateways",
    "envoyfilters",
    "mutatingwebhookconfigurations",
    "endpointslices",
    "namespaces",
)


@runs
async def test_observers_tell_of_an_honest_change_among_hostile_ones(seed: int, count: int):
    server = Scripted()
    objects = spoilt(seed, count, *OBSERVED)
    server.present |= objects
    told: list[str] = []
    observers = [
        observe.follow_gateway(
            server,  # type: ignore[arg-type]
            model=MODEL,
            owner="owner",
            named="",
            changed=lambda: told.append("gateway"),
        ),
        observe.Mesh(server, MODEL, lambda: told.append("mesh")).run(),  # type: ignore[arg-type]
    ]
    async with running_task(observers[0]) as one, running_task(observers[1]) as two:
        await until(lambda: len(server.watches) >= 7)
        for kind in ("MODIFIED", "DELETED", "ADDED"):
            for plural, texts in objects.items():
                for text in texts:
                    server.say(plural, kind, text)
        # Time moves when all that was said has been read.
        await asyncio.sleep(5)
        told.clear()
        gateway = {"metadata": {"name": "honest", "uid": "honest", "generation": 7}}
        server.say("gateways", "ADDED", gateway)
        server.say("namespaces", "ADDED", {"metadata": {"name": MODEL, "labels": {"a": "b"}}})
        await until(lambda: {"gateway", "mesh"} <= set(told))
        assert not one.done()
        assert not two.done()


async def read(objects: dict[str, list[bytes]]) -> dict[str, tuple[facts.Replica, str]]:
    """Return what convergence finds out about honest pods, and what it makes of each."""
    server = Scripted()
    server.present |= {kind: list(texts) for kind, texts in objects.items()}
    workload = hostile.DOCUMENTS["statefulsets"] | {"metadata": {"name": "honest", "uid": "u"}}
    server.present["statefulsets"].append(json.dumps(workload).encode())
    for name in ("honest-0", "honest-1"):
        reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "uid": "u", "name": "honest"}
        pod = pods.pod_json(
            name=name,
            uid=name,
            policy="Always",
            ownerReferences=[reference | {"controller": True}],
            annotations={"sidecar.istio.io/status": '{"revision":"old"}'}
            if name[-1:] == "1"
            else {},
        )
        pod["spec"]["containers"] = pod["spec"]["containers"][:1]
        server.present["pods"].append(json.dumps(pod).encode())
    namespace = {"metadata": {"name": MODEL, "labels": {"istio-injection": "enabled"}}}
    server.answers[f"/namespaces/{MODEL}"] = json.dumps(namespace).encode()
    settings = options.Settings(
        model=MODEL,
        application="a",
        unit="a/0",
        proxy_revision="new",
        proxy_version="1.31.1",
    )
    subject = hands.Cluster(server, options.Live(settings), lambda: NOW)  # type: ignore[arg-type]
    reading = await hands.read(subject, await subject.pods(), memory.Memory(), {}, settings.proxy)
    decided = plan.plan(
        reading.snapshot, memory.Memory(), mode="auto", max_unavailable="2", now=NOW
    )
    rows = {row.replica.uid: row.replica.reason for row in decided.rows}
    found = {each.uid: (each, rows.get(each.uid, "")) for each in reading.snapshot.replicas}
    return {uid: pair for uid, pair in found.items() if uid.startswith("honest")}


@runs
async def test_convergence_finds_the_same_about_honest_pods_among_hostile_ones(
    seed: int, count: int
):
    kinds = ("pods", "statefulsets", "deployments", "daemonsets", "replicasets")

    assert await read(spoilt(seed, count, *kinds, broken=False)) == await read({})


@runs
async def test_answers_about_one_object_end_nothing_whatever_they_are(seed: int, count: int):
    server = Scripted()
    settings = options.Settings(model=MODEL, application="a", unit="a/0")
    subject = hands.Cluster(server, options.Live(settings), lambda: NOW)  # type: ignore[arg-type]
    scope = settings.scope({})
    replica = facts.Replica(name="p", uid="u", created=0.0, workload="StatefulSet/w")
    objects = spoilt(seed, count, "configmaps", "statefulsets", "pods")
    for text in objects["configmaps"]:
        server.answers["/configmaps/a-convergence"] = text
        try:
            memory.decode((await subject.recall()).data)
        except errors.Unreachable:
            continue
    for workload, pod in zip(objects["statefulsets"], objects["pods"], strict=False):
        server.answers |= {"/statefulsets/w": workload, "/pods": pod}
        await subject.ask(replica, scope)
    for garbage in (b"<html>", b"[1]", b'{"metadata":5}', b'{"kind":"\xff"}', b'{"spec":{}}'):
        server.answers["/statefulsets/w"] = garbage
        assert (await subject.ask(replica, scope)).verdict == "refused"
