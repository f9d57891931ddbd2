"""The settings of the workload, from the options and the facts of a hook."""

from __future__ import annotations

import dataclasses
import secrets

from integrator_contract import names, service
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster
from istio_integrator.relations import endpoints
from istio_integrator.situation.situation import Situation


def _describe_gateway(situation: Situation) -> service.Gateway:
    namespace, _, name = situation.config.gateway_service.partition("/")
    # Of the relation only the charm's own Secret is in the cluster.
    own = situation.manifests.secrets["gateway-tls"]
    given = situation.config.tls_secret
    is_secure = bool(given) or situation.related.is_related(endpoints.CERTIFICATES)
    shown = tuple(filter(None, (given, own))) if is_secure else ()
    if not name:
        return service.Gateway(secrets=shown)
    found = situation.cluster.get_if_allowed(cluster.SERVICE, name, namespace)
    selector = cluster.at(found, "spec", "selector")
    return service.Gateway(namespace=namespace, name=name, selector=selector, secrets=shown)


def make_settings(facts: Facts, told: service.Options | None, *, joined: bool) -> service.Options:
    """Return the settings, from the options and the facts.

    Values that are unknown now keep those of `told`.
    """
    situation, mesh, options = facts.situation, facts.mesh, facts.situation.config
    settings = service.Options(
        included_pods=options.included_pods,
        excluded_pods=options.excluded_pods,
        served_namespaces=options.served_namespaces,
        restart_pods=options.restart_pods,
        restart_max_unavailable=options.restart_max_unavailable,
        wait_for_containers=options.wait_for_containers,
        ignore_containers=options.ignore_containers,
        proxy_shutdown=options.proxy_shutdown,
        delete_broken_pods=options.delete_broken_pods,
        log_level=options.log_level,
        model=situation.model,
        application=situation.application,
        unit=situation.unit,
        leader=situation.leader,
        joined=joined,
        mesh_namespace=mesh.injector.installed_in if mesh else "",
        mesh_revision=mesh.injector.revision if mesh and joined else "",
        proxy_revision=mesh.proxy.proxy_revision if mesh else "",
        proxy_version=mesh.proxy.version if mesh else "",
        membership=options.membership,
        data_plane=facts.data_plane,
        status_port=mesh.status_port if mesh else names.DEFAULT_STATUS_PORT,
        gateway=_describe_gateway(situation) if situation.is_exposed else None,
    )
    if told is None:
        return dataclasses.replace(settings, token=secrets.token_hex(16))
    if mesh is None or not (mesh.proxy.probed or mesh.settings.has_settings):
        # The mesh's status port is unknown.
        settings = dataclasses.replace(settings, status_port=told.status_port)
    return dataclasses.replace(settings, token=told.token)
