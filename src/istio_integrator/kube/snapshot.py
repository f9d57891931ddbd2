"""The cluster as one hook sees it: what was read once is not asked for again.

A hook runs a dozen parts that decide by the same objects. It lasts a second or two, and whatever
changes meanwhile starts another one. Two things are never taken from memory: an object that was
not there, since what follows would create it, and a dry run, which asks what others do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping

from istio_integrator.kube import cluster, errors

_Labels = frozenset[tuple[str, str | None]]


class CachedCluster(cluster.Cluster):
    """Reads each object and each list once; a write has its kind be read anew.

    It lives no longer than a hook. Where somebody else wrote in between, all is read anew.
    """

    def __init__(self, api: cluster.Cluster) -> None:
        super().__init__(api.client)
        self._lists: dict[tuple[cluster.Kind, str, _Labels], list[cluster.Object]] = {}
        self._objects: dict[tuple[cluster.Kind, str, str], cluster.Object] = {}

    def get(
        self, kind: cluster.Kind, name: str, namespace: str | None = None
    ) -> cluster.Object | None:
        """Read one object, as `Cluster.get` does."""
        key = (kind, namespace or "", name)
        if key not in self._objects and kind == cluster.NAMESPACE:
            # Every hook needs all of them.
            self.list_if_allowed(kind)
        if key not in self._objects and (found := super().get(kind, name, namespace)):
            self._objects[key] = found
        return self._objects.get(key)

    def list(
        self,
        kind: cluster.Kind,
        namespace: str | None = None,
        labels: Mapping[str, str | None] | None = None,
    ) -> list[cluster.Object]:
        """Read the objects of a kind, as `Cluster.list` does."""
        selected: _Labels = frozenset((labels or {}).items())
        for (listed, place, wider), known in self._lists.items():
            if listed == kind and place in ("", namespace) and wider <= selected:
                return [each for each in known if _is_in(each, namespace, selected)]
        found = super().list(kind, namespace, labels)
        self._lists[kind, namespace or "", selected] = found
        # Of definitions, a list has less than is read of each.
        for each in found if kind != cluster.CUSTOM_RESOURCE_DEFINITION else ():
            metadata = each["metadata"]
            self._objects[kind, metadata.get("namespace", ""), metadata["name"]] = each
        return found

    @contextlib.contextmanager
    def _writing(
        self, verb: str, obj: cluster.Object, *, dry_run: bool = False
    ) -> Generator[None]:
        """Forget what a write makes out of date, whatever becomes of it: answers get lost."""
        try:
            with super()._writing(verb, obj):
                yield
        except errors.ConflictError:
            if not dry_run:
                self._lists.clear()
                self._objects.clear()
            raise
        finally:
            if not dry_run:
                written = cluster.KINDS[obj["apiVersion"], obj["kind"]].spelled
                self._lists = {k: v for k, v in self._lists.items() if k[0].spelled != written}
                self._objects = {k: v for k, v in self._objects.items() if k[0].spelled != written}


def _is_in(obj: cluster.Object, namespace: str | None, selected: _Labels) -> bool:
    metadata = obj["metadata"]
    if namespace is not None and metadata.get("namespace") != namespace:
        return False
    present = cluster.at(metadata, "labels")
    return all(key in present and value in (None, present[key]) for key, value in selected)
