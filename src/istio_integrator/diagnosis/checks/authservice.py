"""Does the service that is asked about requests answer, and does it reach its provider?"""

from __future__ import annotations

import dataclasses
import json
import urllib.parse
from collections.abc import Iterable

import httpx2

from istio_integrator import findings
from istio_integrator.diagnosis import pod_http, registry
from istio_integrator.diagnosis.facts import Facts, target_port
from istio_integrator.findings import Finding
from istio_integrator.kube import cluster, errors, streams

WELL_KNOWN = "/.well-known/openid-configuration"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Issuer:
    """What came of asking for a discovery document."""

    url: str
    answer: streams.Response | str
    """The answer, or why there is none."""
    is_own_view: bool
    """Whether the authorization service's own pod asked."""

    @property
    def is_there(self) -> bool:
        """Whether it is a discovery document."""
        if isinstance(self.answer, str) or self.answer.status != 200:
            return False
        try:
            return bool(cluster.at({"it": json.loads(self.answer.text)}, "it").get("issuer"))
        except ValueError:
            return False


@registry.check(
    "authservice",
    place=140,
    question="does it answer, and reach its provider's `.well-known`",
    reads="a request to it, one from its pod",
    symptoms=("a-login-that-goes-round", "403-at-the-gateway"),
)
def authservice(facts: Facts) -> Iterable[Finding]:
    """Look at whoever is asked."""
    asked = facts.authentication.guard.service if facts.authentication.guard else None
    if asked is None or facts.gateway is None:
        return
    service, namespace, *_ = asked.host.split(".")
    pods = facts.pods_of(service, namespace)
    name = f"{asked.host}:{asked.port}"
    if not pods:
        show = f"kubectl -n {namespace} get service,endpointslices"
        yield findings.broken(f"{name}: there is no pod behind it", show)
        return
    pod = pods[0]["metadata"]
    show = f"kubectl -n {pod['namespace']} logs {pod['name']} --all-containers --since=5m"
    answer: streams.Response | str
    try:
        host = next(iter(facts.config.hosts), "localhost")
        port = target_port(facts.service(service, namespace) or {}, pods[0], asked.port)
        path = f"{asked.path}/"
        answer = facts.streams.get(pod["namespace"], pod["name"], port, path, host=host)
    except errors.ForbiddenError:
        raise
    except errors.CharmError as error:
        answer = str(error)
    location = "" if isinstance(answer, str) else answer.headers.get("location", "")
    yield from judge(name, answer, _issuers(facts, pods[0], location), show=show)


def _issuers(facts: Facts, pod: cluster.Object, location: str) -> Iterable[Issuer]:
    own_view = True
    for url in issuers(location):
        try:
            answer = pod_http.ask(facts.streams, pod, url) if own_view else _fetch(url)
        except errors.ForbiddenError:
            own_view, answer = False, _fetch(url)
        found = Issuer(url=url, answer=answer, is_own_view=own_view)
        yield found
        if found.is_there:
            return


def _fetch(url: str) -> streams.Response | str:
    """Ask for a URL from here, outside of the mesh; or say why there is no answer."""
    try:
        answer = httpx2.get(url, timeout=pod_http.SECONDS, follow_redirects=False)
    except httpx2.HTTPError as error:
        return str(error) or type(error).__name__
    headers = {key.lower(): value for key, value in answer.headers.items()}
    return streams.Response(answer.status_code, headers, answer.text)


def issuers(location: str) -> list[str]:
    """Guess where the discovery document is of whoever has a login page, the longest path first.

    A provider's authorization endpoint may be anywhere below its issuer (OpenID Connect
    Discovery 1.0, section 4).
    """
    parts = urllib.parse.urlsplit(location)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        return []
    steps = [step for step in parts.path.split("/") if step][:-1]
    paths = ["/".join(["", *steps[:count]]) for count in range(len(steps), -1, -1)]
    return [f"{parts.scheme}://{parts.netloc}{path}{WELL_KNOWN}" for path in paths]


def judge(
    name: str, answer: streams.Response | str, asked: Iterable[Issuer], *, show: str
) -> Iterable[Finding]:
    """Judge the authorization service and its provider.

    Args:
        name: Of the service.
        answer: To a request without a cookie, or why there is none.
        asked: Its issuers, as far as it names one.
        show: The command that shows the service's log.
    """
    if isinstance(answer, str):
        yield findings.broken(f"{name} does not answer: {answer}", show)
        return
    if answer.status >= 500:
        yield findings.broken(f"{name} answers {answer.status}", show)
        return
    tried = list(asked)
    if not tried:
        yield findings.fine(f"{name} answers {answer.status}")
        return
    if there := next((each for each in tried if each.is_there), None):
        yield findings.fine(f"{name} answers {answer.status}, {there.url} is there")
        return
    first = tried[0]
    why = first.answer if isinstance(first.answer, str) else f"answers {first.answer.status}"
    if first.is_own_view:
        yield findings.broken(f"{name} does not reach {first.url}: {why}", show)
    else:
        yield findings.doubtful(f"{first.url}, to which {name} sends users: {why}", show)
