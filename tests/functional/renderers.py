"""One place of today's routes for each of the two renderers, over HTTP and over HTTPS."""

import contextlib

import pytest

from tests import gateway_client
from tests.functional import gateway_api_world, ingress_world

HOST = gateway_client.HOST
SERVING = {
    "virtualservice": ingress_world.serving,
    "gateway-api": gateway_api_world.serving,
}
"""What serves the model's routes, by the option `routing`."""
SCHEMES = pytest.mark.parametrize("tls", ["", HOST], ids=["http", "https"])


@contextlib.contextmanager
def serving(renderer, client, kubeconfig, folder, *, newer, services):
    """Run what serves routes of today's charms with a renderer.

    Args:
        renderer: The value of the option `routing`.
        client: Of the API server.
        kubeconfig: Of the same.
        folder: For files.
        newer: The bags that ask for routes, each with its endpoint.
        services: Of the model, beside those of any world: name, port and where each leads.
    """
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(SERVING[renderer](client, kubeconfig, folder))
        for name, number, port in services:
            for obj in ingress_world.service(ingress_world.MODEL, name, port, number):
                found.api.create(obj)
        found.options |= {"hosts": HOST, "tls_secret": ingress_world.SECRET}
        found.requests, found.newer = [], list(newer)
        found.auths = [ingress_world.COMPLETE]
        if renderer == "gateway-api":
            stack.enter_context(found.there(gateway_api_world.certificate(folder)))
        found.reconcile()
        if renderer == "gateway-api":
            found.run(client, 80, 443)
        yield found
        found.part().remove()
