"""The random end of the names of routes without authentication, kept in a ConfigMap."""

from __future__ import annotations

import dataclasses
import re
import secrets

from istio_integrator import parts
from istio_integrator.kube import cluster, owners

FOLDER = "route-token"
_TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in route-token."""

    name: str
    token: str


def token(scope: parts.Context) -> str:
    """Return the token, which is written down before it is used for the first time."""
    name = owners.object_name(scope.application, FOLDER)
    kept = cluster.at(scope.manifests.own(cluster.CONFIG_MAP, name), "data").get("token")
    if isinstance(kept, str) and _TOKEN.fullmatch(kept):
        return kept
    new = secrets.token_hex(16)
    scope.manifests.apply(FOLDER, Context(name=name, token=new))
    return new
