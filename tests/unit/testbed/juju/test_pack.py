import os
import stat
import zipfile

import pytest

from testbed.juju import pack
from testbed.juju.agent import archive


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "charm"
    (folder / "src" / "__pycache__").mkdir(parents=True)
    (folder / "src" / "__pycache__" / "charm.pyc").touch()
    (folder / "src" / "charm.py").write_text("print('hello')\n")
    (folder / "metadata.yaml").write_text("name: packed\n")
    (folder / "templates").mkdir()
    (folder / "templates" / "one.yaml").touch()
    (folder / "tests").mkdir()
    (folder / "tests" / "test_it.py").touch()
    return folder


def test_archive_holds_what_charmcraft_would_stage(source, tmp_path):
    packed = pack.pack(source, tmp_path / "out")
    assert packed.name == "packed.charm"
    with zipfile.ZipFile(packed) as charm:
        names = set(charm.namelist())
    assert names == {
        "dispatch", "manifest.yaml", "metadata.yaml", "src/charm.py", "templates/one.yaml",
    }  # fmt: skip


def test_unpacking_restores_modes_and_links(source, tmp_path):
    (source / "lib").mkdir()
    (source / "lib" / "link").symlink_to("/somewhere")
    archive.unpack(pack.pack(source, tmp_path / "a.charm"), tmp_path / "unpacked")
    assert os.access(tmp_path / "unpacked" / "dispatch", os.X_OK)
    assert stat.S_IMODE((tmp_path / "unpacked" / "metadata.yaml").stat().st_mode) == 0o644
    assert (tmp_path / "unpacked" / "lib" / "link").readlink().as_posix() == "/somewhere"


def test_folder_without_metadata_is_refused(tmp_path):
    with pytest.raises(pack.PackError, match="not a charm"):
        pack.pack(tmp_path, tmp_path)
