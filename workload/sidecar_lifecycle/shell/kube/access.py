"""Where the API server is, and how the pod's ServiceAccount authenticates."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from . import errors

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The way in."""

    server: str
    """Its URL."""
    tls: ssl.SSLContext | None = None
    """How to know it, and how it knows us where that is by a certificate."""
    token: str | None = None
    token_file: Path | None = None
    """Has the token, and a newer one when the kubelet renews it."""


def of_pod(account: Path = SERVICE_ACCOUNT) -> Access:
    """Return how a pod gets in: https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/.

    Raises:
        NoAccess: There is none.
    """
    try:
        host, port = (os.environ[f"KUBERNETES_SERVICE_{each}"] for each in ("HOST", "PORT"))
        tls = ssl.create_default_context(cafile=account / "ca.crt")
        token = (account / "token").read_text().strip()
    except (KeyError, OSError) as error:
        raise errors.NoAccess(f"this is no pod with a ServiceAccount: {error}") from error
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Access(server=server, tls=tls, token=token, token_file=account / "token")
