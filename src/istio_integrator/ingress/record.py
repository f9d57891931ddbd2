"""What the ingress keeps between hooks, in the Secret `APP-record`.

These are the values that routes and filters share, the access that was granted with them, the
namespace of the gateway's certificate, and the Service that was annotated.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import re
import secrets
from collections.abc import Iterable

import pydantic

from integrator_contract import names
from istio_integrator.kube import cluster
from istio_integrator.messages import Message
from istio_integrator.situation import situation

FOLDER = "record"
_KEY = "record"


def random_value() -> str:
    """Return a header's name, a key of metadata, a name of a route or a part of a host."""
    return f"x-{secrets.token_hex(16)}"


def hide(text: str) -> str:
    """Replace the values in a text that is shown to people."""
    return re.sub(r"x-[0-9a-f]{32}", "(not shown)", text)


def hide_in(message: Message) -> Message:
    """Replace the values in a message."""
    about = {name: hide(str(value)) for name, value in message.about.items()}
    return dataclasses.replace(message, about=about)


class Values(pydantic.BaseModel, frozen=True):
    """Random values that open the routes; clients and other teams know none of them."""

    header: str = pydantic.Field(default_factory=random_value)
    """The request header that our routes match."""
    asked: str = pydantic.Field(default_factory=random_value)
    """Its value once a request is authenticated."""
    free: str = pydantic.Field(default_factory=random_value)
    """Its value for routes without authentication."""
    root: str = pydantic.Field(default_factory=random_value)
    """Its value once a request is authenticated and no other route matches but `/`."""
    metadata: str = pydantic.Field(default_factory=random_value)
    """The namespace of the dynamic metadata that every route matches."""
    seen: str = pydantic.Field(default_factory=random_value)
    """The value there."""
    routes: str = pydantic.Field(default_factory=random_value)
    """What the names of entries begin with that the EnvoyFilter changes."""

    @property
    def free_route(self) -> str:
        """The name of entries without authentication."""
        return f"{self.routes}-free"

    @property
    def last_route(self) -> str:
        """The name of the last entry, which rejects what no other entry matches."""
        return f"{self.routes}-end"


class _Kept(pydantic.BaseModel, frozen=True):
    values: Values = pydantic.Field(default_factory=Values)
    access: tuple[str, ...] = ()
    annotated: str = ""


class Record:
    """Reads and writes the Secret."""

    def __init__(self, scope: situation.Situation) -> None:
        self._manifests = scope.manifests
        self._name = scope.manifests.secrets[FOLDER]

    def values_for(self, access: Iterable[str]) -> Values:
        """Return the values for an access: new ones if what was granted is granted no longer.

        A gateway may still use former configuration: routes that Envoy could not replace, a
        listener that warms, an older connection. With new values none of it matches the rest.
        """
        kept = self._kept
        granted = sorted({hashlib.sha256(each.encode()).hexdigest()[:12] for each in access})
        values = kept.values if set(kept.access) <= set(granted) else Values()
        self._write(kept.model_copy(update={"values": values, "access": tuple(granted)}))
        return values

    @property
    def annotated(self) -> str:
        """The Service with annotations of this application, `namespace/name`; or empty."""
        return self._kept.annotated

    @annotated.setter
    def annotated(self, reference: str) -> None:
        if reference != self.annotated:
            self._write(self._kept.model_copy(update={"annotated": reference}))

    @property
    def certificate_in(self) -> str:
        """The namespace of the gateway's certificate; empty while there is none."""
        annotations = cluster.at(self._secret, "metadata", "annotations")
        return str(annotations.get(names.CERTIFICATE_IN, ""))

    @certificate_in.setter
    def certificate_in(self, namespace: str) -> None:
        if namespace != self.certificate_in:
            self._write(self._kept, namespace)

    def remove(self) -> None:  # noqa: D102
        self._manifests.remove(FOLDER)

    @functools.cached_property
    def _secret(self) -> cluster.Object | None:
        return self._manifests.own(cluster.SECRET, self._name)

    @property
    def _kept(self) -> _Kept:
        try:
            text = base64.b64decode(cluster.at(self._secret, "data").get(_KEY, ""))
            return _Kept.model_validate_json(text)
        except ValueError:
            return _Kept()

    def _write(self, kept: _Kept, certificate_in: str | None = None) -> None:
        namespace = self.certificate_in if certificate_in is None else certificate_in
        context = {
            "name": self._name,
            "annotations": {names.CERTIFICATE_IN: namespace} if namespace else {},
            "data": {_KEY: base64.b64encode(kept.model_dump_json().encode()).decode()},
        }
        (self._secret,) = self._manifests.apply(FOLDER, context)
