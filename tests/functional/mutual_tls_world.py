"""The part of the charm that asks callers for certificates, and what it has written."""

from istio_integrator import parts
from istio_integrator.config import config
from istio_integrator.istio import installation
from istio_integrator.kube import cluster as charm_cluster
from istio_integrator.kube import manifests, snapshot
from istio_integrator.security import mutual_tls
from tests import shown

APP = "istio-integrator"


def part(api, namespace, **options):
    """The part, with mtls=strict unless the options say otherwise."""
    given = {"mtls": "strict", **{key.replace("_", "-"): one for key, one in options.items()}}
    context = parts.Context(
        cluster=api,
        manifests=manifests.Manifests(api, model=namespace, application=APP),
        config=config.Config.load(given),
        mesh=installation.Mesh(namespace="istio-system", revision="default", is_default=True),
        model=namespace,
        application=APP,
        unit=f"{APP}/0",
        leader=True,
    )
    return mutual_tls.MutualTls(context, snapshot.Snapshot(api), lambda: 0)


def said(made):
    return [f"{each.name}: {each.message}" for each in shown.statuses(made.reconcile())]


def policies(api, namespace):
    found = api.list(charm_cluster.PEER_AUTHENTICATION, namespace)
    return {each["metadata"]["name"]: each["spec"] for each in found}
