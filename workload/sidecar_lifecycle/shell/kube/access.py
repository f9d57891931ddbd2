"""Where the apiserver is and who we are there, by the pod's ServiceAccount or by a kubeconfig."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import errors

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

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

    Args:
        account: The folder in which the kubelet puts the ServiceAccount.

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


def of_kubeconfig(file: str) -> Access:
    """Return what the current context of a kubeconfig says.

    Raises:
        NoAccess: It can't be read, or says nothing.
    """
    # In the pod nobody needs it, and it brings a second HTTP client: 5 MB.
    from lightkube.config import kubeconfig  # noqa: PLC0415
    from lightkube.core import exceptions  # noqa: PLC0415

    try:
        config = kubeconfig.KubeConfig.from_file(file).get()
        assert config is not None
        return of_context(config)
    except exceptions.ConfigError as error:
        raise errors.NoAccess(str(error)) from error


def of_context(config: SingleConfig) -> Access:
    """Return what one context of a kubeconfig says.

    Raises:
        lightkube.core.exceptions.ConfigError: A file that it names is not there.
    """
    from lightkube.config import client_adapter  # noqa: PLC0415

    server, user = config.cluster.server, config.user
    tls = None
    if server.startswith("https") and user:
        tls = client_adapter.verify_cluster(config.cluster, user, config.abs_file, trust_env=False)
    return Access(
        server=server,
        tls=tls,
        token=user.token if user else None,
        token_file=Path(user.token_file) if user and user.token_file else None,
    )
