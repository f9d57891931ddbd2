"""The settings file of `admission` and `mutate`, as the charm writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Literal, TypeVar

import msgspec

from sidecar_lifecycle import names
from sidecar_lifecycle.rules import creation, selectors

T = TypeVar("T")


class SettingsError(ValueError):
    """The settings can't be used; the message says which and why."""


class _Strict(msgspec.Struct, rename="kebab", forbid_unknown_fields=True):
    """A mistyped setting is an error, not a setting without effect."""


class _Entries(_Strict):
    add: dict[str, str]
    pods: str = ""


class _Ports(_Strict):
    ports: list[Annotated[int, msgspec.Meta(ge=1, le=65535)]]
    pods: str = ""


class _Registries(_Strict):
    pods: Annotated[str, msgspec.Meta(min_length=1)]
    prefixes: dict[str, str]


class _File(_Strict):
    application: str
    model: str
    revision: str = ""
    membership: Literal["namespace", "selected", "none"] = "namespace"
    lifecycle_in_model: bool = True
    included_pods: str = ""
    excluded_pods: str = ""
    inject_label: dict[str, str] = msgspec.field(default_factory=lambda: {names.INJECT: "true"})
    hold_application: bool = True
    native: bool = False
    pod_labels: list[_Entries] = []
    pod_annotations: list[_Entries] = []
    excluded_outbound_ports: list[_Ports] = []
    image_registries: list[_Registries] = []


_DECODER = msgspec.json.Decoder(_File)


def load(text: bytes | str) -> creation.Settings:
    """Read settings from JSON.

    Raises:
        SettingsError: The text is no JSON, or a setting has a wrong name or value.
    """
    try:
        file = _DECODER.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SettingsError(str(error)) from error
    if len(file.inject_label) != 1:
        raise SettingsError("inject-label: exactly one label is needed")
    registries = _each("image-registries", file.image_registries, _registries)
    _refuse_chains(registries)
    return creation.Settings(
        application=file.application,
        model=file.model,
        revision=file.revision,
        membership=file.membership,
        lifecycle_in_model=file.lifecycle_in_model,
        included_pods=_selector("included-pods", file.included_pods),
        excluded_pods=_selector("excluded-pods", file.excluded_pods),
        inject_label=next(iter(file.inject_label.items())),
        hold_application=file.hold_application,
        native=file.native,
        pod_labels=_each("pod-labels", file.pod_labels, _entries),
        pod_annotations=_each("pod-annotations", file.pod_annotations, _entries),
        excluded_outbound_ports=_each(
            "excluded-outbound-ports", file.excluded_outbound_ports, _ports
        ),
        image_registries=registries,
    )


R = TypeVar("R", _Entries, _Ports, _Registries)


def _each(name: str, rules: Sequence[R], convert: Callable[[str, R], T]) -> tuple[T, ...]:
    return tuple(convert(f"{name}[{index}]", rule) for index, rule in enumerate(rules))


def _selector(name: str, text: str) -> selectors.Selector:
    try:
        return selectors.parse(text)
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from error


def _pods(name: str, text: str) -> selectors.Selector | None:
    return _selector(name, text) if text.strip() else None


def _entries(name: str, rule: _Entries) -> creation.Entries:
    return creation.Entries(pods=_pods(name, rule.pods), add=rule.add)


def _ports(name: str, rule: _Ports) -> creation.Ports:
    return creation.Ports(pods=_pods(name, rule.pods), ports=tuple(rule.ports))


# With a dot, a port or localhost in front: anything else would be read as a name on docker.io.
_PREFIX = re.compile(r"(localhost|[a-z0-9][-a-z0-9]*[.:][-a-z0-9.:]*[a-z0-9])(/[a-z0-9._-]+)*")


def _registries(name: str, rule: _Registries) -> creation.Registries:
    prefixes = sorted(rule.prefixes.items(), key=lambda pair: (-len(pair[0]), pair[0]))
    for prefix in (part for pair in prefixes for part in pair):
        if not _PREFIX.fullmatch(prefix):
            raise SettingsError(f"{name}: '{prefix}' is not a registry such as docker.io/library")
    return creation.Registries(pods=_selector(name, rule.pods), prefixes=tuple(prefixes))


def _refuse_chains(rules: Sequence[creation.Registries]) -> None:
    """A pod is mutated twice while the backends change: a new name must not be moved again."""
    pairs = [pair for rule in rules for pair in rule.prefixes]
    for _, new in pairs:
        for old, _ in pairs:
            if f"{new}/".startswith(f"{old}/"):
                raise SettingsError(f"image-registries: '{new}' would itself be moved by '{old}'")
