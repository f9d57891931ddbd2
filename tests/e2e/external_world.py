"""What happens to an istiod outside of the cluster: it is killed, and its certificates change."""

import asyncio
import contextlib
import sys

from testbed import istio, outside
from testbed.kit import istiod, observer

AUTHORITY = "istio-ca-secret"
"""Where istiod keeps the key of its own authority."""
CONFIGURATION = "istio-sidecar-injector"
RIGHTS = f"istiod-clusterrole-{istio.SYSTEM}"
_HOOKS = "mutatingwebhookconfigurations"


async def killed(testbed):
    """Kill istiod, and wait until it is back."""
    count = testbed.components()["istiod"]["restarts"]
    await asyncio.to_thread(testbed.restart, "istiod")

    async def is_back():
        found = testbed.components()["istiod"]
        return found["restarts"] > count and found["ready"]

    await observer.eventually(is_back, 60, "istiod killed and back")


async def certificate(testbed):
    """What the injector shows to the API server; only the node has a way to it."""
    address = (str(testbed.plan.istiod), outside.INJECTOR_PORT)
    script = f"import ssl; print(ssl.get_server_certificate({address}, timeout=10))"
    command = [sys.executable, "-c", script]
    shown = await asyncio.to_thread(testbed.exec, command, capture_output=True, check=True)
    return shown.stdout


async def authority(api):
    """The authority by which the API server knows the injector."""
    found = await api.get("MutatingWebhookConfiguration", CONFIGURATION)
    return found["webhooks"][0]["clientConfig"]["caBundle"]


async def write_authority(api):
    """Have the API server believe istiod's authority, as whoever installed its profile does."""
    secret = await api.get("Secret", AUTHORITY, istio.SYSTEM)
    found = await api.get("MutatingWebhookConfiguration", CONFIGURATION)
    for hook in found["webhooks"]:
        hook["clientConfig"]["caBundle"] = secret["data"]["ca-cert.pem"]
    body = {"webhooks": found["webhooks"]}
    await api.patch("MutatingWebhookConfiguration", CONFIGURATION, "", body)


@contextlib.asynccontextmanager
async def another_authority(api, testbed):
    """Have istiod make itself a new authority, and give it the old one back."""
    kind = {"apiVersion": "v1", "kind": "Secret"}
    secret = {**kind, **await api.get("Secret", AUTHORITY, istio.SYSTEM)}
    await api.delete("Secret", AUTHORITY, istio.SYSTEM)
    await killed(testbed)
    try:
        yield
    finally:
        await api.delete("Secret", AUTHORITY, istio.SYSTEM)
        await api.create(istiod.creatable(secret))
        await killed(testbed)
        # Whether or not istiod may write it itself.
        await write_authority(api)


@contextlib.asynccontextmanager
async def unwritten(api):
    """Keep istiod from writing its authority into webhook configurations, as many clusters do."""
    rules = (await api.get("ClusterRole", RIGHTS))["rules"]
    fewer = [
        {**rule, "verbs": ["get", "list", "watch"]} if _HOOKS in rule["resources"] else rule
        for rule in rules
    ]
    await api.patch("ClusterRole", RIGHTS, "", {"rules": fewer})
    try:
        yield
    finally:
        await api.patch("ClusterRole", RIGHTS, "", {"rules": rules})
