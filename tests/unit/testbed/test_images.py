"""Layers of images: the same content has the same digest, and other content has another."""

import os

import pytest

from testbed.images import store, tree


def tree_of(folder):
    entries = tree.Tree()
    entries.add_all(folder, "opt")
    return entries


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_text("a = 1\n")
    (folder / "link").symlink_to("a.py")
    return folder


def test_digest_does_not_depend_on_times_and_modes_of_the_checkout(source):
    before = tree_of(source).digest()
    os.utime(source / "a.py", (1, 1))
    (source / "a.py").chmod(0o600)
    assert tree_of(source).digest() == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda folder: (folder / "a.py").write_text("a = 2\n"), id="content"),
        pytest.param(lambda folder: (folder / "a.py").chmod(0o755), id="executable"),
        pytest.param(lambda folder: (folder / "a.py").rename(folder / "b.py"), id="name"),
        pytest.param(lambda folder: (folder / "new").mkdir(), id="directory"),
        pytest.param(
            lambda folder: ((folder / "link").unlink(), (folder / "link").symlink_to("b")),
            id="link",
        ),
    ],
)
def test_digest_changes_with_the_source(source, change):
    before = tree_of(source).digest()
    change(source)
    assert tree_of(source).digest() != before


def test_key_ignores_bytecode_and_tells_its_parts_apart(source):
    before = tree.content_key(source)
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    assert tree.content_key(source) == before
    assert tree.content_key("ab", "c") != tree.content_key("a", "bc")


@pytest.fixture
def cache(tmp_path):
    return store.Store(tmp_path, lambda _line: None)


def layer(key, content):
    return store.Layer(
        name="test", key=key, make=lambda entries, _workshop: entries.file("file", content)
    )


def test_layers_of_the_same_content_share_a_blob(cache, tmp_path):
    assert cache.get(layer("1", "a")) == cache.get(layer("2", "a"))
    assert cache.get(layer("3", "b")).digest != cache.get(layer("1", "a")).digest
    assert len(list((tmp_path / "blobs").iterdir())) == 2


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
