"""What somebody with an ordinary namespace may make to harm a model, as tables of attacks.

An attack is a function of the world, which yields the objects that the tenant makes.
"""

from __future__ import annotations

import itertools

import pytest

from tests.functional import ingress_world, istiod_world
from tests.functional import tenant_parts as parts

PREFIX = "istio-integrator.charmhub.io/"
NETWORKING = "networking.istio.io/v1"
TEMPLATES = {"inject.istio.io/templates": "gateway"}
LABELS = istiod_world.LABELS
MANY = 300
"""Objects of a flood: several pages of a list, and few enough to make in a second or two."""


def owner(world):
    """The charm's name of itself on what it owns."""
    return f"{world.model}.{parts.APPLICATION}"


def _pod(**given):
    def attack(world):
        template = parts.job_pod(**given)
        metadata = {"name": "attack", "namespace": world.profile, **template["metadata"]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

    return attack


def _crowd(world):
    """A pod of so many containers that it is as large as a pod can be."""
    names = [{"name": f"c{number}", "image": "x"} for number in range(600)]
    yield from _pod(containers=names)(world)


PODS = [
    pytest.param(attack, id=f"pod with {name}")
    for name, attack in {
        "a status of brackets": _pod(annotations={"sidecar.istio.io/status": "[" * 2000}),
        "600 containers": _crowd,
        "the webhook's labels": _pod(labels={f"{PREFIX}component": "admission-webhook"}),
        "the modeloperator's labels": _pod(
            labels={
                "operator.juju.is/name": "modeloperator",
                "juju-modeloperator": "modeloperator",
                "model.juju.is/disable-webhook": "true",
            }
        ),
        "the unit's labels": _pod(labels={"app.kubernetes.io/name": parts.APPLICATION}),
        "the probe's labels": _pod(
            labels={f"{PREFIX}probe": "policy", f"{PREFIX}mesh-probe": "true"}
        ),
    }.items()
]


def _ours(world, name, folder, **more):
    marks = {
        "app.kubernetes.io/managed-by": "istio-integrator",
        f"{PREFIX}owner": owner(world),
        f"{PREFIX}component": folder,
    }
    return {"name": name, "namespace": world.profile, "labels": marks, **more}


def _claimed(world):
    """Objects that say that they are ours, of every folder that has namespaced objects."""
    names = itertools.count(1)
    for folder in ("record", "gateway-tls", "admission-certificates", "retired"):
        data = {"metadata": _ours(world, f"ours-{next(names)}", folder), "data": {}}
        yield {"apiVersion": "v1", "kind": "Secret", **data}
    for name, folder in {"istio-integrator-convergence": "convergence", "more": "x"}.items():
        metadata = _ours(world, name, folder)
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "[["}}
    yield parts.service(
        "istio-integrator-admission",
        world.profile,
        443,
        metadata=_ours(world, "istio-integrator-admission", "admission-webhook"),
    )
    deployment = parts.router("istio-integrator-gateway", world.profile, {"a": "b"}, replicas=0)
    deployment["metadata"] = _ours(world, "istio-integrator-gateway", "gateway-workload")
    yield deployment


