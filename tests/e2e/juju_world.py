"""Two models on one cluster, to see what the charm adds: a member with it, and one without.

In the bare model somebody labelled the namespace by hand, after Juju had set the model up.
"""

import asyncio
import dataclasses
import json

import yaml

from testbed import istio, mesh
from testbed.kit import juju, observer, workloads
from tests.e2e import pods

MEMBER = "member"
BARE = "bare"
WEB = "web"
"""In both, a charm that knows nothing of meshes."""

PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"
MODELOPERATOR = "operator.juju.is/name=modeloperator"


async def set_up(node, api):
    """Add both models, if this cluster has not got them yet."""
    if await api.find("Namespace", BARE):
        return
    member, bare = node.juju(MEMBER), node.juju(BARE)
    await member.add_model()
    await member.deploy(node.charms.integrator, juju.APPLICATION)
    await bare.add_model()
    await bare.deploy(node.charms.web, WEB)
    await observer.eventually(lambda: webhook(api, BARE), 60, "Juju's webhook of the bare model")
    await label(api, BARE, "enabled")
    await member.wait_until_in_mesh(240)
    # Only now: a pod that is there already would not be replaced within its first minute.
    await member.deploy(node.charms.web, WEB)
    await member.wait_for("active", 120, WEB)
    await bare.wait_for("active", 120, WEB)


async def label(api, namespace, injection):
    """Set or remove the label by which Istio's default revision injects."""
    labels = {"metadata": {"labels": {"istio-injection": injection}}}
    await api.patch("Namespace", namespace, "", labels)


async def webhook(api, model):
    """Find Juju's webhook configuration of a model."""
    return await api.find("MutatingWebhookConfiguration", f"juju-model-admission-{model}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mesh:
    """How an Istio treats the traffic of pods."""

    cni: bool = False
    native: bool = False
    """Whether sidecars are native unless a pod says otherwise."""
    dns: bool = False
    """Whether proxies answer look-ups of names."""
    registry_only: bool = False
    """Whether proxies let out only what Istio knows, as the mesh has it."""
    sidecars: bool = False
    """Whether they do because of a Sidecar in each model."""


async def set_mesh(testbed, api, wanted):
    """Make the cluster's Istio so, and wait until its injector shows it."""
    installation = mesh.installation(classic_sidecars=not wanted.native, cni=wanted.cni)
    now = await shown(api)
    if (now.cni, now.native) != (wanted.cni, wanted.native):
        await asyncio.to_thread(mesh.install, testbed, installation)
    settings = json.loads(istio.render(installation).settings.read_text())["items"]
    (text,) = [
        one["data"]["mesh"]
        for one in settings
        if (one["kind"], one["metadata"]["name"]) == ("ConfigMap", "istio")
    ]
    config = yaml.safe_load(text)
    if wanted.registry_only:
        config["outboundTrafficPolicy"] = {"mode": "REGISTRY_ONLY"}
    if wanted.dns:
        config["defaultConfig"].setdefault("proxyMetadata", {})["ISTIO_META_DNS_CAPTURE"] = "true"
    data = {"data": {"mesh": yaml.safe_dump(config)}}
    await api.patch("ConfigMap", "istio", istio.SYSTEM, data)
    for model in (MEMBER, BARE):
        if wanted.sidecars:
            policy = {"mode": "REGISTRY_ONLY"}
            fields = {"egress": [{"hosts": ["*/*"]}], "outboundTrafficPolicy": policy}
            await api.apply(workloads.istio("Sidecar", "default", model, **fields))
        else:
            await api.delete("Sidecar", "default", model)

    async def is_so():
        return await shown(api) == dataclasses.replace(wanted, registry_only=False, sidecars=False)

    await observer.eventually(is_so, 60, f"{wanted} at work")


async def tried(api, namespace):
    """Have a pod with a sidecar created that is not kept, and return it."""
    return await pods.tried(api, namespace, labels={"sidecar.istio.io/inject": "true"})


async def shown(api):
    """Read off a pod what the injector does; the outbound policy is not shown."""
    spec = (await tried(api, "default"))["spec"]
    inits = {one["name"]: one for one in spec.get("initContainers", [])}
    both = {**inits, **{one["name"]: one for one in spec["containers"]}}
    variables = {one["name"]: one.get("value") for one in both["istio-proxy"]["env"]}
    return Mesh(
        cni="istio-validation" in inits,
        native="istio-proxy" in inits,
        dns=variables.get("ISTIO_META_DNS_CAPTURE") == "true",
    )


async def look_again(node):
    """Have the integrator see a mesh configuration that nobody told it about."""
    # Every action begins by bringing everything up to date.
    await node.juju(MEMBER).do("run", f"{juju.APPLICATION}/0", "list-uninjected")
