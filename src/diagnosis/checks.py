"""Each check with its facts: those of the mesh, the model and the charm itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import admission
import certificates
import cluster
import errors
import webhook

from . import (
    access,
    calls,
    checks_ingress,
    control_plane,
    egress,
    finding,
    policies,
    preparation,
    sidecars,
)
from .finding import Finding
from .look import DAEMON_SETS, ENTRIES, FILTERS, SIDECARS, VALIDATING, Look

Check = Callable[[Look], Iterable[Finding]]


def _istiod(look: Look) -> Iterable[Finding]:
    said = list(look.discovery.statuses())
    return control_plane.istiod(look.discovery.mesh, said, application=look.application)


def _versions(look: Look) -> Iterable[Finding]:
    kubelets = [node["status"]["nodeInfo"]["kubeletVersion"] for node in look.nodes]
    proxies = {cluster.reference(pod): control_plane.proxy_version(pod) for pod in look.pods}
    return control_plane.versions(look.scope.mesh, kubelets, proxies, application=look.application)


def _label(look: Look) -> Iterable[Finding]:
    marks = cluster.at(look.namespace, "metadata", "labels")
    return control_plane.label(
        look.membership,
        {key: marks[key] for key in ("istio-injection", "istio.io/rev") if key in marks},
        wanted=look.scope.config.mesh_membership,
        model=look.model,
    )


def _cni(look: Look) -> Iterable[Finding]:
    found = look.scope.mesh
    daemonsets: list[cluster.Object] = []
    if found is not None and found.cni:
        daemonsets = look.scope.cluster.list(DAEMON_SETS, labels=control_plane.CNI_NODE)
    return control_plane.cni(found, look.pods, daemonsets, application=look.application)


def _sidecars(look: Look) -> Iterable[Finding]:
    if look.scope.mesh is None:
        return ()
    return sidecars.uninjected(look.uninjected, application=look.application)


def _proxies(look: Look) -> Iterable[Finding]:
    if look.scope.mesh is None:
        return ()
    rows = look.workload.stale() if look.uninjected.summary.stale else ()
    return sidecars.stale(rows, application=look.application)


def _finished(look: Look) -> Iterable[Finding]:
    ended = [pod for pod in look.finishing if sidecars.payload_end(pod)]
    yield from sidecars.collected(look.finishing, now=look.now())
    yield from sidecars.lingering(
        ended,
        look.workload.explain(ended) if ended else (),
        now=look.now(),
        application=look.application,
        is_stopping=look.scope.config.proxy_shutdown,
    )


def _admission(look: Look) -> Iterable[Finding]:
    trials = admission.Admission(look.scope, "").trials()
    return preparation.backend(look.scope.config.admission, trials, model=look.model)


def _certificates(look: Look) -> Iterable[Finding]:
    rotate = f"juju run {look.application}/leader rotate-certificates"
    name = webhook.object_name(look.application, "admission-tls")
    secret = look.given.cluster.get(cluster.SECRET, name, look.model)
    shown: list[preparation.Certificate] = []
    if material := certificates.Material.read(cluster.at(secret, "data")):
        shown += [
            preparation.Certificate(name="webhook", pem=material.leaf, next=rotate),
            preparation.Certificate(name="its authority", pem=material.ca, next=rotate),
        ]
        yield from preparation.certificates(shown, now=look.now())
        configuration = webhook.configuration_name(look.given.manifests.owner)
        found = look.given.cluster.get(cluster.MUTATING_WEBHOOK, configuration)
        bundles = [
            cluster.at(hook, "clientConfig").get("caBundle", "")
            for hook in cluster.items(found or {}, "webhooks")
        ]
        wanted = certificates.encoded(material.bundle)
        yield from preparation.trust(bundles, wanted, application=look.application)
    # Last: the right to read a Secret in the gateway's namespace may be missing.
    yield from preparation.certificates(checks_ingress.certificates(look), now=look.now())
    if not shown and look.opened is None:
        yield finding.fine("none in use")


def _others(look: Look) -> Iterable[Finding]:
    found = look.scope.mesh
    if found is None:
        return ()
    target = look.target
    places = {look.model, found.root_namespace, *([target.namespace] if target else [])}
    return policies.others(
        [each for each in look.objects(FILTERS) if each["metadata"]["namespace"] in places],
        [
            each
            for each in look.policies
            if each["kind"] == "AuthorizationPolicy" and each["metadata"]["namespace"] in places
        ],
        look.pods,
        target,
        root=found.root_namespace,
    )


def _webhooks(look: Look) -> Iterable[Finding]:
    found = look.scope.mesh
    if found is None:
        return
    backends, unknown = look.backends(cluster.MUTATING_WEBHOOK), None
    try:
        backends = [*backends, *look.backends(VALIDATING)]
    except errors.ForbiddenError as error:
        # Only an optional role gives this right; the others are judged without.
        unknown = error
    yield from policies.cut_off(
        backends, look.policies, root=found.root_namespace, application=look.application
    )
    if unknown is not None:
        raise unknown


def _egress(look: Look) -> Iterable[Finding]:
    found = look.scope.mesh
    if found is None:
        return
    controller = look.scope.controller.ports
    yield from egress.controller(look.pods, controller, needed=found.cuts_off_controller)
    yield from egress.protocols(look.objects(cluster.SERVICE, look.model))
    yield from egress.registry(
        look.objects(SIDECARS),
        look.objects(ENTRIES),
        registry_only=found.registry_only,
        namespaces=(look.model, found.root_namespace),
    )


def _istiod_log(look: Look) -> Iterable[Finding]:
    found = look.scope.mesh
    if found is None or not found.namespace:
        return
    pods = look.pods_of(found.service, found.namespace)
    for pod in pods[:1]:
        yield from checks_ingress.log(look, pod, "discovery", "istiod")


def _rights(look: Look) -> Iterable[Finding]:
    if look.allowed(access.EVERYTHING.review()):
        yield finding.fine("the application is trusted with the whole cluster")
        return
    config = look.given.config
    wanted = access.needs(look.roles(), model=look.model, application=look.application)
    if not look.given.exposes:
        wanted = [need for need in wanted if not access.is_for_ingress(need)]
    optional = dict(access.OPTIONAL)
    for needed, end in (
        (config.replace_broken_pods, "-replace"),
        (config.gateway_workload, "-gateway"),
    ):
        if needed:
            del optional[end]
    answers = {need: look.allowed(need.review()) for need in wanted}
    yield from access.rights(answers, optional=optional, application=look.application)


def _lease(look: Look) -> Iterable[Finding]:
    return access.lease(look.lease(), now=look.now(), application=look.application)


def _clock(look: Look) -> Iterable[Finding]:
    server = look.server_time()
    return access.clock(local=look.now(), server=server, nodes=look.heartbeats())


def call(look: Look, source: str, target: str) -> Iterable[Finding]:
    """Have one application call another."""
    if not (source and target):
        run = f"juju run {look.application}/leader diagnose source=NAME target=NAME"
        yield finding.broken("a call needs both", run)
        return
    chosen = calls.choose(
        source,
        target,
        look.pods,
        look.objects(cluster.SERVICE, look.model),
        domain=look.scope.cluster_domain,
    )
    if isinstance(chosen, str):
        yield finding.broken(chosen, f"kubectl -n {look.model} get services")
        return
    yield from calls.call(chosen, calls.ask(look.reach, chosen.source, chosen.url))


CHECKS: Mapping[str, Check] = {
    "istiod": _istiod,
    "versions": _versions,
    "namespace": _label,
    "cni": _cni,
    "sidecars": _sidecars,
    "old proxies": _proxies,
    "finished pods": _finished,
    "admission": _admission,
    "certificates": _certificates,
    "gateway": checks_ingress.gateway,
    "gateways": checks_ingress.gateways,
    "routes": checks_ingress.backends,
    "authentication": checks_ingress.authentication,
    "authservice": checks_ingress.authservice,
    "others": _others,
    "webhooks": _webhooks,
    "profiles": checks_ingress.profiles,
    "egress": _egress,
    "istiod's log": _istiod_log,
    "gateway's log": checks_ingress.gateway_log,
    "rights": _rights,
    "lease": _lease,
    "clock": _clock,
}
"""By name, in the order in which a request meets what they look at."""
