"""Malformed objects of tenants neither stop the service nor affect other objects.

Each object is spoilt in one place, by each of many values: a share of them in each run, all of
them in the runs marked `long`.
"""

import asyncio
import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.decide.convergence import plan
from sidecar_lifecycle.model import types
from sidecar_lifecycle.shell.kube import fence

from integrator_contract import names
from integrator_contract.service import Gateway
from tests.unit.api_server import Refused
from tests.unit.workload import pods
from tests.unit.workload.converging import (
    MEMORY,
    MODEL,
    converging,
    injected,
    remembered,
    without_sidecar,
)
from tests.unit.workload.fake_apiserver import FakeApiserver, until
from tests.unit.workload.service_world import Service
from tests.unit.workload.shutdown_world import phase, unit

RAW = {
    "RAW-digits": b"1" * 4301,
    "RAW-lists": b"[" * 1000 + b"]" * 1000,
    "RAW-mappings": b'{"a":' * 1000 + b"1" + b"}" * 1000,
    "RAW-float": b"1e999",
    "RAW-twice": b'{"name":"a","name":5}',
}
"""Texts that `json.dumps` would not write."""
BROKEN = (b"[" * 50, b'"\xff\xfe"', b'"\\ud800"', b'"\xed\xa0\x80"', b"<html>", b"[1]", b"5")
"""Texts that no apiserver sends for an object; in a list they would take the whole of it along."""
TEXTS = (
    *("", "0", "-1", "65536", "1" * 4301, "[" * 2000, '{"revision":' + "[" * 2000, "a," * 5000),
    *("," * 5000, "x" * 100_000, "\x00\n\x1b[2J", "2026-13-45T99:99:99Z", "2026-01-01T00:00:00"),
    *("enabled", "disabled", "proxyv2:1." + "1" * 5000, ":1.1" * 5000 + "/"),
)
VALUES = (None, True, 0, -1, 2**31, 2**64, 10**40, 1.5, [], {}, [[]], {"": None}, *TEXTS, *RAW)
ANNOTATIONS = dict.fromkeys(
    (
        *(names.STATUS_PORT, names.SIDECAR_STATUS, names.INJECT, names.TEMPLATES, names.REVISION),
        *(names.WAIT_FOR_CONTAINERS, names.IGNORE_CONTAINERS, names.PROXY_SHUTDOWN),
        *(names.RESTART_PODS, names.APPLIED, "deprecated.daemonset.template.generation"),
    ),
    "",
)


def owner(kind: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": "u", "controller": True}


def meta(**extra: Any) -> dict[str, Any]:
    return {"name": "x", "namespace": "tenant", "uid": "u", "generation": 1, **extra}


TEMPLATE = {
    "metadata": {"labels": {"istio": "gateway"}, "annotations": {}},
    "spec": {"containers": [{"name": "istio-proxy", "args": ["proxy", "router"]}]},
}
WORKLOAD = {
    "metadata": meta(annotations=ANNOTATIONS, ownerReferences=[owner("Namespace")]),
    "spec": {
        "replicas": 2,
        "updateStrategy": {"type": "OnDelete"},
        "template": TEMPLATE,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
    },
    "status": {
        "readyReplicas": 1,
        "numberReady": 1,
        "desiredNumberScheduled": 2,
        "observedGeneration": 1,
        "updateRevision": "r",
    },
}
POD = pods.pod_json(
    name="x",
    uid="u",
    namespace="tenant",
    main_spec={"restartPolicyRules": [pods.rule("Restart", 3)], "restartPolicy": "Never"},
    init=[pods.container("istio-init")],
    init_statuses=[pods.status("istio-init", pods.ended())],
    conditions=[
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "DisruptionTarget", "status": "False"},
    ],
    annotations=ANNOTATIONS,
    ownerReferences=[owner("StatefulSet")],
    creationTimestamp="2026-01-01T00:00:00Z",
)
NAMED = Gateway(namespace="tenant", name="x", selector={"istio": "gateway"})
INJECTOR = {"name": "a", "clientConfig": {"service": {"namespace": "n", "name": "istiod"}}}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "pods": POD,
    "namespaces": {
        "metadata": {
            "name": "x",
            "uid": "u",
            "annotations": {},
            "labels": {"app.kubernetes.io/part-of": "kubeflow-profile"},
        }
    },
    "deployments": WORKLOAD,
    "daemonsets": WORKLOAD,
    "statefulsets": WORKLOAD,
    "replicasets": {"metadata": meta(ownerReferences=[owner("Deployment")])},
    "services": {
        "metadata": meta(),
        "spec": {"selector": {"istio": "gateway"}, "ports": [{"name": "http", "port": 80}]},
    },
    "gateways": {"metadata": meta(), "spec": {"servers": [{"hosts": ["*"]}]}},
    "envoyfilters": {
        "metadata": meta(creationTimestamp="2026-01-01T00:00:00Z"),
        "spec": {"configPatches": [{"patch": {"value": {"a": [1]}}}]},
    },
    "mutatingwebhookconfigurations": {
        "metadata": {"name": "istio-sidecar-injector", "uid": "u", "labels": {}},
        "webhooks": [INJECTOR],
    },
    "endpointslices": {"metadata": meta(), "endpoints": [{"conditions": {"ready": True}}]},
}
MEMORY_MAP = {
    "metadata": meta(resourceVersion="1"),
    "data": {"state": '{"rounds":{},"proven":["sidecar"]}', "request": "null"},
}


