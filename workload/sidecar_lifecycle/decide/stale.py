"""Is a pod's proxy the one that the injector would give it now."""

from __future__ import annotations

import re
from dataclasses import dataclass

from integrator_contract import names
from sidecar_lifecycle.decide import injector_status
from sidecar_lifecycle.model import types

_TAG = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?!\d)", re.ASCII)
"""A version at the beginning of a tag, each part of it shorter than any number is long."""
LONGEST_REVISION = 63
"""Characters of a revision, which is the value of a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """What new pods get; an empty field is not known, and nothing is old because of it."""

    revision: str = ""
    """As the injector writes it into the pod, so never a tag."""
    version: str = ""
    """Such as `1.31.1`."""

    @property
    def known(self) -> bool:
        """Whether anything can be told from it."""
        return bool(self.revision or self.version)


UNKNOWN = Proxy()


def behind(pod: types.Pod, now: Proxy) -> str:
    """Say in what way a pod's proxy is not of today; empty where it is, or nobody can tell."""
    revision = _revision(pod)
    if now.revision and revision and revision != now.revision:
        return f"its proxy is of revision {revision}, new ones are of {now.revision}"
    image = _image(pod)
    has, wants = _version(image), _version(f":{now.version}")
    if has and wants and _older(has, wants):
        return f"its proxy is {'.'.join(map(str, has))}, istiod is {now.version}"
    return ""


def _revision(pod: types.Pod) -> str:
    revision = injector_status.read(pod).revision
    return revision if len(revision) <= LONGEST_REVISION else ""


def _image(pod: types.Pod) -> str:
    for each in (*pod.spec.initContainers, *pod.spec.containers):
        if each.name == names.PROXY:
            return each.image or ""
    return ""


def _version(image: str) -> tuple[int, ...]:
    """Read the tag of an image; custom ones, such as a digest alone, say nothing."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = _TAG.match(tag)
    return tuple(int(part) for part in found.groups() if part) if found else ()


def _older(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Compare as far as both say."""
    length = min(len(one), len(other))
    return one[:length] < other[:length]
