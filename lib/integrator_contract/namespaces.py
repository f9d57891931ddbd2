"""The namespaces that an application serves, for admission, proxies and diagnosis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from . import names, selectors

Kind = Literal["model", "profiles", "labelled"]
"""Why a namespace is served: it is the model's, a Kubeflow profile, or labelled."""
KINDS: tuple[Kind, ...] = get_args(Kind)
MODEL_ONLY: frozenset[Kind] = frozenset(("model",))
SYSTEM = "kube-system"


def list_kinds(labels: Mapping[str, str]) -> Iterator[Kind]:
    """Yield the kinds that a namespace other than the model's has, whether allowed or not."""
    if labels.get(names.SERVED) == "enabled":
        yield "labelled"
    if labels.get(names.PART_OF) == names.PROFILE:
        yield "profiles"


def parse_kinds(words: Iterable[str]) -> frozenset[Kind]:
    """Read the names of kinds, or raise ValueError about an unknown name."""
    chosen = frozenset(words)
    for word in chosen.difference(KINDS):
        raise ValueError(f"'{word}' is none of {', '.join(KINDS)}")
    return frozenset(kind for kind in KINDS if kind in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The namespaces that an application serves."""

    model: str
    owner: str
    """This application, as its ownership label names it."""
    mesh_namespace: str = ""
    kinds: frozenset[Kind] = frozenset(KINDS)

    def find_kind(self, name: str, labels: Mapping[str, str]) -> Kind | None:
        """Return the kind of a namespace that this application serves, else None."""
        kind = self.find_allowed_kind(name, labels)
        if kind != "model" and labels.get(names.SERVED_BY, self.owner) != self.owner:
            return None
        return kind

    def find_allowed_kind(self, name: str, labels: Mapping[str, str]) -> Kind | None:
        """Return the kind that the options allow, whichever application serves the namespace."""
        is_never_served = name in (SYSTEM, self.mesh_namespace) or names.CONTROLLER_MODEL in labels
        if is_never_served or labels.get(names.SERVED) == "disabled":
            return None
        asked = ("model",) if name == self.model else list_kinds(labels)
        return next((kind for kind in asked if kind in self.kinds), None)

    def is_tenant(self, name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a namespace belongs to users of its own, served or not."""
        asks = next(list_kinds(labels), None) is not None
        return asks and name not in (self.model, SYSTEM, self.mesh_namespace)

    def as_selectors(self) -> tuple[tuple[str, selectors.Selector], ...]:
        """Write `find_kind` as namespace selectors that never overlap.

        A selector has no `or`: unserved namespaces and this application's need two. The model's
        own namespace always has one, since its pods' place in the mesh is decided at admission.
        """
        require = selectors.Requirement
        never = tuple(sorted({self.model, SYSTEM, self.mesh_namespace} - {""}))
        elsewhere = (
            require(names.NAMESPACE_NAME, "NotIn", never),
            require(names.CONTROLLER_MODEL, "DoesNotExist"),
        )
        labelled = ("enabled",) if "labelled" in self.kinds else ()
        by_kind: dict[Kind, selectors.Selector] = {
            "profiles": (
                require(names.PART_OF, "In", (names.PROFILE,)),
                require(names.SERVED, "NotIn", ("disabled", *labelled)),
            ),
            "labelled": (require(names.SERVED, "In", ("enabled",)),),
        }
        unclaimed = require(names.SERVED_BY, "DoesNotExist")
        ours = require(names.SERVED_BY, "In", (self.owner,))
        model = ("model", (require(names.NAMESPACE_NAME, "In", (self.model,)),))
        return model, *(
            (f"{kind}{suffix}", (*selector, *elsewhere, claim))
            for kind, selector in by_kind.items()
            if kind in self.kinds
            for suffix, claim in (("", unclaimed), ("-ours", ours))
        )
