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

_NOT_WHOLE = (cluster.CUSTOM_RESOURCE_DEFINITION,)
"""Kinds of whose objects a list has less than is read of each."""


class Snapshot(cluster.Cluster):
    """Reads each object and each list once; a write has its kind be read anew.

    It lives no longer than a hook. Where somebody else wrote in between, all is read anew.
    """

    def __init__(self, api: cluster.Cluster) -> None:
        super().__init__(api.client)
        self._api = api
        self._lists: dict[tuple[cluster.Kind, str, _Labels], list[cluster.Object]] = {}
        self._objects: dict[tuple[cluster.Kind, str, str], cluster.Object] = {}

    @classmethod
    def of(cls, api: cluster.Cluster) -> Snapshot:
        """Return what was read in this hook, or begin to remember."""
        return api if isinstance(api, Snapshot) else cls(api)

    def objects(self, kind: cluster.Kind, namespace: str = "") -> list[cluster.Object]:
        """List a kind, in one namespace or everywhere."""
        return self.list(kind, namespace or None)

    def get(
        self, kind: cluster.Kind, name: str, namespace: str | None = None
    ) -> cluster.Object | None:
        """Read one object, as `Cluster.get` does."""
        key = (kind, namespace or "", name)
        found = self._objects.get(key)
        if found is None and kind == cluster.NAMESPACE:
            # Every hook needs all of them.
            with contextlib.suppress(errors.ForbiddenError):
                self.list(kind)
        found = found or self._listed_one(kind, name, namespace)
        if found is None:
            found = self._api.get(kind, name, namespace)
        if found is not None:
            self._objects[key] = found
        return found

    def list(
        self,
        kind: cluster.Kind,
        namespace: str | None = None,
        labels: Mapping[str, str | None] | None = None,
    ) -> list[cluster.Object]:
        """Read the objects of a kind, as `Cluster.list` does."""
        selected: _Labels = frozenset((labels or {}).items())
        key = (kind, namespace or "", selected)
        if key not in self._lists:
            wider = self._wider(kind, namespace, selected)
            self._lists[key] = (
                self._api.list(kind, namespace, labels)
                if wider is None
                else [each for each in wider if _is_in(each, namespace, selected)]
            )
        return self._lists[key]

    def create(self, obj: cluster.Object, *, dry_run: bool = False) -> cluster.Object:
        """Create an object, as `Cluster.create` does."""
        if dry_run:
            return self._api.create(obj, dry_run=True)
        with self._writing(obj):
            return self._api.create(obj)

    def apply(self, obj: cluster.Object, *, force: bool = True) -> cluster.Object:
        """Apply an object, as `Cluster.apply` does."""
        with self._writing(obj):
            return self._api.apply(obj, force=force)

    def merge_patch(self, obj: cluster.Object, patch: cluster.Object) -> cluster.Object:
        """Patch an object, as `Cluster.merge_patch` does."""
        with self._writing(obj):
            return self._api.merge_patch(obj, patch)

    def delete(self, obj: cluster.Object) -> None:
        """Delete an object, as `Cluster.delete` does."""
        with self._writing(obj):
            self._api.delete(obj)

    def _listed_one(
        self, kind: cluster.Kind, name: str, namespace: str | None
    ) -> cluster.Object | None:
        """Find an object in what was listed; one that can't be read is in no list."""
        if kind in _NOT_WHOLE:
            return None
        for (listed, _, _), found in self._lists.items():
            if listed == kind:
                for each in found:
                    metadata = each["metadata"]
                    if (metadata["name"], metadata.get("namespace")) == (name, namespace):
                        return each
        return None

    def _wider(
        self, kind: cluster.Kind, namespace: str | None, selected: _Labels
    ) -> list[cluster.Object] | None:
        """Find a list that has all that is asked for, and more."""
        for (listed, place, labels), found in self._lists.items():
            if listed == kind and place in ("", namespace) and labels <= selected:
                return found
        return None

    @contextlib.contextmanager
    def _writing(self, obj: cluster.Object) -> Generator[None]:
        """Forget what a write makes out of date, whatever becomes of it: answers get lost."""
        try:
            yield
        except errors.ConflictError:
            self._lists.clear()
            self._objects.clear()
            raise
        finally:
            written = _spelled(cluster.KINDS[obj["apiVersion"], obj["kind"]])
            self._lists = {k: v for k, v in self._lists.items() if _spelled(k[0]) != written}
            self._objects = {k: v for k, v in self._objects.items() if _spelled(k[0]) != written}


def _is_in(obj: cluster.Object, namespace: str | None, selected: _Labels) -> bool:
    metadata = obj["metadata"]
    if namespace is not None and metadata.get("namespace") != namespace:
        return False
    present = cluster.at(metadata, "labels")
    return all(key in present and value in (None, present[key]) for key, value in selected)


def _spelled(kind: cluster.Kind) -> tuple[str, str]:
    """Name a kind without its version: each version shows the same objects."""
    return kind.api_version.rpartition("/")[0], kind.plural
