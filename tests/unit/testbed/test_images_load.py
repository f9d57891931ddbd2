import hashlib
import sys
import tarfile

import pytest

from testbed import images
from testbed.images import archive, store

CTR = """\
import pathlib, shutil, sys
home = pathlib.Path(sys.argv[1])
if sys.argv[3] == "list":
    print((home / sys.argv[2]).read_text())
    sys.exit()
assert sys.argv[2:] == ["images", "import", "-"], sys.argv
number = len(list(home.glob("imported-*")))
with (home / f"imported-{number}").open("wb") as file:
    shutil.copyfileobj(sys.stdin.buffer, file)
failures = home / "failures"
left = int(failures.read_text())
failures.write_text(str(left - 1))
sys.exit("content digest: not found" if left > 0 else 0)
"""


@pytest.fixture
def node(tmp_path):
    """A containerd that has nothing, takes every import and keeps what it was sent."""
    (tmp_path / "ctr.py").write_text(CTR)
    for name, text in {"images": "", "content": "", "failures": "0"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def ctr(node):
    return [sys.executable, str(node / "ctr.py"), str(node)]


@pytest.fixture(autouse=True)
def image(node, monkeypatch):
    layers = []
    for content in (b"base", b"code"):
        path = node / f"{content.decode()}.tar"
        path.write_bytes(content)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        layers.append(store.Blob(digest=digest, size=len(content), path=path))
    image = archive.Image(reference="localhost/testbed/app:1", config={}, layers=layers)
    monkeypatch.setattr(images, "build", lambda *_: {"app": image})
    return image


def imported(node) -> list[set[bytes]]:
    """The blobs of each import, in order."""
    found = []
    for path in sorted(node.glob("imported-*")):
        with tarfile.open(path) as tar:
            found.append({tar.extractfile(member).read() for member in tar})
    return found


def test_load_into_an_empty_containerd_sends_everything(node, ctr):
    assert images.load(["app"], ctr) == {"app": "localhost/testbed/app:1"}
    (sent,) = imported(node)
    assert {b"base", b"code"} <= sent


def test_load_of_a_known_image_sends_nothing(node, ctr):
    (node / "images").write_text("localhost/testbed/app:1\n")
    assert images.load(["app"], ctr) == {"app": "localhost/testbed/app:1"}
    assert imported(node) == []


def test_load_with_a_layer_present_sends_the_others(node, ctr, image):
    (node / "content").write_text(f"{image.layers[0].digest}\n")
    images.load(["app"], ctr)
    (sent,) = imported(node)
    assert b"base" not in sent
    assert b"code" in sent


def test_load_refused_without_a_layer_is_sent_whole(node, ctr, image):
    (node / "content").write_text(f"{image.layers[0].digest}\n")
    (node / "failures").write_text("1")
    images.load(["app"], ctr)
    thin, whole = imported(node)
    assert b"base" not in thin
    assert b"base" in whole


def test_load_refused_whole_says_what_containerd_said(node, ctr):
    (node / "failures").write_text("1")
    with pytest.raises(images.ImageError, match="content digest: not found"):
        images.load(["app"], ctr)


def test_load_without_containerd_says_so(ctr):
    with pytest.raises(images.ImageError, match="ctr failed"):
        images.load(["app"], [sys.executable, "-c", "import sys; sys.exit('no socket')"])
