"""The options of `sidecar-lifecycle run`, which the charm writes and the workload reads.

A field is an option: `lifecycle_namespaces` is `--lifecycle-namespaces`. The charm fills a field
from its own option of the same name, where there is one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from . import names, namespaces, pods, selectors

Convergence = Literal["auto", "manual", "off"]
_CONVERGENCES = get_args(Convergence)
_MEMBERSHIPS = get_args(pods.Membership)
_DATA_PLANES = get_args(pods.DataPlane)

DRAINED_AFTER = 60.0
"""Seconds until connections from before a change of the gateway's filters have ended (Istio's
default is 45): they would be served our routes without our guard. The charm opens then, and the
workload tells it that the time has come."""

_T = TypeVar("_T")


def boolean(text: str) -> bool:
    """Read `true` or `false`.

    Raises:
        ValueError: It is neither.
    """
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def selector(text: str) -> str:
    """Read a label selector, and leave it as it is.

    Raises:
        ValueError: It is none.
    """
    selectors.parse(text)
    return text


def words(text: str) -> tuple[str, ...]:
    """Split a comma-separated list, as options and annotations have it."""
    return tuple(filter(None, (part.strip() for part in text.split(","))))


def kinds(text: str) -> frozenset[namespaces.Kind]:
    """Read kinds of namespaces, with commas between them.

    Raises:
        ValueError: One is not known.
    """
    return namespaces.kinds(words(text))


def budget(text: str) -> str:
    """Read how many of many may be away at once, as in a PodDisruptionBudget: `2` or `10%`.

    Raises:
        ValueError: It is neither a number nor a share, or out of bounds.
    """
    number = text.strip().removesuffix("%")
    if not (number.isascii() and number.isdecimal() and 1 <= int(number[:9]) <= 100):
        raise ValueError(f"{text!r} is neither a number from 1 to 100 nor a share such as 10%")
    return f"{int(number)}%" if text.strip().endswith("%") else str(int(number))


def at_most(text: str, total: int) -> int:
    """Return how many of a total a budget allows: a share of it is rounded up, and never none.

    Args:
        text: As `budget` returns it.
        total: Of which it is a share, if it is one.
    """
    if not text.endswith("%"):
        return int(text)
    return max(1, -(-int(text.removesuffix("%")) * total // 100))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """How an option is read, and what its help says."""

    read: Callable[[str], Any]
    help: str
    metavar: str
    choices: tuple[str, ...] = ()


def _required(help: str, metavar: str) -> str:  # noqa: A002  as argparse calls it
    """Declare a text that has to be given."""
    return dataclasses.field(metadata={"argument": Argument(read=str, help=help, metavar=metavar)})


def _option(
    default: _T,
    help: str,  # noqa: A002  as argparse calls it
    metavar: str,
    read: Callable[[str], Any] = str,
    choices: tuple[str, ...] = (),
) -> _T:
    argument = Argument(read=read, help=help, metavar=metavar, choices=choices)
    return dataclasses.field(default=default, metadata={"argument": argument})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Eligibility:
    """What tells which pods should have a sidecar: `uninjected` is told it, too."""

    model: str = _required("namespace of the Juju model", "NAMESPACE")
    application: str = _required("this application, as Juju names it", "NAME")
    mesh_revision: str = _option("", "of istiod; empty: the default one", "REVISION")
    membership: pods.Membership = _option(  # noqa: RUF009  a Literal does not change
        "namespace", "how the model's pods join the mesh", "HOW", choices=_MEMBERSHIPS
    )
    data_plane: pods.DataPlane = _option(  # noqa: RUF009  a Literal does not change
        "sidecar", "what takes the model's pods into the mesh", "WHAT", choices=_DATA_PLANES
    )
    included_pods: str = _option(
        "", "with --membership selected: those that join", "SELECTOR", selector
    )
    excluded_pods: str = _option("", "those that get no sidecar", "SELECTOR", selector)
    lifecycle_namespaces: frozenset[namespaces.Kind] = _option(
        frozenset(namespaces.KINDS),
        f"that are served, of {', '.join(namespaces.KINDS)} (default: all)",
        "KIND,…",
        kinds,
    )
    convergence: Convergence = _option(  # noqa: RUF009  a Literal does not change
        "auto",
        "whether pods without their sidecar are replaced unasked",
        "HOW",
        choices=_CONVERGENCES,
    )

    @functools.cached_property
    def included(self) -> selectors.Selector:
        """The requirements of `included_pods`; none select nothing."""
        return selectors.parse(self.included_pods)

    @functools.cached_property
    def excluded(self) -> selectors.Selector:
        """The requirements of `excluded_pods`; none select nothing."""
        return selectors.parse(self.excluded_pods)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """What tunes the rules about one pod's proxy: `explain` and `stop` are told it, too."""

    wait_for_containers: tuple[str, ...] = _option(
        (), "stop the proxy when these have ended, in pods that have one of them", "NAME,…", words
    )
    ignore_containers: tuple[str, ...] = _option((), "do not wait for these", "NAME,…", words)
    status_port: int = _option(
        names.DEFAULT_STATUS_PORT,
        "the mesh's status port, 0 when switched off (default: %(default)s)",
        "PORT",
        int,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Rules, Eligibility):
    """What the service is told."""

    unit: str = _required("this unit, as Juju names it", "NAME/N")
    joined: bool = _option(
        default=False,
        help="whether the model's pods are asked to join the mesh; before that, none lacks a"
        " sidecar (default: false)",
        metavar="BOOL",
        read=boolean,
    )
    mesh_namespace: str = _option(
        "", "where Istio's own objects are, which is not served; empty: not known", "NAMESPACE"
    )
    proxy_shutdown: bool = _option(
        default=True,
        help="whether proxies are stopped (default: true)",
        metavar="BOOL",
        read=boolean,
    )
    replace_broken_pods: bool = _option(
        default=False,
        help="whether pods that lost their proxy are deleted (default: false)",
        metavar="BOOL",
        read=boolean,
    )
    observe_gateways: bool = _option(
        default=False,
        help="tell the charm when the ingress gateway changes",
        metavar="BOOL",
        read=boolean,
    )
    gateway_service: str = _option(
        "", "of another ingress gateway; empty: the model's own", "NAMESPACE/NAME"
    )
    restart_max_unavailable: str = _option(
        "2",
        "workloads that may have a pod being replaced at once: a number, or a percentage of all,"
        " rounded up (default: %(default)s)",
        "N",
        budget,
    )
    listen: str = _option(
        ":8080", "for metrics and health; without a host on every address", "[HOST]:PORT"
    )
    log_level_file: str = _option(
        "", "that names the level, read again every second while it runs", "FILE"
    )
    charm_facts_file: str = _option(
        "", "in which the charm writes what it knows, served with the metrics", "FILE"
    )


Kind: TypeAlias = type[Eligibility] | type[Rules]
"""Some of the options, or all."""


def values(kind: Kind, source: object) -> dict[str, Any]:
    """Return what something that has options says of those of a kind, by their names."""
    return {field.name: getattr(source, field.name) for field in dataclasses.fields(kind)}


def argument(field: dataclasses.Field[Any]) -> Argument:
    """Return how the option of a field is read."""
    return field.metadata["argument"]


def flag(field: dataclasses.Field[Any]) -> str:
    """Name the option of a field."""
    return f"--{field.name.replace('_', '-')}"


def command_line(options: Options, kind: Kind = Options) -> list[str]:
    """Write the options of a kind as the workload reads them."""
    fields = dataclasses.fields(kind)
    pairs = [(flag(field), _text(getattr(options, field.name))) for field in fields]
    return [word for pair in pairs for word in pair]


def _text(value: str | bool | int | Collection[str]) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int):
        return str(value).lower()
    # A set has no order, and another order would look like another command line.
    return ",".join(sorted(value) if isinstance(value, frozenset) else value)
