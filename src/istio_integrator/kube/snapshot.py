"""One look at the cluster, for whoever looks at the same of it within a hook."""

from __future__ import annotations

from istio_integrator.kube import cluster


class Snapshot:
    """Objects as they were when somebody first asked for them: each kind is listed once.

    It lives no longer than a hook. What a hook itself writes is not for it: who writes an object
    lists it anew.

    Args:
        api: The API server.
    """

    def __init__(self, api: cluster.Cluster) -> None:
        self._api = api
        self._lists: dict[tuple[cluster.Kind, str], list[cluster.Object]] = {}

    def objects(self, kind: cluster.Kind, namespace: str = "") -> list[cluster.Object]:
        """List a kind, in one namespace or everywhere.

        Args:
            kind: The kind.
            namespace: Where to look; empty: everywhere.
        """
        key = (kind, namespace)
        if key not in self._lists:
            self._lists[key] = self._api.list(kind, namespace or None)
        return self._lists[key]
