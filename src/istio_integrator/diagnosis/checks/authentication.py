"""Does the gateway ask an authorization service about requests to the model?"""

from __future__ import annotations

from collections.abc import Iterable

from integrator_contract import names
from integrator_contract.seen import Seen, Unseen
from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster


@registry.check("authentication", place=130, symptoms=("403-at-the-gateway",))
def authentication(facts: Facts) -> Iterable[Finding]:
    """Check whether the authorization service has pods, and the gateway's Envoy asks it."""
    if facts.gateway is None:
        return
    service, is_closed = facts.authentication.service, facts.authentication.is_closed
    if is_closed:
        return  # Nothing is served, as the status says.
    if service is None:
        yield findings.doubtful(
            "everybody is let in: require-authentication=false, and nothing on ingress-auth or "
            "forward-auth",
            f"juju integrate {facts.application}:ingress-auth oidc-gatekeeper",
        )
        return
    name, namespace, *_ = service.host.split(".")
    slices = facts.cluster.list(cluster.ENDPOINT_SLICE, namespace, {names.SERVICE_NAME: name})
    if not any(cluster.parts(each, "endpoints") for each in slices):
        show = f"kubectl -n {namespace} get service,endpointslices"
        yield findings.broken(f"Service {namespace}/{name} has no pods", show)
    where = f"{service.host}:{service.port}"
    yield from judge(facts.workload.seen(), where, application=facts.application)


def judge(seen: Seen, service: str, *, application: str) -> Iterable[Finding]:
    """Judge what the workload saw at the gateway. The status names what Envoy lacks."""
    if seen.unseen is Unseen.FORBIDDEN:
        text = f"not known: missing permission to {seen.detail}"
        yield findings.doubtful(text, report.grant(application))
    elif seen.unseen in (Unseen.UNREACHABLE, Unseen.TOO_LARGE):
        text = f"not known: the gateway's Envoy was not seen: {seen.detail}"
        yield findings.doubtful(text, report.own_log(application))
    elif seen.guarded and not seen.missing:
        ports = ", ".join(map(str, seen.guarded))
        yield findings.fine(f"the gateway asks {service} about requests to port {ports}")
