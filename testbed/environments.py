"""Python environments of tools that do not get along with the project's own."""

import fcntl
import hashlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from testbed import command_line, errors, paths


class EnvironmentFailed(errors.TestbedError):
    """An environment could not be made."""


def ensure(name: str, python: str = sys.executable, links: Iterable[Path] = ()) -> Path:
    """Return the environment of `requirements/NAME.txt` in the cache, made when it is missing.

    Args:
        name: Of the file with hashed pins.
        python: The interpreter that it is for.
        links: Modules of the system's own that go in as they are.

    Raises:
        EnvironmentFailed: when its packages can't be installed.
    """
    requirements = paths.SOURCE / "requirements" / f"{name}.txt"
    inputs = ["1", python, sys.version, *map(str, links), requirements.read_text()]
    key = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
    folder = paths.cache() / "environments" / f"{name}-{key}"
    if (folder / "complete").exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _make(name, folder, python, requirements, links)
    return folder


def _make(name: str, folder: Path, python: str, requirements: Path, links: Iterable[Path]) -> None:
    print(f"{name}: making its Python environment", file=sys.stderr, flush=True)
    # Scripts name the place where they were made, so it is made where it stays.
    _run(name, python, "-m", "venv", "--clear", "--without-pip", folder)
    interpreter = folder / "bin" / "python"
    _run(
        name,
        *(sys.executable, "-m", "uv", "pip", "install", "--quiet"),
        *("--python", interpreter, "--require-hashes", "-r", requirements),
    )
    for module in links:
        target = next(folder.glob("lib/python*/site-packages")) / module.name
        target.unlink(missing_ok=True)
        target.symlink_to(module)
    (folder / "complete").touch()


def _run(name: str, *command: str | Path) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise EnvironmentFailed(f"{name}: {' '.join(map(str, command))}: {run.stderr.strip()}")


def main(argv: list[str] | None = None) -> int:
    """Make an environment and print where it is: `python -m testbed.environments`."""
    parser = command_line.parser(
        "testbed.environments",
        "Make the Python environment of requirements/NAME.txt and print where it is.",
        "python -m testbed.environments integration",
    )
    parser.add_argument("name", metavar="NAME")
    try:
        print(ensure(parser.parse_args(argv).name))
    except (EnvironmentFailed, FileNotFoundError) as error:
        print(f"environments: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
