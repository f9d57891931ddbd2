"""Where the API server is, and how the pod's ServiceAccount authenticates."""

from __future__ import annotations

import contextlib
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from . import errors

TOKEN_MAX_AGE = 60.0
"""Seconds after which the token file is read again; the kubelet renews it well before expiry."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(slots=True, kw_only=True)
class Access:
    """The API server's URL, and how the two know each other."""

    server: str
    tls: ssl.SSLContext | None = None
    token: str | None = None
    token_file: Path | None = None
    """Has the token, and a newer one when the kubelet renews it."""
    _read_at: float = float("-inf")

    def headers(self) -> dict[str, str]:
        """Return the Authorization header, if there is a token."""
        if self.token_file is not None and time.monotonic() - self._read_at > TOKEN_MAX_AGE:
            with contextlib.suppress(OSError):
                self.token = self.token_file.read_text().strip()
            self._read_at = time.monotonic()
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def expire(self) -> None:
        """Have the token read again before the next request, because the API refused it."""
        self._read_at = float("-inf")


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
