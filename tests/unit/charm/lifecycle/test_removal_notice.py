"""Whose owners are told, when the application goes, that the proxy will not be stopped."""

import msgspec
import pytest
from ops import testing

from tests import asked
from tests.unit.cases import cases
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import PROGRAM, state

PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
SERVED = "istio-integrator.charmhub.io/served"
SERVED_BY = "istio-integrator.charmhub.io/served-by"
OFF = {SERVED: "disabled"}


def spec(policy, *, container="istio-proxy"):
    return {"restartPolicy": policy, "containers": [{"name": "main"}, {"name": container}]}


def add_pod(fake, name, spec, namespace="kubeflow"):
    fake.put("Pod", name, namespace, uid=name * 8, spec=spec)


def told(ctx, fake, *, code=0, **options):
    """Remove the application, whose workload says of every pod that it will hang; who is told."""
    fake_cluster.install_istio(fake)
    pods = [obj["metadata"] for obj in fake.objects.values() if obj["kind"] == "Pod"]
    said = [asked.proxy("", ""), *(asked.proxy(one["namespace"], one["name"]) for one in pods)]
    lines = "\n".join(msgspec.json.encode(each).decode() for each in said)
    explain = testing.Exec((PROGRAM, "explain"), return_code=code, stdout=lines)
    container = testing.Container("lifecycle", can_connect=True, execs={asked.version(), explain})
    ctx.run(ctx.on.remove(), state(container, units=0, **options))
    found = (each for each in fake.objects.values() if each["kind"] == "Event")
    return [each["involvedObject"]["name"] for each in found]


@cases(
    ("spec", "want"),
    job=(spec("Never"), True),
    no_proxy=(spec("Never", container="other"), False),
    native_sidecar=(
        {"restartPolicy": "Never", "initContainers": [{"name": "istio-proxy"}]},
        False,
    ),
    nonsense=({"restartPolicy": ["Never"], "containers": {"name": 5}}, False),
)
def test_pod_with_a_classic_sidecar_is_told(ctx, fake, spec, want):
    add_pod(fake, "pod", spec)
    assert told(ctx, fake) == (["pod"] if want else [])


@cases(
    ("name", "labels", "options", "want"),
    # Which namespaces are served is a table of contract/test_namespaces.py.
    model_switched_off=("kubeflow", OFF, {}, False),
    no_profiles=("alice", PROFILE, {"served_namespaces": "model"}, False),
    another_serves_it=("alice", {**PROFILE, SERVED_BY: "kubeflow.other"}, {}, False),
    claimed=("alice", {**PROFILE, SERVED_BY: "kubeflow.istio-integrator"}, {}, True),
)
def test_pods_are_told_where_proxies_were_stopped(  # noqa: PLR0917 - a table
    ctx, fake, name, labels, options, want
):
    fake.application("other")
    fake.namespace(name, **labels)
    add_pod(fake, "job", spec("Never"), name)
    assert told(ctx, fake, **options) == (["job"] if want else [])


@pytest.mark.parametrize("code", [0, 1])
def test_pod_that_takes_no_event_or_workload_without_an_answer_keeps_nothing_back(ctx, fake, code):
    for name in ("a", "b", "c"):
        add_pod(fake, name, spec("Never"))
    fake.refused.add("b.proxyshutdownends.bbbbbbbb")
    assert told(ctx, fake, code=code) == ([] if code else ["a", "c"])
