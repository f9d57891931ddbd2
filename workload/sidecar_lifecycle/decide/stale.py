"""Detection of proxies that differ from those that the injector adds now."""

from __future__ import annotations

import re
from dataclasses import dataclass

from integrator_contract import names
from sidecar_lifecycle.decide import injector_status
from sidecar_lifecycle.model import types

_TAG = re.compile(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?!\d)", re.ASCII)
"""A version at the beginning of a tag, with a limited number of digits."""
_OWN_IMAGE = re.compile(r'"image": ?"(?!auto")')
"""An image in the containers that a pod customises, as istiod copies them."""
LONGEST_REVISION = 63
"""Characters of a revision, which is the value of a label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """The proxy of new pods; an empty field is unknown and makes no proxy old."""

    revision: str = ""
    """The revision that the injector writes into the pod, never a tag."""
    version: str = ""
    """Such as `1.31.1`."""

    @property
    def is_known(self) -> bool:
        """Whether any field is known."""
        return bool(self.revision or self.version)


UNKNOWN = Proxy()


def describe_age(pod: types.Pod, now: Proxy) -> str:
    """Describe how a pod's proxy is outdated; empty if it is current or unknown."""
    revision = injector_status.read(pod).revision
    is_known = now.revision and 0 < len(revision) <= LONGEST_REVISION
    if is_known and revision != now.revision:
        return f"its proxy is of revision {revision}, new ones are of {now.revision}"
    containers = (*pod.spec.initContainers, *pod.spec.containers)
    image = next((each.image for each in containers if each.name == names.PROXY), None)
    notes = pod.metadata.annotations
    if names.PROXY_IMAGE in notes or _OWN_IMAGE.search(notes.get(names.PROXY_OVERRIDES, "")):
        # A new pod would have the same image.
        return ""
    has, wants = _read_version(image or ""), _read_version(f":{now.version}")
    # Compare only the parts that both versions have.
    length = min(len(has), len(wants))
    if has[:length] < wants[:length]:
        return f"its proxy is {'.'.join(map(str, has))}, istiod is {now.version}"
    return ""


def _read_version(image: str) -> tuple[int, ...]:
    """Read the version in an image's tag; empty for other images, such as a digest alone."""
    tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
    found = _TAG.match(tag)
    return tuple(int(part) for part in found.groups() if part) if found else ()
