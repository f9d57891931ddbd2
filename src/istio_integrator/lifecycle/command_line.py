"""The command lines of the workload, as the options and the mesh make them; pure."""

from __future__ import annotations

import itertools
import shlex

from integrator_contract import names, schema, service
from istio_integrator import parts
from istio_integrator.lifecycle import layer

PROGRAM = "/usr/bin/sidecar-lifecycle"
LEVEL_FILE = "/tmp/sidecar-lifecycle.log-level"  # noqa: S108  the container's own, writable by all
"""The workload reads it again and again: another level is no reason to restart it."""
FACTS_FILE = "/tmp/sidecar-lifecycle.charm-facts.json"  # noqa: S108  as above

_LONGEST_PORT = 5

CONTRACT = ("--contract", schema.SCHEMA)
VERSION = (PROGRAM, "--version")


def run(context: parts.Context, *, joined: bool) -> list[str]:
    """Write the command line of the service.

    Args:
        context: With the options, and the mesh that was found.
        joined: Whether the model's namespace is a member of it, or the selected ones of its pods.
    """
    options = _options(context, joined=joined)
    return [PROGRAM, "run", *CONTRACT, *service.command_line(options)]


def status_port(command: str) -> int | None:
    """Read the mesh's status port from the command line of a service; None where it has none."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    value = dict(itertools.pairwise(words)).get("--status-port", "")
    return int(value) if value.isdecimal() and len(value) <= _LONGEST_PORT else None


def uninjected(context: parts.Context, *more: str, joined: bool) -> list[str]:
    """Write the question which pods lack a sidecar, or have an old one.

    Args:
        context: With the options, and the mesh that was found.
        more: Which of them, and what to do about them.
        joined: Whether the model's namespace is a member, or the selected ones of its pods.
    """
    mesh = context.mesh
    return [
        *(PROGRAM, "uninjected"),
        *service.command_line(_options(context, joined=joined), service.Eligibility),
        *("--proxy-revision", mesh.proxy_revision if mesh else ""),
        *("--proxy-version", mesh.version if mesh else ""),
        *more,
    ]


def explain(context: parts.Context) -> list[str]:
    """Write the question what the rules make of pods on standard input."""
    return [PROGRAM, "explain", "-", *_rules(context)]


def stop(context: parts.Context, namespace: str, pod: str) -> list[str]:
    """Write the request to stop one proxy now."""
    return [PROGRAM, "stop", pod, "--namespace", namespace, *_rules(context)]


def _rules(context: parts.Context) -> list[str]:
    return service.command_line(_options(context, joined=False), service.Rules)


def _options(context: parts.Context, *, joined: bool) -> service.Options:
    """Fill what the workload is told from options of the same names, and from what was found."""
    mesh = context.mesh
    return service.Options(
        **context.config.named_in(service.Options),
        model=context.model,
        application=context.application,
        unit=context.unit,
        joined=joined,
        mesh_namespace=mesh.installed_in if mesh else "",
        mesh_revision=mesh.revision if mesh and joined else "",
        membership=context.config.membership,
        data_plane=context.data_plane,
        status_port=mesh.status_port if mesh else names.DEFAULT_STATUS_PORT,
        observe_gateways=context.exposes,
        convergence=context.config.restart_pods if joined else "off",
        lifecycle_namespaces=frozenset(context.config.served_namespaces),
        replace_broken_pods=context.config.delete_broken_pods,
        listen=f":{layer.PORT}",
        log_level_file=LEVEL_FILE,
        charm_facts_file=FACTS_FILE,
    )
