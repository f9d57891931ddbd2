"""Building beforehand what a target runs, and saying how much of it is left."""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testbed import images, node, options, paths, programs
from testbed.progress import Progress, say

_IMAGE = "image "

SECONDS: Mapping[str, float] = {
    "pebble": 6,
    "etcd": 21,
    "kubernetes": 311,
    "coredns": 65,
    "istio": 253,
    "istio-cni": 12,
    "training-operator": 75,
    "pause": 2,
    "jujuc": 4,
    "actionlint": 5,
    "oauth2-proxy": 45,
    "oracle": 10,
    "istio-oracle": 10,
    f"{_IMAGE}pause": 1,
    f"{_IMAGE}app": 60,
    f"{_IMAGE}workload": 10,
    f"{_IMAGE}charm": 3,
    f"{_IMAGE}proxy": 15,
    f"{_IMAGE}pilot": 2,
    f"{_IMAGE}cni": 2,
    f"{_IMAGE}training-operator": 2,
}
"""What each cost on two quiet cores, from nothing and after those before it.

Only how they compare matters: a machine's own pace is found while it builds.
"""

_PRIOR = 60.0
"""Seconds of `SECONDS` for which the number of processors is believed, not what was seen."""
_REMEMBERED = 1200.0
"""Seconds of `SECONDS` after which what was seen long ago counts less and less."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """What to build."""

    products: tuple[str, ...]
    images: tuple[str, ...]

    def missing(self) -> tuple[str, ...]:
        """Return what the cache lacks, in the order of building: keys of `SECONDS`."""
        lacking = [name for name in self.images if not images.is_built(name)]
        return (*programs.missing(self.products), *(_IMAGE + name for name in lacking))


def everything() -> Parts:
    """Return all that `make test` needs."""
    return Parts(programs.DEFAULT, images.DEFAULT)


def demo() -> Parts:
    """Return what the demo runs: both kinds of cluster, and charms on the stand-in for Juju."""
    wanted = options.Options(extras=("training-operator",))
    run = (*node.wanted_images(wanted), "charm", "workload")
    return Parts(
        # Charms live in Pebble, beside the hook tools; every pod has a pause.
        ("pebble", "jujuc", "pause", *node.products(wanted)),
        tuple(name for name in images.DEFAULT if name in run),
    )


PURPOSES: Mapping[str, Callable[[], Parts]] = {"all": everything, "demo": demo}


@dataclasses.dataclass(frozen=True)
class Pace:
    """How this machine compares with the one of `SECONDS`."""

    expected: float = 0.0
    """Seconds of `SECONDS` that it has built."""
    took: float = 0.0
    """Seconds that it took for them."""

    @property
    def factor(self) -> float:
        """How many times as long it takes."""
        first = 2 / (os.cpu_count() or 2)
        return (self.took + _PRIOR * first) / (self.expected + _PRIOR)

    def after(self, expected: float, took: float) -> "Pace":
        """Return what is known after one more part."""
        known = Pace(self.expected + expected, self.took + took)
        if known.expected <= _REMEMBERED:
            return known
        share = _REMEMBERED / known.expected
        return Pace(known.expected * share, known.took * share)

    def left(self, parts: Sequence[str], elapsed: float) -> float:
        """Return the seconds that parts still need.

        Args:
            parts: keys of `SECONDS`, the first of which is being built.
            elapsed: seconds since it began.
        """
        first, *later = (SECONDS[part] for part in parts)
        # What is late says how late the others will be.
        pace = self if elapsed <= first * self.factor else self.after(first, elapsed)
        return max(0.0, first * self.factor - elapsed) + pace.factor * sum(later)


def words(seconds: float) -> str:
    """Return an estimate as nobody takes it for more than that."""
    return f"about {round(seconds / 60)} min" if seconds >= 90 else "about a minute"


def ensure(parts: Parts, progress: Progress = say) -> None:
    """Build what the cache lacks, each line with an estimate of what is left.

    Raises:
        ProgramError: when a program can't be built.
        ImageError: when an image can't.
    """
    missing = list(parts.missing())
    if not missing:
        return
    pace = _remembered()
    progress(f"building {', '.join(missing)}: {words(pace.left(missing, 0))}")
    while missing:
        began = time.monotonic()
        _build(missing[0], _telling(progress, pace, tuple(missing), began))
        pace = pace.after(SECONDS[missing[0]], time.monotonic() - began)
        _remember(pace)
        missing = [name for name in parts.missing() if name in missing[1:]]


def _telling(progress: Progress, pace: Pace, missing: Sequence[str], began: float) -> Progress:
    def tell(line: str) -> None:
        left = pace.left(missing, time.monotonic() - began)
        progress(f"{line}; {words(left)} left in all")

    return tell


def _build(part: str, progress: Progress) -> None:
    name = part.removeprefix(_IMAGE)
    if name == part:
        programs.ensure([name], progress)
    else:
        images.build([name], progress)


def _record() -> Path:
    return paths.cache() / "pace.json"


def _remembered() -> Pace:
    # An estimate is no reason to fail.
    with contextlib.suppress(OSError, ValueError, TypeError):
        found = Pace(**json.loads(_record().read_text()))
        if found.expected >= 0 and found.took >= 0:
            return found
    return Pace()


def _remember(pace: Pace) -> None:
    with contextlib.suppress(OSError):
        _record().write_text(json.dumps(dataclasses.asdict(pace)))
