"""Layers of images: the same content has the same digest, and other content has another."""

import os

import pytest

from testbed.images import tree
from tests.unit.cases import cases


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


@cases(
    "change",
    content=lambda folder: (folder / "a.py").write_text("a = 2\n"),
    executable=lambda folder: (folder / "a.py").chmod(0o755),
    name=lambda folder: (folder / "a.py").rename(folder / "b.py"),
    directory=lambda folder: (folder / "new").mkdir(),
    link=lambda folder: ((folder / "link").unlink(), (folder / "link").symlink_to("b")),
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
