"""The Gateway API beside a real istiod, and what a node would do for one of its Gateways."""

import contextlib
import functools

from integrator_contract import names
from testbed import programs
from tests import waiting
from tests.functional import ingress_world, loopback_istiod
from tests.functional import istiod_world as world
from tests.kubernetes_objects import made

NAME = "kubeflow-gateway"


@functools.cache
def install_definitions(client):
    """Have the API server serve the pinned Gateway API, its standard channel, from now on."""
    folder = programs.ensure(["gateway-api"])["gateway-api"] / "share" / "definitions"
    text = "\n---\n".join(path.read_text() for path in sorted(folder.glob("*.yaml")))
    world.apply_definitions(client, text)


@contextlib.contextmanager
def istiod(folder, kubeconfig):
    """istiod that serves the Gateway API and deploys gateways; its plain xDS port comes back."""
    loopback_istiod.write_files(folder, loopback_istiod.render())
    own = {
        "PILOT_ENABLE_GATEWAY_API": "true",
        # What a gateway's pod is made of is the injector's template.
        "INJECT_ENABLED": "true",
        "INJECTION_WEBHOOK_CONFIG_NAME": "",
    }
    with world.istiod(folder, kubeconfig, environment=own) as xds:
        yield xds


def run(place, client, *needed):
    """Do for a managed Gateway what a node and a load balancer do; its proxy's token comes back.

    The Service has to have the needed ports by now.
    """
    name, namespace = f"{NAME}-istio", ingress_world.MODEL
    ports = {80: place.port, 443: place.https_port}

    def opened():
        service = place.api.get("Service", name, namespace)
        found = service["spec"]["ports"] if service else []
        return found if {*needed} <= {one["port"] for one in found} else None

    found = waiting.eventually(opened)
    assert found, f"istiod made no Service {namespace}/{name} with {needed}"
    # istiod says nothing about the target ports, which a test without rights can't listen at.
    listed = [
        {"name": port, "port": number, "targetPort": ports.get(number, number)}
        for port, number in ((one["name"], one["port"]) for one in found)
    ]
    service = place.api.apply(made("v1", "Service", name, namespace, {"ports": listed}))
    place.api.patch_status(service, {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}})
    open_ports = [
        {"name": one["name"], "port": one["targetPort"], "protocol": "TCP"} for one in listed
    ]
    place.api.apply(ingress_world.endpoints(namespace, name, *open_ports))
    return world.token_of(client, name, namespace)


@contextlib.contextmanager
def serving(client, kubeconfig, folder):
    """Run what istiod deploys for our Gateway, which the model's routes are on."""
    install_definitions(client)
    with ingress_world.furnished(client, kubeconfig, folder, (), (), istiod=istiod) as found:
        assert waiting.eventually(lambda: found.api.get("GatewayClass", "istio"))
        found.options["routing"] = "gateway-api"
        found.hook()
        token = run(found, client, 80)
        about = {"namespace": ingress_world.MODEL, "labels": {names.GATEWAY_NAME: NAME}}
        with world.gateway(folder, found.xds, found.admin, token, **about):
            yield found
