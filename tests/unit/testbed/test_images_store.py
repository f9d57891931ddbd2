import json
import os
import time

import pytest

from testbed.images import store


@pytest.fixture
def lines():
    return []


@pytest.fixture
def cache(tmp_path, lines):
    return store.Store(tmp_path, lines.append)


def layer(key: str, content: str, made: list[str] | None = None) -> store.Layer:
    def make(tree, workshop):
        if made is not None:
            made.append(key)
        (workshop.scratch / "work").write_text(content)
        tree.file("file", workshop.scratch / "work")

    return store.Layer(name="test", key=key, make=make)


def test_layer_asked_for_twice_is_made_once(cache, lines):
    made: list[str] = []
    first = cache.get(layer("1", "a", made))
    again = cache.get(layer("1", "a", made))
    assert first == again
    assert made == ["1"]
    assert len(lines) == 1


def test_layer_of_another_key_with_the_same_content_shares_the_blob(cache, tmp_path):
    assert cache.get(layer("1", "a")) == cache.get(layer("2", "a"))
    assert len(list((tmp_path / "blobs").iterdir())) == 1


def test_layer_of_another_key_with_other_content_has_another_digest(cache):
    assert cache.get(layer("1", "a")).digest != cache.get(layer("2", "b")).digest


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.unlink(), id="missing"),
        pytest.param(lambda path: path.write_bytes(b""), id="cut off"),
    ],
)
def test_layer_whose_blob_is_damaged_is_made_again(cache, damage):
    blob = cache.get(layer("1", "a"))
    damage(blob.path)
    assert cache.find(layer("1", "a")) is None
    assert cache.get(layer("1", "a")) == blob
    assert blob.path.stat().st_size == blob.size


def test_layer_that_fails_leaves_nothing(cache, tmp_path):
    def fail(_tree, _workshop):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.get(store.Layer(name="test", key="1", make=fail))
    for folder in ("layers", "blobs", "scratch"):
        assert not list((tmp_path / folder).iterdir())


def test_prune_removes_what_was_not_used_for_long_and_keeps_shared_blobs(cache, tmp_path):
    kept = cache.get(layer("kept", "a"))
    cache.get(layer("old, same content", "a"))
    gone = cache.get(layer("old", "b"))
    (tmp_path / "rootfs-old").mkdir()
    (tmp_path / "rootfs-new").mkdir()
    long_ago = time.time() - 15 * 24 * 3600
    os.utime(tmp_path / "rootfs-old", (long_ago, long_ago))
    for record in (tmp_path / "layers").iterdir():
        if "old" in record.name:
            os.utime(record, (long_ago, long_ago))
    cache.prune()
    assert cache.find(layer("kept", "a")) == kept
    assert cache.find(layer("old", "b")) is None
    assert not gone.path.exists()
    assert [path.name for path in tmp_path.glob("rootfs-*")] == ["rootfs-new"]


def test_use_of_a_layer_keeps_it_from_being_pruned(cache, tmp_path):
    blob = cache.get(layer("1", "a"))
    long_ago = time.time() - 15 * 24 * 3600
    (record,) = (tmp_path / "layers").iterdir()
    os.utime(record, (long_ago, long_ago))
    cache.find(layer("1", "a"))
    cache.prune()
    assert blob.path.exists()


def test_record_says_digest_and_size(cache, tmp_path):
    blob = cache.get(layer("1", "a"))
    (record,) = (tmp_path / "layers").iterdir()
    assert json.loads(record.read_text()) == {"digest": blob.digest, "size": blob.size}
