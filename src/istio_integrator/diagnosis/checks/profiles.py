"""Do the policies of profile namespaces let the gateway in?"""

from __future__ import annotations

import re
from collections.abc import Iterable

from istio_integrator import findings
from istio_integrator.diagnosis import registry, report
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, fences

_USER_HEADER = "request.headers["
_PRINCIPAL = re.compile(r"(?:.*/)?ns/([^/]+)/sa/([^/]+)")


@registry.check("profiles", place=180, feeds_status=True, symptoms=("rbac-access-denied",))
def profiles(facts: Facts) -> Iterable[Finding]:
    """Check whether the policies of profile namespaces let the real gateway in."""
    if not facts.profiles or facts.gateway is None or not facts.gateway.account:
        return ()
    found = facts.objects(cluster.AUTHORIZATION_POLICY)
    return judge(
        [each for each in found if each["metadata"]["namespace"] in facts.profiles],
        namespace=facts.gateway.namespace,
        account=facts.gateway.account,
    )


def judge(
    policies: Iterable[cluster.Object], *, namespace: str, account: str
) -> Iterable[Finding]:
    """Judge whether the policies of profile namespaces let the real gateway in.

    kubeflow-profiles names the gateway's ServiceAccount in the rules that are about the header
    with the user's name; with another one every page there answers 403 (kubeflow issue 7374).
    """
    wrong: dict[str, list[str]] = {}
    for policy in policies:
        with fences.around(cluster.reference(policy)):
            for named in _gateways_named(cluster.at(policy, "spec")):
                # Wildcards are not judged.
                known = [_PRINCIPAL.fullmatch(each) for each in named if "*" not in each]
                admitted = [each.groups() for each in known if each]
                if len(known) == len(named) and (namespace, account) not in admitted:
                    place = policy["metadata"]["namespace"]
                    wrong.setdefault(report.listed(named), []).append(place)
    for named, places in wrong.items():
        yield findings.broken(
            f"the policies of {report.listed(places)} let {named} in, and the gateway is "
            f"{namespace}/{account}: every page there answers 403",
            f"juju config kubeflow-profiles istio-gateway-namespace={namespace} "
            f"istio-gateway-service-account={account}",
        )
    if not wrong:
        yield findings.fine("the policies of profile namespaces let the gateway in")


def _gateways_named(spec: cluster.Object) -> Iterable[list[str]]:
    """List the principals of each rule that is about the header with the user's name."""
    if spec.get("action", "ALLOW") != "ALLOW":
        return
    for rule in cluster.parts(spec, "rules"):
        keys = [str(each.get("key", "")) for each in cluster.parts(rule, "when")]
        named = [
            str(principal)
            for entry in cluster.parts(rule, "from")
            for principal in cluster.items(cluster.at(entry, "source"), "principals")
        ]
        if named and any(key.startswith(_USER_HEADER) for key in keys):
            yield named
