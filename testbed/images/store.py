"""The cache of layers: each built once for a key of its inputs, stored by its digest."""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from testbed.images import debian
from testbed.images.tree import Digester, Tree
from testbed.progress import Progress

_KEPT = 14 * 24 * 3600
"""Seconds after its last use that a layer which no image asks for stays in the cache."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Blob:
    """A layer in the cache."""

    digest: str
    size: int
    path: Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workshop:
    """What a layer may use while it is made."""

    scratch: Path
    """An empty directory that lives until the layer is written."""
    rootfs: Callable[[], Path]
    """The bootstrapped Debian, made at first use."""
    progress: Progress


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """How to make one layer."""

    name: str
    key: str
    """Hash of all that it is made from."""
    make: Callable[[Tree, Workshop], None]


class Store:
    """Layers on disk: `layers/<key>.json` names a digest, `blobs/<digest>.tar` is the layer."""

    def __init__(self, root: Path, progress: Progress) -> None:
        self._root = root
        self._progress = progress
        for name in ("layers", "blobs", "scratch"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def find(self, layer: Layer) -> Blob | None:
        """Return the layer if the cache has it."""
        record = self._record(layer)
        try:
            known = json.loads(record.read_text())
            path = self._blob(known["digest"])
            if path.stat().st_size != known["size"]:
                return None
            os.utime(record)
        except FileNotFoundError:
            return None
        return Blob(digest=known["digest"], size=known["size"], path=path)

    def get(self, layer: Layer) -> Blob:
        """Return the layer, making it when the cache lacks it."""
        found = self.find(layer)
        if found:
            return found
        with self.lock():
            return self.find(layer) or self._make(layer)

    def prune(self) -> None:
        """Remove layers that nothing has asked for in two weeks."""
        with self.lock():
            used: set[str] = set()
            for record in (self._root / "layers").iterdir():
                if _is_stale(record):
                    record.unlink()
                else:
                    used.add(self._blob(json.loads(record.read_text())["digest"]).name)
            for blob in (self._root / "blobs").iterdir():
                if blob.name not in used:
                    blob.unlink()
            for system in self._root.glob(f"{debian.ROOTFS}*"):
                if _is_stale(system):
                    shutil.rmtree(system)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from making or removing layers."""
        with (self._root / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _make(self, layer: Layer) -> Blob:
        started = time.monotonic()
        scratch = Path(tempfile.mkdtemp(dir=self._root / "scratch"))
        try:
            tree = Tree()
            workshop = Workshop(
                scratch=scratch,
                rootfs=lambda: debian.rootfs(self._root, self._progress),
                progress=self._progress,
            )
            layer.make(tree, workshop)
            blob = self._write(tree, scratch / "layer.tar")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        record = self._record(layer)
        part = record.with_suffix(".part")
        part.write_text(json.dumps({"digest": blob.digest, "size": blob.size}))
        part.rename(record)
        self._progress(
            f"layer {layer.name}: {blob.size / 1e6:.1f} MB in {time.monotonic() - started:.1f} s"
        )
        return blob

    def _write(self, tree: Tree, part: Path) -> Blob:
        with part.open("wb") as file:
            digester = Digester(file)
            tree.write(digester)
        path = self._blob(digester.digest)
        part.rename(path)
        return Blob(digest=digester.digest, size=digester.size, path=path)

    def _record(self, layer: Layer) -> Path:
        return self._root / "layers" / f"{layer.name}-{layer.key[:32]}.json"

    def _blob(self, digest: str) -> Path:
        return self._root / "blobs" / f"{digest.removeprefix('sha256:')}.tar"


def _is_stale(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > _KEPT
