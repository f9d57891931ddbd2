"""Who could no longer reach whom, for options that are only asked about; nothing is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from istio_integrator import findings
from istio_integrator.config import config
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, errors, snapshot
from istio_integrator.security import (
    mutual_tls,
    mutual_tls_plan,
    policies_judged,
    policies_upkeep,
    preview_authorization,
    preview_mutual_tls,
)
from istio_integrator.situation import situation

OPTIONS = ("authorization", "mtls", "mtls-exceptions")
"""The options that may be asked about."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """What a preview is about."""

    context: situation.Situation
    options: config.Config
    """Those that are asked about."""
    mutual_tls: mutual_tls.MutualTls
    authorization: policies_upkeep.Authorization
    seen: snapshot.Snapshot
    """What is in the cluster."""


def preview(subject: Subject, *options: str) -> list[Finding]:
    """Ask about each option; what can't be known of one is a line, too."""
    said: list[Finding] = []
    for option in options or PREVIEWS:
        found: list[Finding] = []
        try:
            for each in PREVIEWS[option](subject):
                found.append(each)  # noqa: PERF402 - what was found before an error counts
        except errors.CharmError as error:
            found.append(findings.doubtful(f"not known: {error}", "mend it, ask again"))
        said += (dataclasses.replace(each, check=option) for each in found)
    return said


def asked_options(own: config.Config, given: Mapping[str, Any]) -> config.Config:
    """Return the application's options with those that are asked about in their place.

    Raises:
        ConfigError: One of them does not follow its grammar.
    """
    chosen = {name: given[name] for name in OPTIONS if name in given}
    asked = config.Config.load(chosen)
    fields = [name.replace("-", "_") for name in chosen]
    return own.model_copy(update={field: getattr(asked, field) for field in fields})


def of_mutual_tls(subject: Subject) -> Iterable[Finding]:
    """Say who is cut off by mutual TLS, and what stays open."""
    application = subject.context.application
    mesh = subject.context.mesh
    if subject.options.mtls != "strict":
        yield findings.fine("mtls=inherit: this application writes no PeerAuthentication")
    elif mesh is None:
        yield findings.doubtful("there is no Istio to join", "juju status")
    else:
        situation = subject.mutual_tls.situation(mesh, subject.options)
        plan = mutual_tls_plan.plan(situation)
        yield from preview_mutual_tls.judge(situation, plan)
        # Once it is on, whoever was cut off has been noticed.
        if not situation.is_on:
            if subject.context.data_plane != "ambient":
                routed = subject.authorization.routed
                yield from preview_mutual_tls.forwarded(situation, plan, routed)
            yield preview_mutual_tls.unknown(application)


def of_authorization(subject: Subject) -> Iterable[Finding]:
    """Say who could no longer call whom by policies about callers."""
    context = dataclasses.replace(subject.context, config=subject.options)
    if subject.options.authorization == "off":
        yield findings.fine("authorization=off: this application writes no AuthorizationPolicy")
    elif context.mesh is None:
        yield findings.doubtful("there is no Istio to join", "juju status")
    elif reason := policies_upkeep.obstacle(context):
        yield findings.broken(reason.seen, reason.command)
    else:
        asked = subject.authorization.asked(subject.options)
        api, places = context.cluster, {context.model, context.mesh.root_namespace}
        found = [
            each
            for place in sorted(places)
            for each in api.list(cluster.AUTHORIZATION_POLICY, place)
        ]
        yield from preview_authorization.judge(
            preview_authorization.Scene(
                asked=asked,
                decision=policies_upkeep.decided(context, asked)[0],
                pods=subject.seen.objects(cluster.POD, context.model),
                ours=[each for each in found if context.manifests.is_ours(each)],
                others=[each for each in found if not context.manifests.is_ours(each)],
                mesh=context.mesh,
                owner=context.manifests.owner,
                application=context.application,
            )
        )


PREVIEWS: Mapping[str, Callable[[Subject], Iterable[Finding]]] = {
    policies_judged.OPTION: of_authorization,
    preview_mutual_tls.OPTION: of_mutual_tls,
}
"""What answers, by the option that it is about."""
