import json
from typing import Any

import pytest

from testbed import addresses, components, istio, outside
from testbed.options import Options

ADDRESS = "198.18.0.6"


def item(kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": name}, **content}


def rendered(suffix: str = "") -> list[dict[str, Any]]:
    container = {
        "args": ["discovery"],
        "env": [{"name": "REVISION", "value": "x"}, {"name": "POD_NAME", "valueFrom": {}}],
    }
    pod = {"serviceAccountName": f"istiod{suffix}", "containers": [container]}
    hook = {"clientConfig": {"service": {"name": "istiod", "path": "/inject"}}, "name": "a"}
    return [
        item("Deployment", f"istiod{suffix}", spec={"template": {"spec": pod}}),
        item("Deployment", "istio-ingressgateway"),
        item("Service", f"istiod{suffix}"),
        item("Service", "istio-ingressgateway"),
        item("ConfigMap", f"istio{suffix}", data={"mesh": "{}"}),
        item("ConfigMap", f"istio-sidecar-injector{suffix}", data={"values": "v", "config": "c"}),
        item("ConfigMap", "values", data={}),
        item("ServiceAccount", f"istiod{suffix}"),
        item("MutatingWebhookConfiguration", "istio-sidecar-injector", webhooks=[hook]),
        item("ValidatingWebhookConfiguration", "istio-validator"),
    ]


@pytest.mark.parametrize("suffix", ["", "-canary"])
def test_cluster_keeps_nothing_of_istiod_but_its_account_and_its_url(suffix: str):
    left, _ = outside.take_out(rendered(suffix), f"istiod{suffix}", ADDRESS)
    assert [(one["kind"], one["metadata"]["name"]) for one in left] == [
        ("Deployment", "istio-ingressgateway"),
        ("Service", "istio-ingressgateway"),
        ("ServiceAccount", f"istiod{suffix}"),
        ("MutatingWebhookConfiguration", "istio-sidecar-injector"),
    ]
    (hook,) = left[-1]["webhooks"]
    assert hook["clientConfig"] == {"url": f"https://{ADDRESS}:15017/inject"}


@pytest.mark.parametrize("suffix", ["", "-canary"])
def test_process_has_what_its_pod_would_have(tmp_path: Any, suffix: str):
    _, process = outside.take_out(rendered(suffix), f"istiod{suffix}", ADDRESS)
    assert process.account == f"system:serviceaccount:istio-system:istiod{suffix}"
    assert process.environment["REVISION"] == "x"
    assert process.environment["ISTIOD_CUSTOM_HOST"] == ADDRESS
    process.write_files(tmp_path)
    assert (tmp_path / "etc/istio/config/mesh").read_text() == "{}"
    assert (tmp_path / "var/lib/istio/inject/values").read_text() == "v"


def test_objects_of_others_are_left_as_they_are():
    objects = rendered()
    before = json.dumps(objects)
    outside.take_out(objects, "istiod", ADDRESS)
    assert json.dumps(objects) == before


def test_proxies_and_gateway_are_told_the_address():
    spec = istio.overlay(
        istio.Installation(proxy_image="proxy:1", pilot_image="pilot:1", outside=ADDRESS)
    )["spec"]
    address = f"{ADDRESS}:15012"
    assert spec["meshConfig"]["defaultConfig"]["discoveryAddress"] == address
    assert spec["values"]["global"]["caAddress"] == address
    (gateway,) = spec["components"]["ingressGateways"]
    (variable,) = gateway["k8s"]["env"]
    assert json.loads(variable["value"]) == {"discoveryAddress": address}


@pytest.mark.parametrize("slot", [0, 1, addresses.SLOTS - 1])
def test_its_link_is_beside_the_nodes(slot: int):
    plan = addresses.plan(slot)
    ends = {plan.istiod, plan.istiod_gateway}
    assert len(ends) == 2
    for end in ends:
        assert end in plan.whole
        assert not any(end in each for each in (plan.link, plan.services, plan.pods))


def test_it_runs_in_its_own_network_with_its_own_kubeconfig(tmp_path: Any):
    process = outside.Process(["discovery"], {"A": "b"}, {}, "user")
    layout = components.Layout(
        name="x",
        state=tmp_path,
        binaries=tmp_path / "bin",
        options=Options(external_istiod=True),
        plan=addresses.plan(0),
        istiod=process,
    )
    (found,) = [one for one in components.all_of(layout) if one.name == "istiod"]
    assert found.argv[:2] == ("nsenter", "--net=/run/netns/istiod")
    assert found.argv[-1] == f"--kubeconfig={layout.kubeconfig('istiod')}"
    assert found.environment == {"A": "b"}
    assert found.probe == "tcp://198.18.0.6:15017"
