"""Images as OCI archives, complete or without the parts that the receiver has."""

import dataclasses
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, BinaryIO

from testbed.images.store import Blob
from testbed.images.tree import TIME

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Image:
    """A built image: its name, its settings, and its layers in the cache."""

    reference: str
    config: Mapping[str, Any]
    """The `config` object of the OCI image configuration: Entrypoint, User, Env and so on."""
    layers: Sequence[Blob]

    def configuration(self) -> bytes:
        """Return the OCI image configuration."""
        return _json(
            {
                "architecture": architecture(),
                "os": "linux",
                "created": "1980-01-01T00:00:00Z",
                "config": dict(self.config),
                "rootfs": {"type": "layers", "diff_ids": [each.digest for each in self.layers]},
            }
        )

    def manifest(self) -> bytes:
        """Return the OCI image manifest."""
        layers = [
            {"mediaType": _LAYER, "digest": each.digest, "size": each.size} for each in self.layers
        ]
        return _json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _descriptor(_CONFIG, self.configuration()),
                "layers": layers,
            }
        )


def architecture() -> str:
    """Return this machine's architecture by the name that container images use."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def write(stream: BinaryIO, images: Iterable[Image], present: Collection[str] = ()) -> None:
    """Write one archive of several images.

    Args:
        stream: where to; it need not be seekable.
        images: what to write.
        present: digests that the receiver has: these blobs are left out.
    """
    images = list(images)
    manifests = [
        {
            **_descriptor(_MANIFEST, image.manifest()),
            "annotations": {
                "io.containerd.image.name": image.reference,
                "org.opencontainers.image.ref.name": image.reference.rpartition(":")[2],
            },
        }
        for image in images
    ]
    index = {"schemaVersion": 2, "manifests": manifests}
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", _json(index))
        written = set(present)
        for image in images:
            for content in (image.manifest(), image.configuration()):
                digest = _digest(content)
                if digest not in written:
                    written.add(digest)
                    _add(archive, _blob_path(digest), content)
            for layer in image.layers:
                if layer.digest not in written:
                    written.add(layer.digest)
                    with layer.path.open("rb") as file:
                        archive.addfile(_info(_blob_path(layer.digest), layer.size), file)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _descriptor(media_type: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    info.mtime = TIME
    return info


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    archive.addfile(_info(name, len(content)), io.BytesIO(content))
