"""The settings by which admission changes new pods, and their limits.

The charm writes them as JSON, named as its options (`pod-labels`). The webhook reads them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeGuard, TypeVar, cast

from . import names, selectors

Membership = Literal["namespace", "selected", "none"]
"""How the model's pods join the mesh: by their namespace, by a selector, or not at all."""
DataPlane = Literal["sidecar", "ambient"]
"""How pods are in the mesh: by a proxy in each pod, or by their node's proxy."""

LONGEST_VALUE = 65536
HIGHEST_PORT = 65535

_OTHERS = re.compile(r"(?:[^/]*\.)?juju\.is/.*|(?:kubernetes|k8s)\.io/.*", re.DOTALL)
# Juju's Services and Kubernetes' controllers select pods by these labels.
_SELECTED = frozenset((names.NAME, names.MANAGED_BY, *names.OF_ONE_POD))
_OTHERS_LABELS = re.compile(rf"(?:[^/]*\.)?istio\.io/.*|{re.escape(names.PREFIX)}.*", re.DOTALL)
_OUR_ANNOTATIONS = frozenset((names.APPLIED, names.SETTINGS))
# The first part has a dot or a port, or is localhost: otherwise it would be a name on docker.io.
# Container runtimes reject a longer image name.
_REGISTRY = re.compile(
    r"(?=.{1,255}\Z)(?:localhost|[a-z0-9][-a-z0-9]*[.:][-a-z0-9.:]*[a-z0-9])(?:/[a-z0-9._-]+)*"
)

_T = TypeVar("_T")


