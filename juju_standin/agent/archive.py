"""Unpack a packed charm with the modes and links that a plain extraction would lose."""

import shutil
import stat
import zipfile
from pathlib import Path


def unpack(packed: Path, target: Path) -> None:
    """Unpack beside the target, then move it there: a half-unpacked charm is never seen."""
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with zipfile.ZipFile(packed) as archive:
        for entry in archive.infolist():
            mode = entry.external_attr >> 16
            if stat.S_ISLNK(mode):
                link = partial / entry.filename
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(archive.read(entry).decode())
                continue
            path = Path(archive.extract(entry, partial))
            if mode and not entry.is_dir():
                path.chmod(stat.S_IMODE(mode))
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
