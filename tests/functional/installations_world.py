"""Installations of Istio as their installers write them, with the real istiod on loopback."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from istio_integrator.kube import cluster
from testbed import istio
from tests.functional import loopback_istiod

ROWS: Mapping[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "installations.yaml").read_text()
)
URL = "URL"
"""What stands in a row for the address of an injector."""


@dataclasses.dataclass
class World:
    """An API server into which installations are written."""

    api: cluster.Cluster
    kubeconfig: Path
    folder: Path

    @contextlib.contextmanager
    def installed(self, row: Mapping[str, Any]) -> Iterator[str]:
        """Have the installations of a row while the block runs; the injector's URL comes back."""
        with contextlib.ExitStack() as stack:
            url = ""
            for index, one in enumerate(row["installs"]):
                folder = self.folder / str(index)
                way = self._outside if "webhook" in one else self._inside
                url = stack.enter_context(way(one, folder, row.get("objects", ())))
            yield url

    @contextlib.contextmanager
    def _inside(self, one: Mapping[str, Any], folder: Path, objects: Any) -> Iterator[str]:
        place = one.get("namespace", istio.SYSTEM)
        loopback_istiod.create_namespace(self.api, place)
        with (
            self.there(*objects),
            loopback_istiod.installed(
                self.api,
                self.kubeconfig,
                folder,
                *one["settings"],
                revision=one.get("revision", ""),
                place=place,
            ) as found,
        ):
            yield found.url

    @contextlib.contextmanager
    def _outside(self, one: Mapping[str, Any], folder: Path, objects: Any) -> Iterator[str]:
        """Have no object of istiod but its webhook configurations, which name a URL."""
        manifests = loopback_istiod.render()
        with loopback_istiod.running(self.api, self.kubeconfig, folder, manifests) as (
            address,
            bundle,
        ):
            url = f"{address}/inject"
            tag = [f"values.revisionTags[0]={one['tag']}"] if "tag" in one else []
            remote = loopback_istiod.render(
                *one["settings"],
                *tag,
                f"revision={one['revision']}",
                f"values.istiodRemote.injectionURL={url}",
                f"values.istiodRemote.injectionCABundle={bundle}",
            )
            configurations = [
                item for (kind, _), item in remote.items() if kind.startswith("Mutating")
            ]
            for item in configurations:
                if "istio.io/tag" not in item["metadata"]["labels"]:
                    item["metadata"]["name"] = one["webhook"]
                for hook in item["webhooks"]:
                    hook["clientConfig"]["caBundle"] = bundle
            with self.there(*objects, *configurations):
                yield url

    @contextlib.contextmanager
    def there(self, *objects: cluster.Object) -> Iterator[None]:
        """Have objects while the block runs."""
        applied = [self.api.apply(item) for item in objects]
        try:
            yield
        finally:
            for item in applied:
                self.api.delete(item)
