"""Give the charm the access of its pod, to an API server that a test runs."""

import lightkube
import pytest
from lightkube.config.kubeconfig import KubeConfig


def connect(monkeypatch: pytest.MonkeyPatch, client: lightkube.Client) -> None:
    """Have hooks connect as a client does: no file and variable of a pod is on this machine."""
    monkeypatch.setattr(KubeConfig, "from_service_account", lambda: None)
    monkeypatch.setattr(lightkube, "Client", lambda _: client)