def is_port(value: object) -> TypeGuard[int]:
    """Tell whether a value is a port number; a bool, an int in Python, is not."""
    return type(value) is int and 1 <= value <= HIGHEST_PORT


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A change of selected pods."""

    pods: str = ""
    """A label selector; empty: every pod."""

    def __post_init__(self) -> None:
        selectors.parse(self.pods)

    @functools.cached_property
    def selector(self) -> selectors.Selector:
        """The requirements of `pods`."""
        return selectors.parse(self.pods)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the rule selects a pod with these labels."""
        return not self.selector or selectors.matches(self.selector, labels)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entries(Rule):
    """Labels or annotations that are added to selected pods that lack them."""

    add: Mapping[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ports(Rule):
    """Outbound ports that bypass the proxy of selected pods."""

    ports: tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        for port in self.ports:
            if not is_port(port):
                raise ValueError(f"{port!r} is not a port")

    def merge(self, others: Iterable[int]) -> Ports:
        """Return the rule with the mesh-wide ports added: a pod's own list replaces them."""
        return dataclasses.replace(self, ports=tuple(dict.fromkeys((*self.ports, *others))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Registries(Rule):
    """Replacements of the registries of selected pods' images; needs a selector."""

    prefixes: Mapping[str, str]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.pods.strip():
            raise ValueError("'' is not a label selector")
        for prefix in (part for pair in self.prefixes.items() for part in pair):
            if not _REGISTRY.fullmatch(prefix):
                raise ValueError(f"'{prefix}' is not a registry such as docker.io/library")

    @functools.cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The old and the new prefixes, the longest old one first."""
        return tuple(sorted(self.prefixes.items(), key=lambda pair: (-len(pair[0]), pair)))


def check_labels(rules: Iterable[Entries]) -> None:
    """Raise ValueError about a label that is invalid or not the operator's to set."""
    for key, value in (pair for rule in rules for pair in rule.add.items()):
        _check_key(key, taken=bool(_OTHERS_LABELS.fullmatch(key)))
        if not selectors.is_value(value):
            raise ValueError(f"{value!r} of {key} is not a label value")


def _check_annotations(rules: Iterable[Entries]) -> None:
    for key, value in (pair for rule in rules for pair in rule.add.items()):
        _check_key(key, taken=key in _OUR_ANNOTATIONS)
        if len(value) > LONGEST_VALUE:
            raise ValueError(f"the value of {key} is longer than {LONGEST_VALUE} characters")


def _check_registries(rules: Iterable[Registries]) -> None:
    """Reject a new name that would be replaced again: a pod may be mutated twice."""
    moved = {old for rule in rules for old in rule.prefixes}
    for new in {new for rule in rules for new in rule.prefixes.values()}:
        for prefix in itertools.accumulate(new.split("/"), "{}/{}".format):
            if prefix in moved:
                raise ValueError(f"'{new}' would itself be moved by '{prefix}'")


def _check_key(key: str, *, taken: bool) -> None:
    if not selectors.is_key(key):
        raise ValueError(f"'{key}' is not a key such as team or example.com/team")
    if taken or key in _SELECTED or _OTHERS.fullmatch(key):
        raise ValueError(f"'{key}' is reserved: Juju, Kubernetes, Istio or this charm uses it")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Members:
    """The pods of the model that join the mesh, and how."""

    membership: Membership = "namespace"
    data_plane: DataPlane = "sidecar"
    included_pods: str = ""
    """With membership `selected`, the selector of the pods that join."""
    excluded_pods: str = ""

    @functools.cached_property
    def included(self) -> selectors.Selector:
        """The requirements of `included_pods`; an empty selector selects nothing."""
        return selectors.parse(self.included_pods)

    @functools.cached_property
    def excluded(self) -> selectors.Selector:
        """The requirements of `excluded_pods`; an empty selector selects nothing."""
        return selectors.parse(self.excluded_pods)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PodRules:
    """Changes of pods other than the sidecar, each from the option of the same name."""

    pod_labels: tuple[Entries, ...] = ()
    pod_annotations: tuple[Entries, ...] = ()
    excluded_outbound_ports: tuple[Ports, ...] = ()
    image_registries: tuple[Registries, ...] = ()

    def __post_init__(self) -> None:
        _check_setting("pod-labels", check_labels, self.pod_labels)
        _check_setting("pod-annotations", _check_annotations, self.pod_annotations)
        _check_setting("image-registries", _check_registries, self.image_registries)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of all options."""
        entries = (*self.pod_labels, *self.pod_annotations)
        return (*entries, *self.excluded_outbound_ports, *self.image_registries)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Members, PodRules):
    """The changes of new pods, from the charm's options and the mesh."""

    application: str
    model: str
    digest: str = ""
    """Identifies these settings: the charm's dry-run pod returns it once they are in effect."""
    lifecycle_in_model: bool = True
    """Whether pods of the model get changes other than their mesh membership."""
    inject_label: Mapping[str, str] = dataclasses.field(
        default_factory=lambda: {names.INJECT: "true"}
    )
    """The label by which a pod joins the mesh in a namespace that is not a member."""
    hold_application: bool = True
    mesh_holds: bool = False
    """Whether MeshConfig holds applications, so that some pods need to opt out."""
    native: bool = False
    """Whether pods that need a native sidecar ask for one."""
    pod_traffic: bool = False
    """Whether pods of training jobs call other pods by mutual TLS."""
    left_out: tuple[str, ...] = ()
    """Changes, as named in `mutate.CHANGES`, that another team's policy rejects."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_setting("included-pods", selectors.parse, self.included_pods)
        _check_setting("excluded-pods", selectors.parse, self.excluded_pods)
        if len(self.inject_label) != 1:
            raise ValueError("inject-label: exactly one label is needed")

    @property
    def outside_label(self) -> Mapping[str, str]:
        """The label that keeps a pod outside of the mesh."""
        return names.OUT_OF_AMBIENT if self.data_plane == "ambient" else {names.INJECT: "false"}

    @property
    def changes_lifecycle(self) -> bool:
        """Whether pods get any change other than their mesh membership."""
        by_mesh = self.hold_application or self.mesh_holds or self.native or self.pod_traffic
        return by_mesh or bool(self.rules)

    def to_document(self) -> dict[str, Any]:
        """Write the settings for JSON."""
        return {key.replace("_", "-"): value for key, value in dataclasses.asdict(self).items()}


def _check_setting(setting: str, check: Callable[[_T], object], value: _T) -> None:
    try:
        check(value)
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from error


def to_fields(document: object) -> dict[str, Any]:
    """Rename the keys of a JSON document to the fields of `Settings`, or raise ValueError."""
    if not isinstance(document, dict):
        raise ValueError("the settings are no object")  # noqa: TRY004 - as for all else here
    values = cast("dict[str, Any]", document)
    known = {each.name.replace("_", "-") for each in dataclasses.fields(Settings)}
    if unknown := values.keys() - known:
        raise ValueError(f"unknown field `{min(unknown)}`")
    return {key.replace("-", "_"): value for key, value in values.items()}
