"""What actions answer, as text for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from integrator_contract.answers import ACKNOWLEDGED, Listing, PodAnswer
from istio_integrator import order, texts
from istio_integrator.config import config
from istio_integrator.diagnosis import registry, report
from istio_integrator.ingress import record
from istio_integrator.kube import cluster, errors, fences

Parameters = Mapping[str, Any]
Answer = Callable[[order.Parts, Parameters], dict[str, str]]
_PREVIEWED = ("authorization", "mtls", "mtls-exceptions")
"""The options that `preview-security` takes."""


def _list(parts: order.Parts, _: Parameters) -> dict[str, str]:
    return listed(parts.lifecycle.workload.uninjected())


def _restart(*, stale: bool) -> Answer:
    def answer(parts: order.Parts, parameters: Parameters) -> dict[str, str]:
        dry_run = bool(parameters.get("dry-run", False))
        force = bool(parameters.get("force", False))
        pods = parts.lifecycle.workload.restart(dry_run=dry_run, stale=stale, force=force)
        return restarted(pods, dry_run=dry_run)

    return answer


def _rotate(parts: order.Parts, _: Parameters) -> dict[str, str]:
    return parts.admission.rotate()


def _stop(parts: order.Parts, parameters: Parameters) -> dict[str, str]:
    namespace = parameters.get("namespace") or parts.context.model
    answer = parts.lifecycle.workload.stop_proxy(namespace, parameters["pod"])
    where = f"{namespace}/{parameters['pod']}"
    if not answer.result:
        raise errors.LifecycleError(
            f"{where}: its proxy is not stopped: {answer.message} ({answer.decision})"
        )
    if answer.result != ACKNOWLEDGED:
        how = f"{answer.result} by {answer.transport}: {answer.detail}"
        raise errors.LifecycleError(f"{where}: its proxy is not stopped: {how}")
    return {"stopped": f"{where}: {answer.message} (by {answer.transport})"}


def _preview(parts: order.Parts, parameters: Parameters) -> dict[str, str]:
    options = _chosen(parts.context.config, parameters)
    previews = {
        "authorization": parts.authorization.preview(options),
        "mtls": parts.mutual_tls.preview(options, lambda: parts.ingress.exposure.routed),
    }
    checks = [
        registry.Check(option, place, lambda _, found=found: found, look="juju status --relations")
        for place, (option, found) in enumerate(previews.items())
    ]
    found = [each for check in checks for each in check.run(parts.facts)]
    found += report.passed_over(fences.noted())
    return report.Report(found).results(parameters.get("format", "text"))


def _chosen(own: config.Config, parameters: Parameters) -> config.Config:
    """Return the application's options with those of the action in their place."""
    given = {name: parameters[name] for name in _PREVIEWED if name in parameters}
    asked = config.Config.load(given)
    fields = [name.replace("-", "_") for name in given]
    return own.model_copy(update={field: getattr(asked, field) for field in fields})


def _show(parts: order.Parts, _: Parameters) -> dict[str, str]:
    return shown(parts.context.manifests.owned())


ANSWERS: dict[str, Answer] = {
    "list-uninjected": _list,
    "preview-security": _preview,
    "restart-uninjected": _restart(stale=False),
    "restart-stale": _restart(stale=True),
    "rotate-certificates": _rotate,
    "show-manifests": _show,
    "stop-proxy": _stop,
}
"""By the action's name; each may raise a CharmError, which fails the action."""


def listed(answer: Listing) -> dict[str, str]:
    """Answer `list-uninjected`."""
    summary = answer.summary
    return {
        "in-mesh": f"{summary.in_mesh}/{summary.eligible}",
        "pods": "\n".join(map(_line, answer.pods)) or "none",
    }


def restarted(pods: Sequence[PodAnswer], *, dry_run: bool) -> dict[str, str]:
    """Answer `restart-uninjected` and `restart-stale`."""
    ours = [pod for pod in pods if pod.fixable]
    others = [pod for pod in pods if not pod.fixable]
    key = "would-restart" if dry_run else "restarting"
    return {
        key: "\n".join(map(_line, ours)) or "none",
        "not-ours-to-restart": "\n".join(map(_line, others)) or "none",
    }


def shown(objects: list[cluster.Object]) -> dict[str, str]:
    """Answer `show-manifests` with live objects, without the API server's bookkeeping."""
    cleaned: list[Any] = []
    for obj in objects:
        metadata = {key: obj["metadata"][key] for key in obj["metadata"] if key != "managedFields"}
        head = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}
        rest = {key: value for key, value in obj.items() if key not in (*head, "status")}
        if obj["kind"] == "Secret":
            rest["data"] = dict.fromkeys(cluster.at(obj, "data"), "(not shown)")
        cleaned.append({**head, **rest})
    text = yaml.safe_dump_all(cleaned, sort_keys=False) if cleaned else "none"
    return {"manifests": record.hide(text)}


def _line(pod: PodAnswer) -> str:
    owner = f" ({pod.workload})" if pod.workload else ""
    return texts.plain(f"{pod.namespace}/{pod.name}{owner}: {pod.message}")
