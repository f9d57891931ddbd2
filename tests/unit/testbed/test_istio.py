from typing import Any

import pytest

from testbed import addons, istio
from testbed.istio import Installation


def installation(**values: Any) -> Installation:
    return Installation(proxy_image="proxy:1", pilot_image="pilot:1", **values)


def pilot_environment(wanted: Installation) -> dict[str, str]:
    return istio.overlay(wanted)["spec"]["values"]["pilot"]["env"]


def test_overlay_never_sends_filters_that_the_proxy_lacks():
    for wanted in (installation(), installation(classic_sidecars=True, revision="a")):
        environment = pilot_environment(wanted)
        assert environment["PILOT_ENABLE_ALPN_FILTER"] == "false"
        assert environment["PILOT_ENABLE_METADATA_EXCHANGE"] == "false"
        assert istio.overlay(wanted)["spec"]["values"]["telemetry"] == {"enabled": False}


@pytest.mark.parametrize(("classic", "want"), [(True, "false"), (False, None)])
def test_overlay_turns_native_sidecars_off_only_when_asked(classic: bool, want: str | None):
    environment = pilot_environment(installation(classic_sidecars=classic))
    assert environment.get("ENABLE_NATIVE_SIDECARS") == want


def test_overlay_of_a_revision_names_it_and_tells_the_gateway():
    spec = istio.overlay(installation(revision="canary"))["spec"]
    assert spec["revision"] == "canary"
    (gateway,) = spec["components"]["ingressGateways"]
    (variable,) = gateway["k8s"]["env"]
    assert "istiod-canary.istio-system.svc" in variable["value"]
    assert installation(revision="canary").deployment == "istiod-canary"


def test_overlay_without_the_cni_plugin_has_none():
    spec = istio.overlay(installation())["spec"]
    assert "cni" not in spec["components"]
    assert "cni" not in istio.images(cni=False)


def test_overlay_of_the_default_revision_names_none():
    spec = istio.overlay(installation())["spec"]
    assert "revision" not in spec
    assert "env" not in spec["components"]["ingressGateways"][0]["k8s"]


def test_split_keeps_every_object_once():
    kinds = ("CustomResourceDefinition", "Deployment", "DaemonSet", "Service", "ConfigMap")
    objects = [{"kind": kind} for kind in kinds]
    definitions, settings, workloads = istio.split(objects)
    assert definitions == [objects[0]]
    assert workloads == objects[1:3]
    assert settings == objects[3:]


def test_moved_operator_has_its_own_namespace_everywhere():
    webhook = {"clientConfig": {"service": {"namespace": "kubeflow", "name": "x"}}}
    document = {"kind": "ValidatingWebhookConfiguration", "webhooks": [webhook]}
    moved = addons.moved(document)
    assert moved["webhooks"][0]["clientConfig"]["service"] == {
        "namespace": "training-operator",
        "name": "x",
    }
    assert document["webhooks"][0]["clientConfig"]["service"]["namespace"] == "kubeflow"


def test_moved_namespace_is_renamed_and_names_of_others_stay():
    namespace = addons.moved({"kind": "Namespace", "metadata": {"name": "kubeflow"}})
    assert namespace["metadata"]["name"] == "training-operator"
    role = {"kind": "ClusterRole", "metadata": {"name": "kubeflow"}}
    assert addons.moved(role) == role