def places(item: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every holder of a value with the key or index at which it is."""
    for key, value in list(item.items() if isinstance(item, dict) else enumerate(item)):
        yield item, key
        if isinstance(value, dict | list):
            yield from places(value)


def spoilt(document: dict[str, Any], first: int = 0, step: int = 1) -> Iterator[bytes]:
    """Return an object with each value in each place, without it, and with a list many times."""
    count = sum(1 for _ in places(document))
    every = itertools.product(range(count), (*VALUES, "MISSING", "MANY"))
    for place, value in itertools.islice(every, first, None, step):
        item = copy.deepcopy(document)
        holder, key = next(itertools.islice(places(item), place, None))
        if value == "MISSING":
            holder.pop(key)
        elif value == "MANY":
            holder[key] = holder[key] * 300 if isinstance(holder[key], list) else key
        else:
            holder[key] = value
        text = json.dumps(item).encode()
        for mark, raw in RAW.items():
            text = text.replace(f'"{mark}"'.encode(), raw)
        yield text


SHARES = 157


@pytest.mark.parametrize(
    "share", [0, 1, *(pytest.param(each, marks=pytest.mark.long) for each in range(2, SHARES))]
)
async def test_honest_objects_among_hostile_ones_get_what_they_would(
    model: FakeApiserver, share: int
):
    hostile = {kind: list(spoilt(document, share, SHARES)) for kind, document in DOCUMENTS.items()}
    # An API server accepts only DNS labels as names of namespaces, which become parts of paths.
    hostile["namespaces"] = [each for each in hostile["namespaces"] if b'"name": "x"' in each]

    async def listed(service: Service) -> list[Any]:
        found = await service.get("/uninjected")
        return [pod for pod in found["pods"] if pod["name"] == "web-0"]

    def put(name: str, *state: dict[str, Any]) -> None:
        model.put("pods", pods.pod_json(*state, name=name, uid=name))

    model.admission = lambda pod: pod
    async with converging(model, leader=False) as service:
        alone = await listed(service)
    assert alone
    model.raw.update(hostile)
    put("done")
    put("busy", pods.running())
    async with converging(model, gateway=NAMED, delete_broken_pods=True) as service:
        await until(lambda: phase(model, "done") == "Succeeded")
        for kind in ("MODIFIED", "DELETED", "ADDED"):
            for plural, texts in hostile.items():
                for text in (*texts, *BROKEN):
                    model.say(plural, kind, text)
        put("late")
        await until(lambda: phase(model, "late") == "Succeeded")
        assert await listed(service) == alone
        await asyncio.sleep(5)
        service.noticed.clear()
        model.namespace(MODEL, labels={"istio-injection": "disabled"})
        await until(service.told)
        assert await service.is_ready()
    assert not model.proxies["busy"].requests


async def test_answers_about_one_object_end_nothing_whatever_they_are(model: FakeApiserver):
    model.put("configmaps", {"metadata": {"name": MEMORY, "namespace": MODEL}})
    async with converging(model, leader=False) as service:

        async def status(text: bytes) -> int:
            model.answers = {f"/api/v1/namespaces/{MODEL}/configmaps/{MEMORY}": text}
            async with service.asked.get("/uninjected") as answer:
                return answer.status

        assert {await status(text) for text in BROKEN} == {502}
        assert {await status(text) for text in spoilt(MEMORY_MAP, 0, 11)} == {200, 502}
        assert await status(json.dumps(MEMORY_MAP).encode()) == 200


async def test_pod_whose_workload_is_not_understood_stays(model: FakeApiserver):
    def valid(pod: Any) -> Any:
        try:
            return injected(pod)
        except (KeyError, TypeError) as error:
            raise Refused("no such pod", 422) from error

    model.admission = valid
    model.delete("pods", MODEL, "web-0")
    where = f"/apis/apps/v1/namespaces/{MODEL}/statefulsets/web"
    async with converging(model):
        for number, text in enumerate((*spoilt(WORKLOAD, 0, 79), *BROKEN, b'{"spec":{}}')):
            model.answers = {where: text}
            model.put("pods", without_sidecar(f"uid-{number}"))
            await until(lambda: remembered(model).holds or model.evicted)
            if not text.startswith(b'{"metadata"'):
                assert not model.evicted, text
                (hold,) = remembered(model).holds.values()
                assert hold.reason == "ReplacementRefused"
            model.evicted.clear()
            for each in (("pods", "web-0"), ("configmaps", MEMORY)):
                if model.find(each[0], MODEL, each[1]):
                    model.delete(each[0], MODEL, each[1])
            # A trial counts for a while.
            await asyncio.sleep(plan.TRIAL_TTL)


# What one object may cost.


async def test_pod_that_can_not_be_decoded_gets_one_event_and_others_complete(
    cluster: FakeApiserver,
):
    hostile = pods.pod_json(name="hostile", uid="h")
    hostile["spec"]["nodeName"] = 5
    cluster.put("pods", hostile)
    cluster.put("pods", pods.pod_json())
    async with unit(cluster) as service:
        await until(lambda: phase(cluster) == "Succeeded")
        assert await service.is_ready()
        cluster.put("pods", hostile)
        cluster.delete("pods", MODEL, "hostile")
        # A StatefulSet gives its next pod the same name.
        hostile["metadata"]["uid"] = "h-2"
        cluster.put("pods", hostile)
        cluster.put("pods", pods.pod_json(name="later", uid="l"))
        await until(lambda: phase(cluster, "later") == "Succeeded")

    told = [each for each in cluster.all("events") if each["reason"] == "ObjectNotUnderstood"]
    about = [(each["involvedObject"], each["count"]) for each in told]
    assert sorted((pod["name"], pod["uid"], count) for pod, count in about) == [
        ("hostile", "h", 1),
        ("hostile", "h-2", 1),
    ]


async def test_pod_that_can_not_be_decoded_any_more_is_forgotten_when_it_is_deleted(
    cluster: FakeApiserver,
):
    cluster.put("pods", pods.pod_json(pods.running()))
    bad = json.dumps({**pods.pod_json(), "spec": 5}).encode()
    async with unit(cluster) as service:
        await until(service.is_ready)
        kept = await service.counted("pods")
        cluster.say("pods", "MODIFIED", bad)
        cluster.say("pods", "DELETED", bad)
        await until(lambda: service.shows(kept - 1, "pods"))


@pytest.mark.parametrize("error", [RecursionError, MemoryError, ValueError, KeyError])
async def test_rules_that_raise_about_one_pod_leave_the_others_to_complete(
    cluster: FakeApiserver,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: type[Exception],
):
    rules = finished.decide

    def broken(pod: types.Pod, policy: finished.Policy) -> finished.ProxyDecision:
        if pod.metadata.name == "hostile":
            raise error("x" * 5000)
        return rules(pod, policy)

    monkeypatch.setattr(finished, "decide", broken)
    async with unit(cluster) as service:
        await until(service.is_ready)
        before = await service.counted("broken_objects_total", "Pod", "decide")
        cluster.put("pods", pods.pod_json(name="hostile", uid="h"))
        cluster.put("pods", pods.pod_json())
        await until(lambda: phase(cluster) == "Succeeded")
        # A namespace that changes has all its pods judged anew.
        cluster.namespace(MODEL, annotations={names.PROXY_SHUTDOWN: "disabled"})
        await asyncio.sleep(5)
        cluster.namespace(MODEL)
        cluster.put("pods", pods.pod_json(name="later", uid="l"))
        await until(lambda: phase(cluster, "later") == "Succeeded")
        assert await service.counted("broken_objects_total", "Pod", "decide") > before + 1

    (event,) = (e for e in cluster.all("events") if e["reason"] == "ObjectNotUnderstood")
    told = f"The pod can't be dealt with, and its proxy is left alone: {error.__name__}: "
    text = repr("x" * 5000) if error is KeyError else "x" * 5000
    assert event["message"] == told + text[: 300 - len(f"{error.__name__}: ")]
    lines = map(json.loads, capsys.readouterr().err.splitlines())
    (told,) = (each for each in lines if each["message"] == "object can't be dealt with")
    assert told["at"].partition(":")[0] == "test_hostile.py"
    where = [told[key] for key in ("stage", "kind", "namespace", "name")]
    assert where == ["decide", "Pod", MODEL, "hostile"]
    assert cluster.proxies["hostile"].requests == []


def test_memory_of_what_was_told_is_bounded():
    guard = fence.Fence()
    for number in range(fence.REMEMBERED + 10):
        item = types.Pod(metadata=types.ObjectMeta(name="p", uid=str(number)))
        with structlog.testing.capture_logs(), guard.isolate("decide", item):
            raise ValueError

    assert len(guard._told) == fence.REMEMBERED
