"""Each check with its facts: those of the way in."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import ops

import cluster
import errors
import gateway as gateways_room
import manifests
import streams

from . import calls, entry, finding, guard, logs, policies, preparation
from .finding import Finding
from .look import GATEWAYS, ROUTES, Look


def gateway(look: Look) -> Iterable[Finding]:
    """Look at the gateway's address and ports."""
    if not look.given.exposes:
        yield finding.fine("not in use: nothing is related to ingress")
        return
    if look.scope.mesh is None:
        return
    target = look.resolved
    if not isinstance(target, gateways_room.Target):
        look_at = "kubectl get services --all-namespaces -l istio=ingressgateway"
        yield from finding.of_statuses([ops.BlockedStatus(target.message)], look_at)
        return
    service = look.gateway_service
    yield from entry.address(service, target)
    if service is not None and look.opened is not None:
        for pod in look.gateway_pods[:1]:
            found = look.scope.mesh
            yield from entry.listeners(
                look.opened,
                service,
                pod,
                look.listening(pod),
                istiod=f"-n {found.namespace} deploy/{found.service}",
            )


def gateways(look: Look) -> Iterable[Finding]:
    """Look at the Gateways that routes name."""
    routes = entry.relevant(
        look.objects(ROUTES), namespaces=(look.model, *look.profiles), model=look.model
    )
    return entry.missing_gateways(routes, look.objects(GATEWAYS)) if routes else ()


def backends(look: Look) -> Iterable[Finding]:
    """Look at what routes lead to."""
    routes = entry.relevant(
        look.objects(ROUTES), namespaces=(look.model, *look.profiles), model=look.model
    )
    if not routes:
        return ()
    return entry.backends(
        routes,
        look.objects(cluster.SERVICE),
        look.objects(cluster.ENDPOINT_SLICE),
        domain=look.scope.cluster_domain,
        owner=look.scope.manifests.owner,
    )


def authentication(look: Look) -> Iterable[Finding]:
    """Look at whom the gateway asks."""
    target = look.target
    if target is None:
        return
    owner = look.scope.manifests.owner
    ours = [
        route["metadata"]["name"]
        for route in look.objects(ROUTES, look.model)
        if cluster.at(route, "metadata", "labels").get(manifests.OWNER) == owner
    ]
    for pod in look.gateway_pods[:1]:
        name = pod["metadata"]["name"]
        yield from guard.in_force(
            look.virtual_hosts(pod),
            look.authentication,
            ours=ours,
            domains=look.scope.config.hosts,
            application=look.application,
            look=f"istioctl -n {target.namespace} proxy-config routes {name} -o yaml",
        )


def authservice(look: Look) -> Iterable[Finding]:
    """Look at whoever is asked."""
    asked = look.authentication.guard.service if look.authentication.guard else None
    if asked is None or look.target is None:
        return
    service, namespace, *_ = asked.host.split(".")
    pods = look.pods_of(service, namespace)
    name = f"{asked.host}:{asked.port}"
    if not pods:
        show = f"kubectl -n {namespace} get service,endpointslices"
        yield finding.broken(f"{name}: there is no pod behind it", show)
        return
    pod = pods[0]["metadata"]
    show = f"kubectl -n {pod['namespace']} logs {pod['name']} --all-containers --since=5m"
    answer: streams.Response | str
    try:
        host = next(iter(look.scope.config.hosts), "localhost")
        port = entry.target_port(look.service(service, namespace) or {}, pods[0], asked.port)
        answer = look.reach.get(pod["namespace"], pod["name"], port, "/", host=host)
    except errors.ForbiddenError:
        raise
    except errors.CharmError as error:
        answer = str(error)
    location = "" if isinstance(answer, str) else answer.headers.get("location", "")
    yield from guard.authservice(name, answer, _issuers(look, pods[0], location), look=show)


def _issuers(look: Look, pod: cluster.Object, location: str) -> Iterable[guard.Issuer]:
    own_view = True
    for url in guard.issuers(location):
        try:
            answer = calls.ask(look.reach, pod, url) if own_view else look.fetch(url)
        except errors.ForbiddenError:
            own_view, answer = False, look.fetch(url)
        found = guard.Issuer(url=url, answer=answer, is_own_view=own_view)
        yield found
        if found.is_there:
            return


def profiles(look: Look) -> Iterable[Finding]:
    """Look at the policies of profile namespaces."""
    if not look.profiles or look.target is None:
        return
    for pod in look.gateway_pods[:1]:
        account = cluster.at(pod, "spec").get("serviceAccountName", "default")
        theirs = [each for each in look.policies if each["metadata"]["namespace"] in look.profiles]
        yield from policies.profiles(
            [each for each in theirs if each["kind"] == "AuthorizationPolicy"],
            namespace=look.target.namespace,
            account=account,
        )


def gateway_log(look: Look) -> Iterable[Finding]:
    """Look at the gateway's log."""
    for pod in look.gateway_pods[:1]:
        yield from log(look, pod, "istio-proxy", "the gateway")


def log(look: Look, pod: cluster.Object, container: str, name: str) -> Iterable[Finding]:
    """Look at the log of a container."""
    metadata = pod["metadata"]
    lines = look.log(metadata["namespace"], metadata["name"], container, logs.MINUTES * 60)
    show = f"kubectl -n {metadata['namespace']} logs {metadata['name']} -c {container} "
    return logs.log(name, lines, look=f"{show}--since={logs.MINUTES}m")


def certificates(look: Look) -> Iterable[preparation.Certificate]:
    """Read what the gateway shows for our hosts."""
    target = look.target
    if target is None or look.opened is None:
        return
    for server in cluster.items(cluster.at(look.opened, "spec"), "servers"):
        if name := cluster.at(server, "tls").get("credentialName"):
            secret = look.scope.cluster.get(cluster.SECRET, name, target.namespace)
            pem = cluster.at(secret, "data").get("tls.crt", "")
            yield preparation.Certificate(
                name=f"gateway ({name})",
                pem=base64.b64decode(pem).decode(errors="replace"),
                next=f"kubectl -n {target.namespace} describe secret {name}",
            )
