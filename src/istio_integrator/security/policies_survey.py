"""What policies are decided by: relations, the gateway, and what there is in the model."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator

from istio_integrator.ingress import gateway
from istio_integrator.ingress.ingress import Ingress
from istio_integrator.istio.authorization_policy import principal
from istio_integrator.kube import cluster, errors, snapshot
from istio_integrator.relations import endpoints, kubeflow, service_mesh
from istio_integrator.security import called, policies, policies_workloads
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)


def asked(
    context: situation.Situation,
    related: endpoints.Relations,
    seen: snapshot.Snapshot,
    ingress: Ingress,
) -> policies.Asked:
    """Read what policies are decided by."""
    model = context.model
    stated = context.cluster.list(cluster.AUTHORIZATION_POLICY, model)
    found = policies.Asked(
        mode=context.config.authorization,
        model=policies_workloads.Model(
            name=model,
            services=called.services(seen.objects(cluster.SERVICE, model)),
            pods=[
                *pods(seen.objects(cluster.POD, model)),
                *_templates(called.workloads(seen, model)),
            ],
        ),
        consumers=service_mesh.received(related, model=model),
        controllers=[each.application for each in related.bags(kubeflow.GATEWAY_INFO)],
        calls=called.calls(_calling(seen), model=model),
        others=[each for each in stated if not context.manifests.is_ours(each)],
        standing=[each for each in stated if context.manifests.is_ours(each)],
        is_ambient=context.data_plane == "ambient",
    )
    return _with_gateway(found, context, ingress) if context.exposes else found


def _with_gateway(
    found: policies.Asked,
    context: situation.Situation,
    ingress: Ingress,
) -> policies.Asked:
    """Add what the gateway leads to, and who it is."""
    choice = ingress.target
    service = ingress.decision.service
    served = [choice] if isinstance(choice, gateway.Target) else []
    return dataclasses.replace(
        found,
        gateways=tuple(principal(one.namespace, one.account) for one in served if one.account),
        gateway_pods=tuple(called.selector(one.selector) for one in served if one.is_own),
        # A gateway that is still to come leads to the same Services.
        routed=routed(context, ingress),
        guards=frozenset(_of_model([(service.host, service.port)] if service else [], context)),
    )


def routed(context: situation.Situation, ingress: Ingress) -> frozenset[tuple[str, int]]:
    """List the Services of the model, each with its port, that routes of the gateway lead to."""
    return frozenset(_of_model({route.backend for route in ingress.plan.routes}, context))


def _of_model(
    hosts: Iterable[tuple[str, int]], context: situation.Situation
) -> Iterator[tuple[str, int]]:
    """Name the Services of the model that hosts are."""
    ending = f".{context.model}.svc.{context.cluster_domain}"
    for host, port in hosts:
        if host.endswith(ending):
            yield host.removesuffix(ending), port


def pods(objects: Iterable[cluster.Object]) -> list[policies_workloads.Pod]:
    """Read what matters of pods."""
    return called.read_each(objects, lambda obj: [policies_workloads.Pod.of(obj)])


def _templates(workloads: Iterable[cluster.Object]) -> list[policies_workloads.Pod]:
    def of(workload: cluster.Object) -> Iterable[policies_workloads.Pod]:
        template = cluster.at(workload, "spec", "template")
        yield policies_workloads.Pod.of(template, is_template=True)

    return called.read_each(workloads, of)


def _calling(seen: snapshot.Snapshot) -> Iterator[cluster.Object]:
    """List what has API servers call Services, as far as it may be looked at."""
    for kind in called.CALLING:
        try:
            yield from seen.objects(kind)
        except errors.ForbiddenError as error:
            logger.info("Policies do not let %s be called: %s", kind.plural, error)
