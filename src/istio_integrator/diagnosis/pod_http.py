"""A request over HTTP that a pod makes itself, with whatever program one of its containers has."""

from __future__ import annotations

import re

from integrator_contract import names
from istio_integrator.kube import cluster, documents, errors, streams

SECONDS = 8.0
"""For one try."""
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
_LONGEST_HEAD = 8192
"""Characters of an answer's head that are read; its patterns look at each space repeatedly."""
_LONGEST_TEXT = 65536
"""Characters of an answer that are read."""
_STATUS = re.compile(r"^[ \t]*HTTP/[\d.]+[ \t]+(\d{3})", re.MULTILINE)
_HEADER = re.compile(r"^[ \t]*([A-Za-z][-A-Za-z0-9]*):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_NO_SUCH_PROGRAM = (126, 127)
_CHARM = "charm"
"""Juju's own container, which has Python."""


def ask(reach: streams.Streams, pod: cluster.Object, url: str) -> streams.Response | str:
    """Have a pod ask for a URL with whatever program one of its containers has.

    Raises:
        ForbiddenError: The charm may not run commands in pods.
    """
    metadata = pod["metadata"]
    containers = [
        str(each.get("name")) for each in cluster.parts(cluster.at(pod, "spec"), "containers")
    ]
    # Juju's container first; the proxy's own calls don't pass the proxy.
    others = (name for name in containers if name != names.PROXY)
    ordered = sorted(others, key=lambda name: name != _CHARM)
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
            # The program sends so many characters of a body, each of which may take six.
            found = documents.read_json(ended.output, longest=8 * _LONGEST_TEXT)
            if "problem" in found:
                return str(found["problem"])
            headers = {str(key).lower(): str(value) for key, value in found["headers"].items()}
            return streams.Response(int(found["status"]), headers, str(found["text"]))
        except (ValueError, KeyError, AttributeError, TypeError):
            return (ended.errors or ended.output).strip()[-200:] or "no answer"
    # wget writes the head to its errors, curl before the body.
    output = ended.output[:_LONGEST_TEXT].replace("\r", "")
    head, _, body = output.partition("\n\n")
    head, body = (ended.errors, output) if program == "wget" else (head, body)
    statuses = _STATUS.findall(head[:_LONGEST_HEAD])
    if not statuses:
        return (ended.errors or ended.output).strip()[-200:] or "no answer"
    headers = {name.lower(): value for name, value in _HEADER.findall(head[:_LONGEST_HEAD])}
    return streams.Response(int(statuses[-1]), headers, body)
