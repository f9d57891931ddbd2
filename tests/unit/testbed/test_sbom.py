"""A bill of materials lists what an archive holds."""

import io
import json
import re
import tarfile
import zipfile

import pytest

from testbed import paths, sbom

(NAME, VERSION, HASH), *_ = re.findall(
    r"^(aiohttp)==(\S+)(?: .*)? \\\n +--hash=sha256:(\w+)",
    (paths.SOURCE / "requirements/workload.txt").read_text(),
    re.MULTILINE,
)
PYTHON = f"pkg:pypi/{NAME}@{VERSION}"
STATUS = """\
Package: libc6
Status: install ok installed
Version: 2.39-0ubuntu8.4

Package: gone
Status: deinstall ok config-files
Version: 1
"""
UPGRADED = STATUS.replace("ubuntu8.4", "ubuntu8.5+esm1")


def metadata(name, version=VERSION):
    return f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nA description: Name: x\n"


def charm(folder, files):
    path = folder / "mesh-2.charm"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def tar(files):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def rock(folder, *layers):
    blobs = {}

    def described(content):
        digest = f"{len(blobs):064}"
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}"}

    made = [described(tar({n: t.encode() for n, t in files.items()})) for files in layers]
    index = {"manifests": [described(json.dumps({"layers": made}).encode())]}
    path = folder / "sidecar_0.1_amd64.rock"
    path.write_bytes(tar({"index.json": json.dumps(index).encode(), **blobs}))
    return path


def purls(archive):
    return [each["purl"] for each in sbom.describe(archive)["components"]]


SITE = "venv/lib/python3.12/site-packages"


def test_packages_of_a_charm_have_the_hashes_of_their_pins(tmp_path):
    other = {f"{SITE}/x/{NAME}.dist-info/METADATA": "", "src/METADATA": ""}
    made = charm(tmp_path, {f"{SITE}/{NAME}-1.dist-info/METADATA": metadata("AioHTTP"), **other})
    (component,) = sbom.describe(made)["components"]
    assert component["purl"] == PYTHON
    assert {"alg": "SHA-256", "content": HASH} in component["hashes"]
    assert sbom.describe(made) == sbom.describe(made)


def test_package_that_is_not_pinned_is_an_error(tmp_path):
    made = charm(tmp_path, {f"{SITE}/x-1.dist-info/METADATA": metadata(NAME, "0.0.1")})
    with pytest.raises(sbom.SbomError, match=f"do not pin {NAME}==0.0.1"):
        sbom.describe(made)


def test_packages_of_a_rock_are_those_of_its_last_layer_and_those_that_are_staged(tmp_path):
    base = {"./usr/lib/os-release": 'NAME=x\nID=ubuntu\nVERSION_ID="24.04"\n'}
    staged = "ii ,python3:amd64,3.12.3-0ubuntu2,python3-defaults,3.12.3-0ubuntu2\n"
    made = rock(
        tmp_path,
        {**base, "var/lib/dpkg/status": STATUS},
        {"var/lib/dpkg/status": UPGRADED, "usr/share/rocks/dpkg.query": staged},
        {f"opt/sidecar-lifecycle/{NAME}-1.dist-info/METADATA": metadata(NAME)},
    )
    assert purls(made) == [
        "pkg:deb/ubuntu/libc6@2.39-0ubuntu8.5%2Besm1?distro=ubuntu-24.04",
        "pkg:deb/ubuntu/python3@3.12.3-0ubuntu2?distro=ubuntu-24.04",
        PYTHON,
    ]


def test_file_is_beside_the_archive_without_version_and_architecture(tmp_path, capsys):
    base = {"usr/lib/os-release": "ID=ubuntu\nVERSION_ID=24.04\n"}
    assert sbom.main([str(rock(tmp_path, base))]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "sidecar.rock.cdx.json")
