"""A call between two applications, made by the caller's own pod."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence

import cluster
import errors
import probe
import streams

from . import finding

SECONDS = 8.0
"""For one try."""
_PLACEHOLDER = 65535
"""The port of a Service for which its charm opened none."""
_PYTHON = """\
import json, sys, urllib.error, urllib.request
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None
opener = urllib.request.build_opener(Stay, urllib.request.ProxyHandler({}))
try:
    answer = opener.open(sys.argv[1], timeout=5)
except urllib.error.HTTPError as error:
    answer = error
except OSError as error:
    print(json.dumps({"problem": str(getattr(error, "reason", error))}))
    sys.exit()
print(json.dumps({"status": answer.status, "headers": dict(answer.headers),
                  "text": answer.read(65536).decode(errors="replace")}))
"""
_STATUS = re.compile(r"^\s*HTTP/[\d.]+\s+(\d{3})", re.MULTILINE)
_HEADER = re.compile(r"^\s*([A-Za-z][-A-Za-z0-9]*):\s*(.*?)\s*$", re.MULTILINE)
_NO_SUCH_PROGRAM = (126, 127)
_CHARM = "charm"
"""Juju's own container, which has Python."""


def commands(url: str) -> dict[str, list[str]]:
    """List commands that ask for a URL, by the program that the image needs for it."""
    return {
        "python3": ["python3", "-c", _PYTHON, url],
        "curl": ["curl", "-sS", "-i", "-m", "5", url],
        "wget": ["wget", "-S", "-O", "-", "-T", "5", url],
    }


def read(program: str, ended: streams.Ended) -> streams.Response | str:
    """Read what one of the commands printed: the answer, or why there is none."""
    if program == "python3":
        try:
            found = json.loads(ended.output)
            if "problem" in found:
                return str(found["problem"])
            headers = {str(key).lower(): str(value) for key, value in found["headers"].items()}
            return streams.Response(int(found["status"]), headers, str(found["text"]))
        except (ValueError, KeyError, AttributeError, TypeError):
            return (ended.errors or ended.output).strip()[-200:] or "no answer"
    # wget writes the head to its errors, curl before the body.
    head = ended.errors if program == "wget" else ended.output.replace("\r", "").split("\n\n")[0]
    statuses = _STATUS.findall(head)
    if not statuses:
        return (ended.errors or ended.output).strip()[-200:] or "no answer"
    headers = {name.lower(): value for name, value in _HEADER.findall(head)}
    text = ended.output if program == "wget" else ended.output.replace("\r", "")[len(head) + 2 :]
    return streams.Response(int(statuses[-1]), headers, text)


def ask(reach: streams.Streams, pod: cluster.Object, url: str) -> streams.Response | str:
    """Have a pod ask for a URL with whatever program one of its containers has.

    Raises:
        ForbiddenError: The charm may not run commands in pods.
    """
    metadata = pod["metadata"]
    names = [each["name"] for each in cluster.items(cluster.at(pod, "spec"), "containers")]
    # Juju's container first; the proxy's own calls don't pass the proxy.
    ordered = sorted((name for name in names if name != probe.PROXY), key=lambda n: n != _CHARM)
    problem = "none of its containers has python3, curl or wget"
    for container in ordered:
        for program, argv in commands(url).items():
            try:
                ended = reach.run(
                    metadata["namespace"], metadata["name"], container, argv, SECONDS
                )
            except errors.ForbiddenError:
                raise
            except errors.ApiError as error:
                if "not found" not in error.message and "no such file" not in error.message:
                    problem = error.message
                continue
            except errors.UnreachableError as error:
                return str(error)
            if ended.code not in _NO_SUCH_PROGRAM:
                return read(program, ended)
    return problem


@dataclasses.dataclass(frozen=True)
class Call:
    """Who calls whom."""

    source: cluster.Object
    """A pod."""
    service: str
    """The one called, in the pod's namespace."""
    url: str


def choose(
    source: str, target: str, pods: Iterable[cluster.Object], services: Iterable[cluster.Object],
    *, domain: str,
) -> Call | str:  # fmt: skip
    """Find the pod that is to call, and the address.

    Args:
        source: An application, a Deployment's `app` or a pod.
        target: `SERVICE[:PORT][/PATH]`.
        pods: The model's.
        services: The model's.
        domain: Of the cluster.

    Returns:
        The call, or what is wrong with the names.
    """
    named, slash, path = target.partition("/")
    name, _, port = named.partition(":")
    callers = [pod for pod in pods if _is_called(pod, source)]
    callers.sort(key=lambda pod: not is_ready(pod))
    service = next((each for each in services if each["metadata"]["name"] == name), None)
    if not callers:
        return f"source={source}: there is no such application in the model"
    if service is None:
        return f"target={target}: there is no Service {name} in the model"
    if port and not port.isdigit():
        return f"target={target}: write it as SERVICE:PORT"
    ports = [
        int(entry["port"])
        for entry in cluster.items(cluster.at(service, "spec"), "ports")
        if entry["port"] != _PLACEHOLDER and entry.get("protocol", "TCP") == "TCP"
    ]
    if not port and not ports:
        return f"target={target}: Service {name} has no port; write it as {name}:PORT"
    number = int(port) if port else ports[0]
    host = f"{name}.{service['metadata']['namespace']}.svc.{domain}"
    return Call(callers[0], name, f"http://{host}:{number}{slash}{path}")


def _is_called(pod: cluster.Object, name: str) -> bool:
    labels = cluster.at(pod, "metadata", "labels")
    known: Sequence[object] = (
        labels.get("app.kubernetes.io/name"),
        labels.get("app"),
        pod["metadata"]["name"],
    )
    return name in known


def is_ready(pod: cluster.Object) -> bool:
    """Tell whether a pod serves."""
    conditions = cluster.items(cluster.at(pod, "status"), "conditions")
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def call(one: Call, answer: streams.Response | str) -> Iterable[finding.Finding]:
    """Judge a call by its answer, telling the mesh's own from the application's."""
    pod = one.source["metadata"]
    who = f"{pod['namespace']}/{pod['name']}"
    hint = f"istioctl -n {pod['namespace']} proxy-config clusters {pod['name']}"
    if isinstance(answer, str):
        yield finding.broken(f"{who} does not reach {one.url}: {answer}", hint)
        return
    text = " ".join(answer.text.split())[:100]
    from_proxy = answer.headers.get("server", "") in ("envoy", "istio-envoy")
    if answer.status == 403 and text.startswith("RBAC: access denied"):
        yield finding.broken(
            f"{one.url} refuses {who}: an AuthorizationPolicy does not let it in",
            f"kubectl -n {pod['namespace']} get authorizationpolicies",
        )
    elif answer.status in (502, 503, 504) and from_proxy:
        yield finding.broken(f"{who} got {answer.status} from {one.url}: {text}", hint)
    elif answer.status >= 500:
        yield finding.doubtful(
            f"{who} got {answer.status} from {one.url} itself: {text}",
            f"kubectl -n {pod['namespace']} logs service/{one.service}",
        )
    else:
        way = "through a proxy" if from_proxy else "not through a proxy"
        yield finding.fine(f"{who} reached {one.url} {way}: {answer.status}")
