"""What did istiod and the gateway call an error in the last minutes?"""

from __future__ import annotations

import re
from collections.abc import Iterable

from integrator_contract import names
from istio_integrator import findings
from istio_integrator.diagnosis import registry
from istio_integrator.diagnosis.facts import Facts
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, documents

MINUTES = 5
"""Of the log that are looked at."""
_PLAIN = re.compile(r"^\S+\s+(?P<level>\w+)\s+(?P<rest>.*)$")
_ERRORS = frozenset({"error", "fatal", "critical"})
_REJECTED = re.compile(r"config for \S+ rejected|ADS\S*: ACK ERROR")
"""A proxy that does not take what it was sent says so as a warning, istiod too."""
_RETRIED = re.compile(r"\bretrying\b|Operation cannot be fulfilled on")
"""istiod's controllers call each try of theirs an error, the next of which mostly succeeds. The
second is what Kubernetes says to whom another writer was quicker (apimachinery, NewConflict)."""
_CHANGING = re.compile(r"\b[0-9a-f]{8,}\b|\d+")
_SOURCE = re.compile(r"\S+\.cc:\d+\s+|\s+thread=\d+$")
"""Envoy's own file and line, which tell the operator nothing and take half of what is shown."""
_LONGEST = 160
_LONGEST_LINE = 4096
"""Characters of a line that are looked at; some patterns look at each from many places."""


@registry.check(
    "istiod's log",
    place=200,
    question="errors of the last five minutes",
    reads="its log",
    unfelt="it quotes messages as they are",
)
def istiod_log(facts: Facts) -> Iterable[Finding]:
    """Look at the log of an istiod that runs in the cluster."""
    if facts.mesh is None or not facts.mesh.namespace:
        return
    for pod in facts.pods_of(facts.mesh.service, facts.mesh.namespace)[:1]:
        yield from _log(facts, pod, "discovery", "istiod")


@registry.check(
    "gateway's log",
    place=210,
    question="errors of the last five minutes",
    reads="its log",
    unfelt="it quotes messages as they are",
)
def gateway_log(facts: Facts) -> Iterable[Finding]:
    """Look at the gateway's log."""
    for pod in facts.gateway_pods[:1]:
        yield from _log(facts, pod, names.PROXY, "the gateway")


def _log(facts: Facts, pod: cluster.Object, container: str, name: str) -> Iterable[Finding]:
    """Look at the log of a container."""
    metadata = pod["metadata"]
    show = f"kubectl -n {metadata['namespace']} logs {metadata['name']} -c {container} "
    lines = facts.log(pod, container, MINUTES)
    return judge(name, lines, show=f"{show}--since={MINUTES}m")


def judge(name: str, lines: Iterable[str], *, show: str) -> Iterable[Finding]:
    """Judge a log.

    Args:
        name: Whose it is.
        lines: Of the last minutes.
        show: The command that shows it.
    """
    found = errors_in(lines)
    if not found:
        yield findings.fine(f"{name}: no error in {MINUTES} minutes")
        return
    # What a proxy does not take is the consequence; other lines may say why.
    text, count = max(found.items(), key=lambda pair: (bool(_REJECTED.search(pair[0])), pair[1]))
    total = sum(found.values())
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    times = f" ({count} times)" if count > 1 else ""
    yield findings.doubtful(f"{name}: {total} errors in {MINUTES} minutes: {shown}{times}", show)


def errors_in(lines: Iterable[str]) -> dict[str, int]:
    """Count the errors of a log by their text, numbers in it aside.

    Istio writes `TIME<tab>LEVEL<tab>SCOPE<tab>MESSAGE`, or JSON with `level` and `msg`.
    """
    found: dict[str, int] = {}
    texts: dict[str, str] = {}
    for line in lines:
        level, message = _parsed(line[:_LONGEST_LINE])
        text = " ".join(_SOURCE.sub("", message).split())
        if (level in _ERRORS and not _RETRIED.search(text)) or _REJECTED.search(text):
            key = _CHANGING.sub("#", text)
            # The last one of each kind is the one to show.
            texts[key] = text
            found[key] = found.get(key, 0) + 1
    return {texts[key]: count for key, count in found.items()}


def _parsed(line: str) -> tuple[str, str]:
    if line.startswith("{"):
        try:
            entry = {"entry": documents.read_json(line)}
        except documents.DocumentError:
            return "", ""
        said = cluster.at(entry, "entry")
        return str(said.get("level", "")).lower(), str(said.get("msg", ""))
    match = _PLAIN.match(line)
    return (match["level"].lower(), match["rest"]) if match else ("", "")
