"""The wire format of `forward_auth`: an application says where it is asked about requests.

It is that of the library charmlibs.interfaces.forward_auth (1.0), which raises on wrong data and
imports jsonschema.
"""

from __future__ import annotations

import dataclasses
import json
import re
import urllib.parse
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic

from integrator_contract import bounded
from istio_integrator import texts
from istio_integrator.relations import endpoints, kubeflow

ENDPOINT = kubeflow.FORWARD_AUTH
ADDRESS = "decisions_address"
APPLICATIONS = "app_names"
HEADERS = "headers"
ROUTED = "ingress_app_names"

_LONGEST_ADDRESS = 512
"""Characters of a URL; those of charms have some sixty."""
_LONGEST_NAME = 253
_MOST_NAMES = 256
_URL = re.compile(r"[!-~]+")


@dataclasses.dataclass(frozen=True)
class Address:
    """Where somebody is asked, by HTTP."""

    host: str
    port: int
    path: str
    """What stands before the path of a request; empty for nothing."""


def _address(value: object) -> Address:
    if not isinstance(value, str) or not _URL.fullmatch(value):
        raise ValueError("is not a URL such as http://oauth2-proxy.kubeflow.svc:4180")
    if len(value) > _LONGEST_ADDRESS:
        raise ValueError(f"is longer than {_LONGEST_ADDRESS} characters")
    parts = urllib.parse.urlsplit(value)
    if parts.scheme != "http":
        raise ValueError("does not begin with http://, by which alone the gateway asks")
    if parts.query or parts.fragment or "?" in value or "#" in value or "@" in parts.netloc:
        raise ValueError("has more than a host, a port and a path")
    # Reading the port checks it.
    port = 80 if parts.port is None else parts.port
    if not parts.hostname or not port:
        raise ValueError("has no host, or the port 0")
    return Address(parts.hostname, port, parts.path.rstrip("/"))


Name = Annotated[str, pydantic.Strict(), pydantic.Field(max_length=_LONGEST_NAME)]


class ForwardAuth(pydantic.BaseModel):
    """Who is to be asked about each request."""

    model_config = pydantic.ConfigDict(frozen=True, extra="ignore", defer_build=True)

    decisions_address: Annotated[Address, pydantic.BeforeValidator(_address)]
    app_names: Annotated[tuple[Name, ...], pydantic.Field(max_length=_MOST_NAMES)]
    """Applications that want to be protected. Here all are."""
    headers: kubeflow.Headers = ()
    """What the applications get from it."""


def read(bag: Mapping[str, str]) -> tuple[ForwardAuth | None, str]:
    """Read one application's data bag.

    Returns:
        The message, or what is wrong; neither where the other side has not written yet.
    """
    if not bag.get(ADDRESS) or not bag.get(APPLICATIONS):
        return None, ""
    said: dict[str, Any] = {ADDRESS: bag[ADDRESS]}
    try:
        for key in (APPLICATIONS, HEADERS):
            value = _list(key, bag.get(key, "null"))
            if value is not None:
                said[key] = value
        return ForwardAuth.model_validate(said), ""
    except pydantic.ValidationError as error:
        return None, texts.problems(error)
    except bounded.DocumentError as error:
        return None, texts.plain(str(error), texts.LONGEST_PROBLEM)


def _list(key: str, text: str) -> Any:
    try:
        return bounded.read_json(text)
    except bounded.DocumentError as error:
        raise bounded.DocumentError(f"{key} {error}") from error


def received(related: endpoints.Relations) -> list[kubeflow.Received[ForwardAuth]]:
    """List what every application that is related to `forward-auth` said."""
    return [
        kubeflow.Received(bag.relation, bag.application, *read(bag.content))
        for bag in related.bags(ENDPOINT)
    ]


def publish(related: endpoints.Relations) -> None:
    """Tell whose routes the gateway has, which the other side compares with whom it protects."""
    routed = {bag.application for endpoint in kubeflow.ROUTING for bag in related.bags(endpoint)}
    related.write(ENDPOINT, {ROUTED: json.dumps(sorted(routed))})