def _kept(world):
    """An object that says that it is ours, and does not go when it is deleted."""
    metadata = _ours(world, "stays", "gateway-tls", finalizers=["example.com/never"])
    yield {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


def _owned_by_model(world):
    """Objects that hang on the model and on the charm's ClusterRole, and would hold them."""
    for number, (kind, name, group) in enumerate(
        (
            ("Namespace", world.model, "v1"),
            (
                "ClusterRole",
                f"{world.model}-{parts.APPLICATION}",
                "rbac.authorization.k8s.io/v1",
            ),
        )
    ):
        found = world.control_plane.kubectl("get", kind, name, "-o", "jsonpath={.metadata.uid}")
        reference = {"apiVersion": group, "kind": kind, "name": name, "uid": found.stdout}
        metadata = {
            "name": f"hangs-{number}",
            "namespace": world.profile,
            "ownerReferences": [{**reference, "blockOwnerDeletion": True}],
        }
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def _unit(world):
    """A pod by the name and the labels of the charm's own."""
    names = {"app.kubernetes.io/name": parts.APPLICATION, "app.kubernetes.io/managed-by": "juju"}
    pod = next(iter(_pod(labels=names)(world)))
    pod["metadata"]["name"] = f"{parts.APPLICATION}-0"
    yield pod


FORGERIES = [
    pytest.param(_claimed, id="objects by our names, with our labels"),
    pytest.param(_owned_by_model, id="objects owned by the model"),
    pytest.param(_unit, id="pod by the name of a unit"),
]


def _served(world, name):
    ports = [{"name": "http2", "port": 80}, {"name": "https", "port": 443}]
    spec = {"selector": {**LABELS}, "ports": ports}
    return parts.made("v1", "Service", name, world.profile, spec)


def fake(world):
    """A gateway by its annotation alone, without a pod."""
    yield parts.router("fake", world.profile, LABELS, replicas=0, annotations=TEMPLATES)
    yield _served(world, "fake")


def other(world):
    """A gateway that looks like nobody's but is the only one that is ready, at times."""
    labels = {"app": "istio-ingressgateway", "istio": "ingress"}
    yield parts.router("other", world.profile, labels)
    yield parts.made(
        "v1",
        "Service",
        "other",
        world.profile,
        {"selector": labels, "ports": [{"name": "http2", "port": 80}]},
    )


def copied(world):
    """A workload that is no gateway, with the labels of one."""
    found = parts.router("copied", world.profile, LABELS, replicas=0)
    found["spec"]["template"]["spec"]["containers"] = [{"name": "main", "image": "x"}]
    yield found
    yield _served(world, "copied")


IMPOSTORS = [
    pytest.param(fake, id="fake gateway"),
    pytest.param(other, id="another gateway"),
    pytest.param(copied, id="copied labels"),
]


def _nested(world):
    patch = {
        "applyTo": "HTTP_FILTER",
        "match": {"context": "GATEWAY"},
        "patch": {"operation": "INSERT_FIRST", "value": {"deep": parts.NESTED}},
    }
    spec = {"configPatches": [patch]}
    for number, marks in enumerate(({}, {f"{PREFIX}owner": owner(world)})):
        metadata = {"labels": marks}
        name = f"deep-{number}"
        kind = ("networking.istio.io/v1alpha3", "EnvoyFilter")
        yield parts.made(*kind, name, world.profile, spec, metadata=metadata)


def gateway(world, *hosts, namespace="", **tls):
    """A Gateway on the shared workload, by default of the tenant's."""
    where = namespace or world.profile
    return ingress_world.gateway(where, "attack", ingress_world.server(80, hosts, **tls))


def many_hosts(world):
    """A Gateway of so many hosts that each of them must not cost much."""
    yield gateway(world, *(f"h{number}.{world.profile}.example" for number in range(4000)))


def _policies(world):
    """Policies that nobody can make sense of, in the tenant's own namespace."""
    group = "security.istio.io/v1"
    spec = {"action": "CUSTOM", "provider": {"name": "nobody"}, "rules": [{}]}
    yield parts.made(group, "AuthorizationPolicy", "attack", world.profile, spec)
    spec = {"mtls": {"mode": "STRICT"}, "selector": {"matchLabels": LABELS}}
    yield parts.made(group, "PeerAuthentication", "attack", world.profile, spec)


ISTIO = [
    pytest.param(_nested, id="EnvoyFilter of a thousand nested lists"),
    pytest.param(_policies, id="policies"),
]


def _flood(world):
    """Very many objects that say that they are ours or a gateway's."""
    for number in range(MANY):
        yield parts.service(
            f"flood-{number}",
            world.profile,
            metadata={"labels": {f"{PREFIX}annotated-by": owner(world)}},
        )
        metadata = _ours(world, f"flood-{number}", "gateway-tls")
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


def everything_said_to_be_ours(world):
    """All that bears our marks, among them what does not go when it is deleted."""
    yield from _claimed(world)
    yield from _kept(world)


def pods_that_hang(count):
    """Very many pods whose payload has ended and whose proxies will not answer."""

    def attack(world):
        for number in range(count):
            for pod in _pod()(world):
                pod["metadata"]["name"] = f"hangs-{number}"
                yield pod

    return attack


FLOODS = [pytest.param(_flood, marks=pytest.mark.long, id="flood of objects with our labels")]
