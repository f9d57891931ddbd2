"""The system that a charm lives in: the one of all images, or a later one with a newer Python."""

import dataclasses
import json
import platform
import re
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import yaml
from packaging import specifiers

from testbed import errors
from testbed.images import debian

USUAL = "charm"
"""The image of charms that need nothing newer."""

_UBUNTU = {"22.04": "3.10", "24.04": "3.12", "26.04": "3.14"}
"""The Python of releases that charms are made for; of later ones the last is assumed."""
_RELEASE = re.compile(r'(?:ubuntu@|"channel": ")(\d\d\.\d\d)')
_UNREADABLE = (zipfile.BadZipFile, yaml.YAMLError)
_CARET = re.compile(r"\^(\d+)(\.\d+)*")


class BaseError(errors.TestbedError):
    """A charm needs a Python that no image has, or does not say which in words that are known."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Base:
    """A system for charms."""

    image: str
    """Its name in `testbed.images`."""
    name: str
    channel: str
    """Name and number of the release, as a charm's manifest has them."""
    python: str
    """As in `3.11`."""


def known() -> list[Base]:
    """Return the systems that there are, the usual one first."""
    system = platform.freedesktop_os_release()
    name, channel = system.get("ID", ""), system.get("VERSION_ID", "")
    found = [Base(image=USUAL, name=name, channel=channel, python=image_python())]
    if later := debian.newer():
        found.append(
            Base(image="charm-newer", name=name, channel=later.channel, python=later.python)
        )
    return found


def image_python() -> str:
    """Return the version of the usual charm image's Python, as in `3.11`.

    Images are made from the machine's own Debian or Ubuntu release, so it is the system's.
    """
    try:
        return debian.python_version(Path("/"))
    except OSError:
        return f"{sys.version_info.major}.{sys.version_info.minor}"


def choose(source: Path) -> Base:
    """Return the first system whose Python a charm's folder asks for.

    pyproject.toml says which ones will do. Without it, the oldest Ubuntu of charmcraft.yaml has
    the oldest, and where none is as new the newest has to do.

    Raises:
        BaseError: when pyproject.toml asks for a Python that there is not.
    """
    there = known()
    if wanted := _required(source / "pyproject.toml"):
        for base in there:
            # Any release of it will do: the image has one of the last.
            if wanted.contains(f"{base.python}.99"):
                return base
        has = " and ".join(base.python for base in there)
        raise BaseError(f"{source}: needs Python {wanted}; the charm images have {has}")
    oldest = _of_base(source / "charmcraft.yaml")
    return next((base for base in there if _numbers(base.python) >= oldest), there[-1])


def image_of(charm: Path) -> str:
    """Return the name of the image that a packed charm lives in, by its manifest."""
    try:
        with zipfile.ZipFile(charm) as archive:
            manifest: Any = yaml.safe_load(archive.read("manifest.yaml"))
        given = [(one.get("name"), one.get("channel")) for one in manifest["bases"]]
    except (OSError, KeyError, TypeError, AttributeError, ValueError, *_UNREADABLE):
        # Whether it is a charm at all is for the controller to say.
        return USUAL
    fitting = (base.image for base in known() if (base.name, base.channel) in given)
    return next(fitting, USUAL)


def _required(file: Path) -> specifiers.SpecifierSet | None:
    """The Pythons that a project is for, None where it does not say."""
    if not file.exists():
        return None
    try:
        content = tomllib.loads(file.read_text())
        poetry = content.get("tool", {}).get("poetry", {}).get("dependencies", {})
        text = content.get("project", {}).get("requires-python") or poetry.get("python")
        return specifiers.SpecifierSet(_CARET.sub(_uncaret, text)) if text else None
    except (ValueError, TypeError, AttributeError) as error:
        raise BaseError(f"{file}: {error}") from error


def _uncaret(found: "re.Match[str]") -> str:
    # Poetry's own word for "until the next major version".
    return f">={found[0][1:]},<{int(found[1]) + 1}"


def _of_base(file: Path) -> tuple[int, ...]:
    try:
        recipe: Any = yaml.safe_load(file.read_text()) if file.exists() else {}
    except (ValueError, yaml.YAMLError) as error:
        raise BaseError(f"{file}: {error}") from error
    given = recipe if isinstance(recipe, dict) else {}
    said = json.dumps([given.get(key) for key in ("base", "platforms", "bases")], default=str)
    releases = _RELEASE.findall(said)
    if not releases:
        return ()
    last = max(_UBUNTU)
    return _numbers(_UBUNTU.get(min(releases), _UBUNTU[last] if min(releases) > last else "3"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
