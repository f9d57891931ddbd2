import io
import os
import tarfile

import pytest

from testbed.images import tree


def tar(entries: tree.Tree) -> bytes:
    stream = io.BytesIO()
    entries.write(stream)
    return stream.getvalue()


def members(entries: tree.Tree) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(tar(entries))) as archive:
        return {member.name: member for member in archive.getmembers()}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_text("a = 1\n")
    (folder / "sub" / "run").write_text("#!/usr/bin/python3\n")
    (folder / "sub" / "run").chmod(0o755)
    (folder / "link").symlink_to("a.py")
    return folder


def test_tar_same_entries_in_another_order_is_the_same():
    one, other = tree.Tree(), tree.Tree()
    one.file("etc/a", "1")
    one.directory("etc/b", owner=1337)
    other.directory("/etc/b/", owner=1337)
    other.file("/etc/a", b"1")
    assert tar(one) == tar(other)


def test_tar_source_touched_and_opened_up_is_the_same(source):
    first = tree.Tree()
    first.add_all(source, "opt")
    before = tar(first)
    os.utime(source / "a.py", (1, 1))
    (source / "a.py").chmod(0o600)
    again = tree.Tree()
    again.add_all(source, "opt")
    assert tar(again) == before


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
def test_digest_source_changed_changes(source, change):
    first = tree.Tree()
    first.add_all(source, "opt")
    before = first.digest()
    change(source)
    after = tree.Tree()
    after.add_all(source, "opt")
    assert after.digest() != before


def test_digest_is_that_of_the_tar():
    entries = tree.Tree()
    entries.file("a", "1")
    written = tree.Digester(io.BytesIO())
    entries.write(written)
    assert entries.digest() == written.digest


def test_entries_name_nothing_of_this_machine(source):
    entries = tree.Tree()
    entries.add_all(source, "opt")
    for member in members(entries).values():
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
        assert member.mtime == tree.TIME


def test_file_without_directories_gets_its_parents_first():
    entries = tree.Tree()
    entries.file("usr/local/bin/envoy", b"", mode=0o755)
    found = members(entries)
    assert list(found) == ["usr", "usr/local", "usr/local/bin", "usr/local/bin/envoy"]
    assert found["usr/local"].isdir()
    assert found["usr/local/bin/envoy"].mode == 0o755


def test_directory_declared_after_its_file_keeps_its_mode():
    entries = tree.Tree()
    entries.file("var/x/file", b"")
    entries.directory("var/x", mode=0o1777, owner=5)
    assert (members(entries)["var/x"].mode, members(entries)["var/x"].uid) == (0o1777, 5)


def test_add_all_normalises_modes_and_keeps_links(source):
    (source / "a.py").chmod(0o666)
    entries = tree.Tree()
    entries.add_all(source, "opt", skip=lambda path: path == "sub/run")
    found = members(entries)
    assert found["opt/a.py"].mode == 0o644
    assert found["opt/link"].linkname == "a.py"
    assert "opt/sub/run" not in found


def test_copy_all_keeps_modes_and_leaves_out_special_files(source):
    (source / "a.py").chmod(0o4711)
    os.mkfifo(source / "pipe")
    entries = tree.Tree()
    entries.copy_all(source, skip=lambda path: path == "sub")
    assert members(entries)["a.py"].mode == 0o4711
    assert list(entries) == ["a.py", "link"]


def test_read_keeps_what_was_there_when_it_was_called(source):
    entries = tree.Tree()
    entries.add_all(source, "opt")
    entries.read()
    before = entries.digest()
    (source / "a.py").write_text("something else\n")
    assert entries.digest() == before


def test_unpack_writes_the_same_tree(source, tmp_path):
    entries = tree.Tree()
    entries.add_all(source, "opt")
    target = tmp_path / "target"
    target.mkdir()
    entries.unpack(target)
    again = tree.Tree()
    again.add_all(target, "")
    assert again.digest() == entries.digest()


def test_content_key_ignores_bytecode_and_times(source):
    before = tree.content_key(source)
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    os.utime(source / "a.py", (1, 1))
    assert tree.content_key(source) == before


def test_content_key_parts_are_not_run_together():
    assert tree.content_key("ab", "c") != tree.content_key("a", "bc")
    assert tree.content_key("ab") != tree.content_key(b"ab")
