import hashlib
import io
import json
import tarfile

import pytest

from testbed.images import archive, store


@pytest.fixture
def blob(tmp_path):
    def make(content: bytes) -> store.Blob:
        digest = hashlib.sha256(content).hexdigest()
        path = tmp_path / digest
        path.write_bytes(content)
        return store.Blob(digest=f"sha256:{digest}", size=len(content), path=path)

    return make


@pytest.fixture
def image(blob):
    def make(name: str, *layers: bytes) -> archive.Image:
        return archive.Image(
            reference=f"localhost/testbed/{name}:1",
            config={"User": "1337:1337"},
            layers=[blob(content) for content in layers],
        )

    return make


def files(*args) -> dict[str, bytes]:
    stream = io.BytesIO()
    archive.write(stream, *args)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def follow(found: dict[str, bytes], descriptor: dict) -> bytes:
    content = found["blobs/" + descriptor["digest"].replace(":", "/")]
    assert len(content) == descriptor["size"]
    assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
    return content


def test_archive_of_one_image_can_be_followed_from_its_index(image):
    found = files([image("app", b"base", b"code")])
    (entry,) = json.loads(found["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/testbed/app:1"
    manifest = json.loads(follow(found, entry))
    config = json.loads(follow(found, manifest["config"]))
    layers = [follow(found, layer) for layer in manifest["layers"]]
    assert layers == [b"base", b"code"]
    assert config["rootfs"]["diff_ids"] == [each["digest"] for each in manifest["layers"]]
    assert config["config"] == {"User": "1337:1337"}
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}


def test_layer_of_several_images_is_written_once(image):
    found = files([image("app", b"base", b"a"), image("charm", b"base", b"b")])
    assert sorted(found.values()).count(b"base") == 1
    assert len(json.loads(found["index.json"])["manifests"]) == 2


def test_blobs_that_the_receiver_has_are_left_out(image, blob):
    one = image("app", b"base", b"code")
    found = files([one], [blob(b"base").digest])
    assert b"base" not in found.values()
    assert b"code" in found.values()


def test_archive_is_the_same_each_time(image, tmp_path):
    one = image("app", b"base", b"code")
    one.export(tmp_path / "1.tar")
    one.export(tmp_path / "2.tar")
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()
