"""Write the bill of materials of a packed charm or of a rock, as CycloneDX 1.6.

It lists what the archive holds: Python packages, with the hashes of their pins, and the packages
of Debian or Ubuntu. The same archive gives the same bytes.
"""

import email
import hashlib
import json
import re
import sys
import tarfile
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from testbed import command_line, errors, paths

_READ = re.compile(
    r"(?P<python>(?:venv/lib/[^/]+/site-packages|opt/[^/]+)/[^/]+\.dist-info/METADATA)"
    r"|(?P<dpkg>var/lib/dpkg/status)|(?P<staged>usr/share/rocks/dpkg\.query)"
    r"|(?P<system>usr/lib/os-release)"
)
"""Files that tell what an archive holds. Staged packages are not in dpkg's status."""
_PIN = re.compile(r"^([\w.-]+)==(\S+)(.*(?:\n +.*)*)", re.MULTILINE)


class SbomError(errors.TestbedError):
    """An archive holds a package that is not pinned."""


def describe(archive: Path) -> dict[str, Any]:
    """Return the bill of materials of an archive.

    Args:
        archive: A charm, which is a zip file, or an image as an OCI archive, which is a tar file.

    Raises:
        SbomError: A Python package of the archive is not pinned.
    """
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    is_charm = zipfile.is_zipfile(archive)
    files = dict(_read_charm(archive) if is_charm else _read_image(archive))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application" if is_charm else "container",
                "name": _name(archive),
                "version": command_line.version(),
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": sorted(
            (*_python_packages(files), *_system_packages(files)), key=lambda each: each["purl"]
        ),
    }


def _name(archive: Path) -> str:
    """Return what is packed: a rock's file name also has version and architecture."""
    return archive.stem.partition("_")[0]


def _read_charm(archive: Path) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if _READ.fullmatch(name):
                yield name, opened.read(name).decode()


def _read_image(archive: Path) -> Iterator[tuple[str, str]]:
    """Yield files of all layers: where several have a file, the last one counts."""
    with tarfile.open(archive) as outer:
        index = json.load(_open(outer, "index.json"))
        manifest = json.load(_open(outer, _blob(index["manifests"][0])))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=_open(outer, _blob(layer))) as inner:
                for member in inner:
                    name = member.name.removeprefix("./")
                    if member.isfile() and _READ.fullmatch(name):
                        yield name, _open(inner, member).read().decode()


def _blob(descriptor: dict[str, Any]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def _open(archive: tarfile.TarFile, member: str | tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member)
    assert file is not None, f"{member} is not a file"
    return file


def _python_packages(files: dict[str, str]) -> Iterator[dict[str, Any]]:
    pins = {
        (_normal(name), version): re.findall(r"--hash=sha256:(\w+)", rest)
        for file in ("charm", "workload")
        for name, version, rest in _PIN.findall(
            (paths.SOURCE / "requirements" / f"{file}.txt").read_text()
        )
    }
    for name, text in files.items():
        if not name.endswith("/METADATA"):
            continue
        about = email.message_from_string(text)
        key = _normal(about["Name"]), about["Version"]
        if key not in pins:
            raise SbomError(f"{name}: requirements/ do not pin {'=='.join(key)}")
        hashes = [{"alg": "SHA-256", "content": each} for each in pins[key]]
        yield {**_component(*key, f"pkg:pypi/{key[0]}@{key[1]}"), "hashes": hashes}


def _system_packages(files: dict[str, str]) -> Iterator[dict[str, Any]]:
    release = files.get("usr/lib/os-release", "")
    system = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)', release, re.MULTILINE))
    found: dict[str, str] = {}
    for paragraph in files.get("var/lib/dpkg/status", "").split("\n\n"):
        about = email.message_from_string(paragraph)
        if str(about["Status"]).endswith(" installed"):
            found[about["Package"]] = about["Version"]
    for line in files.get("usr/share/rocks/dpkg.query", "").splitlines():
        _, name, version, *_ = line.split(",")
        found[name.partition(":")[0]] = version
    for name, version in found.items():
        distribution = f"{system['ID']}-{system['VERSION_ID']}"
        purl = f"pkg:deb/{system['ID']}/{name}@{version.replace('+', '%2B')}?distro={distribution}"
        yield _component(name, version, purl)


def _component(name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(argv: list[str] | None = None) -> int:
    """Write from the command line: `python -m testbed.sbom`."""
    parser = command_line.parser(
        "testbed.sbom",
        "Write the bill of materials of charms and rocks, each beside its archive.",
        "python -m testbed.sbom build/istio-integrator.charm",
    )
    parser.add_argument("archives", type=Path, nargs="+", metavar="ARCHIVE")
    arguments = parser.parse_args(argv)
    for archive in arguments.archives:
        target = archive.with_name(f"{_name(archive)}{archive.suffix}.cdx.json")
        try:
            target.write_text(json.dumps(describe(archive), indent=2) + "\n")
        except errors.TestbedError as error:
            print(f"sbom: {error}", file=sys.stderr)
            return 1
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
