"""The settings file of the workload, which its service watches and its commands read."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import secrets
from collections.abc import Generator

import msgspec
import ops

from integrator_contract import names, service
from istio_integrator.kube import cluster, errors
from istio_integrator.relations import endpoints
from istio_integrator.situation.situation import Situation

logger = logging.getLogger(__name__)

FILE = "/tmp/sidecar-lifecycle.settings.json"  # noqa: S108  the container's own, writable by all


@contextlib.contextmanager
def pebble(problem: str) -> Generator[None]:
    """Turn errors of Pebble into a LifecycleError with the problem and the reason."""
    try:
        yield
    except ops.pebble.ChangeError as error:
        # A headline, one line for the only task, and its log.
        reason = error.err.strip().rpartition("\n")[2].removeprefix("- ")
        raise errors.LifecycleError(f"{problem}: {reason}") from error
    except (ops.pebble.Error, TimeoutError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise errors.LifecycleError(f"{problem}: {reason}") from error


def read(container: ops.Container) -> service.Options | None:
    """Return the workload's present settings; None if unknown."""
    try:
        with container.pull(FILE, encoding=None) as file:
            return msgspec.json.decode(file.read(), type=service.Options)
    except (ops.pebble.Error, TimeoutError, ValueError, RecursionError) as error:
        logger.debug("The workload's settings are not known: %s", error)
        return None


def write(
    container: ops.Container, settings: service.Options, told: service.Options | None
) -> None:
    """Write the file unless `told` is equal; raise LifecycleError if Pebble fails."""
    if settings != told:
        with pebble("lifecycle gets no settings"):
            container.push(FILE, settings.document(), make_dirs=True, permissions=0o600)


def _gateway(situation: Situation) -> service.Gateway:
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


def make(situation: Situation, told: service.Options | None, *, joined: bool) -> service.Options:
    """Return the settings, from the options of the same names and the state of the cluster.

    Values that are unknown now keep those of `told`.
    """
    mesh = situation.mesh
    settings = service.Options(
        **situation.config.named_in(service.Options),
        model=situation.model,
        application=situation.application,
        unit=situation.unit,
        leader=situation.leader,
        joined=joined,
        mesh_namespace=mesh.installed_in if mesh else "",
        mesh_revision=mesh.revision if mesh and joined else "",
        proxy_revision=mesh.proxy_revision if mesh else "",
        proxy_version=mesh.version if mesh else "",
        membership=situation.config.membership,
        data_plane=situation.data_plane,
        status_port=mesh.status_port if mesh else names.DEFAULT_STATUS_PORT,
        gateway=_gateway(situation) if situation.exposes else None,
    )
    if told is None:
        return dataclasses.replace(settings, token=secrets.token_hex(16))
    if mesh is None or not (mesh.probed or mesh.has_settings):
        # The mesh's status port is unknown.
        settings = dataclasses.replace(settings, status_port=told.status_port)
    expected = told.expected if situation.leader else None
    return dataclasses.replace(settings, token=told.token, facts=told.facts, expected=expected)
