"""A file tree in memory, written as the same tar whenever its content is the same."""

import dataclasses
import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol, cast

TIME = 315532800
"""Modification time of every entry: 1980-01-01, the oldest that zip files can hold too."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file, directory or symbolic link."""

    kind: bytes
    mode: int
    user: int = 0
    group: int = 0
    content: bytes | Path = b""
    target: str = ""


class Tree:
    """Entries by path, relative to the image's root and with `/` between the parts."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __getitem__(self, path: str) -> Entry:
        return self._entries[_relative(path)]

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and _relative(path) in self._entries

    def directory(self, path: str, *, mode: int = 0o755, owner: int = 0) -> None:
        """Add a directory; user and group are both `owner`."""
        self._add(path, Entry(kind=tarfile.DIRTYPE, mode=mode, user=owner, group=owner))

    def file(
        self, path: str, content: bytes | str | Path, *, mode: int = 0o644, owner: int = 0
    ) -> None:
        """Add a file from bytes, text, or another file, read when the tar is written."""
        if isinstance(content, str):
            content = content.encode()
        entry = Entry(kind=tarfile.REGTYPE, mode=mode, user=owner, group=owner, content=content)
        self._add(path, entry)

    def symlink(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(path, Entry(kind=tarfile.SYMTYPE, mode=0o777, target=target))

    def copy(self, source: Path, path: str) -> None:
        """Add a file, link or directory as it is, with owner and mode; no device nodes."""
        status = source.lstat()
        kind = _kind(status.st_mode)
        if kind is None:
            return
        entry = Entry(
            kind=kind,
            mode=stat.S_IMODE(status.st_mode),
            user=status.st_uid,
            group=status.st_gid,
            content=source if kind == tarfile.REGTYPE else b"",
            target=str(source.readlink()) if kind == tarfile.SYMTYPE else "",
        )
        self._add(path, entry)

    def copy_all(
        self, source: Path, path: str = "", *, skip: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Add what is below a directory as it is.

        Args:
            source: the directory.
            path: where it goes.
            skip: says of a path relative to `source` that it stays out, with all below it.
        """
        for child, relative in _walk(source, skip):
            self.copy(child, f"{path}/{relative}")

    def add_all(
        self, source: Path, path: str, *, skip: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Add what is below a directory as root's, whoever owns it and whatever the umask was."""
        for child, relative in _walk(source, skip):
            target = f"{path}/{relative}"
            if child.is_symlink():
                self.symlink(target, str(child.readlink()))
            elif child.is_dir():
                self.directory(target)
            else:
                executable = child.stat().st_mode & 0o100
                self.file(target, child, mode=0o755 if executable else 0o644)

    def read(self) -> None:
        """Read now what would be read when the tar is written, so that later edits don't count."""
        for path, entry in self._entries.items():
            if isinstance(entry.content, Path):
                content = entry.content.read_bytes()
                self._entries[path] = dataclasses.replace(entry, content=content)

    def update(self, other: "Tree") -> None:
        """Add all entries of another tree."""
        for path in other:
            self._entries[path] = other[path]

    def unpack(self, target: Path) -> None:
        """Write files and directories below a directory of the host, which is empty so far."""
        for path in self:
            entry = self._entries[path]
            if entry.kind == tarfile.DIRTYPE:
                (target / path).mkdir()
            elif entry.kind == tarfile.SYMTYPE:
                (target / path).symlink_to(entry.target)
            else:
                content = entry.content
                data = content.read_bytes() if isinstance(content, Path) else content
                (target / path).write_bytes(data)
                (target / path).chmod(entry.mode)

    def digest(self) -> str:
        """Return the digest that the tar has."""
        digester = Digester()
        self.write(digester)
        return digester.digest

    def write(self, stream: "Writable") -> None:
        """Write the tar: sorted, without times, names of users, or anything of this machine."""
        # In this mode only write() is called.
        file = cast("BinaryIO", stream)
        with tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path in self:
                _write_entry(archive, path, self._entries[path])

    def _add(self, path: str, entry: Entry) -> None:
        relative = _relative(path)
        for parent in reversed(PurePosixPath(relative).parents):
            if str(parent) != "." and str(parent) not in self._entries:
                self._entries[str(parent)] = Entry(kind=tarfile.DIRTYPE, mode=0o755)
        self._entries[relative] = entry


class Writable(Protocol):
    """What a tar is written to."""

    def write(self, data: bytes, /) -> int:
        """Take bytes."""
        ...


class Digester:
    """A binary stream that counts and hashes what passes through it, to another or to nowhere."""

    def __init__(self, stream: Writable | None = None) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes, /) -> int:
        """Pass on and hash."""
        self._hash.update(data)
        self.size += len(data)
        return self._stream.write(data) if self._stream else len(data)

    @property
    def digest(self) -> str:
        """The digest so far, as OCI writes it."""
        return f"sha256:{self._hash.hexdigest()}"


def content_key(*parts: str | bytes | Path) -> str:
    """Return a hash of texts, files, and directories with all that is below them.

    A file counts by its content and whether it may be executed; compiled Python does not count.
    """
    digest = hashlib.sha256()
    for part in parts:
        for label, content in _material(part):
            digest.update(f"{label}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()


def is_bytecode(path: str) -> bool:
    """Say whether a path is Python's own cache, left by running the code in the checkout."""
    name = PurePosixPath(path).name
    return name == "__pycache__" or name.endswith(".pyc")


def _material(part: str | bytes | Path) -> Iterator[tuple[str, bytes]]:
    if isinstance(part, str):
        yield "text", part.encode()
    elif isinstance(part, bytes):
        yield "bytes", part
    elif part.is_dir():
        for child, relative in _walk(part, is_bytecode):
            if child.is_symlink():
                yield f"link {relative}", str(child.readlink()).encode()
            elif child.is_file():
                yield f"file {relative} {child.stat().st_mode & 0o100}", child.read_bytes()
    else:
        yield f"file {part.stat().st_mode & 0o100}", part.read_bytes()


def _walk(source: Path, skip: Callable[[str], bool]) -> Iterator[tuple[Path, str]]:
    for folder, folders, files in os.walk(source):
        base = Path(folder)
        kept: list[str] = []
        for name in sorted([*folders, *files]):
            child = base / name
            relative = child.relative_to(source).as_posix()
            if skip(relative):
                continue
            kept.append(name)
            yield child, relative
        folders[:] = [name for name in folders if name in kept]


def _relative(path: str) -> str:
    return str(PurePosixPath(path.strip("/")))


def _kind(mode: int) -> bytes | None:
    if stat.S_ISDIR(mode):
        return tarfile.DIRTYPE
    if stat.S_ISLNK(mode):
        return tarfile.SYMTYPE
    return tarfile.REGTYPE if stat.S_ISREG(mode) else None


def _write_entry(archive: tarfile.TarFile, path: str, entry: Entry) -> None:
    info = tarfile.TarInfo(path)
    info.type = entry.kind
    info.mode = entry.mode
    info.uid, info.gid = entry.user, entry.group
    info.mtime = TIME
    info.linkname = entry.target
    if isinstance(entry.content, Path):
        with entry.content.open("rb") as content:
            info.size = os.fstat(content.fileno()).st_size
            archive.addfile(info, content)
    else:
        info.size = len(entry.content)
        archive.addfile(info, io.BytesIO(entry.content))
