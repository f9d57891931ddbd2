"""Results of the actions, as text for operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml

from integrator_contract import refusals
from integrator_contract.answers import ACKNOWLEDGED, PodAnswer
from istio_integrator import texts
from istio_integrator.admission.admission import Admission
from istio_integrator.config import config
from istio_integrator.diagnosis import registry, report
from istio_integrator.facts import Facts
from istio_integrator.kube import cluster, errors, fences
from istio_integrator.messages import Message
from istio_integrator.mtls.mtls import MutualTls
from istio_integrator.policies.policies import Authorization

Parameters = Mapping[str, Any]
Answer = Callable[[Facts, Parameters], dict[str, str]]
_PREVIEWED = ("authorization", "mtls", "mtls-exceptions")
"""The options that `preview-security` takes."""


def _list_uninjected(facts: Facts, _: Parameters) -> dict[str, str]:
    answer = facts.uninjected
    return {
        "in-mesh": f"{answer.summary.in_mesh}/{answer.summary.eligible}",
        "pods": _format_pods(answer.pods),
    }


def _restart_pods(facts: Facts, parameters: Parameters, *, stale: bool) -> dict[str, str]:
    dry_run = bool(parameters.get("dry-run", False))
    force = bool(parameters.get("force", False))
    pods = facts.workload.restart_pods(dry_run=dry_run, stale=stale, force=force)
    restarting = "would-restart" if dry_run else "restarting"
    result = {restarting: _format_pods(pod for pod in pods if pod.fixable)}
    if others := [pod for pod in pods if not pod.fixable]:
        result["restart-yourself"] = _format_pods(others)
    return result


def _stop_proxy(facts: Facts, parameters: Parameters) -> dict[str, str]:
    namespace = parameters.get("namespace") or facts.situation.model
    answer = facts.workload.stop_proxy(namespace, parameters["pod"])
    where = f"{namespace}/{parameters['pod']}"
    if not answer.result:
        raise errors.LifecycleError(f"{where}: the proxy was not stopped: {answer.message}")
    if answer.result != ACKNOWLEDGED:
        how = f"{answer.result} by {answer.transport}: {answer.detail}"
        raise errors.LifecycleError(f"{where}: the proxy was not stopped: {how}")
    return {"stopped": f"{where}, because {answer.message}"}


def _preview_security(facts: Facts, parameters: Parameters) -> dict[str, str]:
    options, look = (
        _override_options(facts.situation.config, parameters),
        "juju status --relations",
    )
    found: list[Message] = []
    previews = {"authorization": Authorization(facts).preview, "mtls": MutualTls(facts).preview}
    for option, preview in previews.items():
        find = functools.partial(preview, options)
        found += registry.collect_messages(option, find, facts.situation, look=look)
    found += report.report_skipped(fences.read_notes())
    return report.Report(found).render(parameters.get("format", "text"))


def _override_options(own: config.Config, parameters: Parameters) -> config.Config:
    """Return the application's options, overridden by the action's parameters."""
    given = {name: parameters[name] for name in _PREVIEWED if name in parameters}
    asked = config.Config.load(given)
    fields = [name.replace("-", "_") for name in given]
    return own.model_copy(update={field: getattr(asked, field) for field in fields})


def _show_manifests(facts: Facts, _: Parameters) -> dict[str, str]:
    cleaned: list[cluster.Object] = []
    for obj in facts.situation.manifests.list_owned():
        metadata = {key: obj["metadata"][key] for key in obj["metadata"] if key != "managedFields"}
        head = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
        rest = {key: value for key, value in obj.items() if key not in (*head, "status")}
        if obj["kind"] == "Secret":
            rest["data"] = dict.fromkeys(cluster.at(obj, "data"), "(not shown)")
        cleaned.append({**head, **rest})
    text = yaml.safe_dump_all(cleaned, sort_keys=False) if cleaned else "none"
    return {"manifests": refusals.hide_secrets(text)}


def _format_pods(pods: Iterable[PodAnswer]) -> str:
    lines = (
        f"{pod.namespace}/{pod.name}{f' ({pod.workload})' if pod.workload else ''}: {pod.message}"
        for pod in pods
    )
    return "\n".join(map(texts.escape, lines)) or "none"


ANSWERS: dict[str, Answer] = {
    "list-uninjected": _list_uninjected,
    "preview-security": _preview_security,
    "restart-uninjected": functools.partial(_restart_pods, stale=False),
    "restart-stale": functools.partial(_restart_pods, stale=True),
    "rotate-certificates": lambda facts, _: Admission(facts).rotate(),
    "show-manifests": _show_manifests,
    "stop-proxy": _stop_proxy,
}
"""Functions by the name of their action; a CharmError fails the action."""
