"""The Record: state of the ingress between hooks, in the Secret `APP-record`.

It has the values that routes and filters share, the access that was granted with them, the
namespace of the gateway's certificate, and the Service that was annotated.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import secrets
from collections.abc import Iterable

import pydantic

from integrator_contract import names
from istio_integrator.kube import cluster
from istio_integrator.situation.situation import Situation

FOLDER = "record"
_KEY = "record"


def make_random_value() -> str:
    """Return a random name for a header, a metadata key, a route or a part of a host.

    `refusals.hide_secrets` knows its form.
    """
    return f"x-{secrets.token_hex(16)}"


class RandomValues(pydantic.BaseModel, frozen=True):
    """Random values that a request must carry to match a route; clients do not know them."""

    header: str = pydantic.Field(default_factory=make_random_value)
    """The request header that the charm's routes match."""
    asked: str = pydantic.Field(default_factory=make_random_value)
    """The header's value in an authenticated request."""
    free: str = pydantic.Field(default_factory=make_random_value)
    """The header's value for routes without authentication."""
    root: str = pydantic.Field(default_factory=make_random_value)
    """The header's value in an authenticated request that only the route `/` matches."""
    metadata: str = pydantic.Field(default_factory=make_random_value)
    """The namespace of the dynamic metadata that every route matches."""
    seen: str = pydantic.Field(default_factory=make_random_value)
    """The value in this dynamic metadata."""
    routes: str = pydantic.Field(default_factory=make_random_value)
    """The prefix of the names of route entries that the EnvoyFilter changes."""

    @property
    def free_route(self) -> str:
        """The name of entries without authentication."""
        return f"{self.routes}-free"

    @property
    def last_route(self) -> str:
        """The name of the last entry, which rejects what no other entry matches."""
        return f"{self.routes}-end"


class _StoredRecord(pydantic.BaseModel, frozen=True):
    values: RandomValues = pydantic.Field(default_factory=RandomValues)
    access: tuple[str, ...] = ()
    annotated: str = ""


class Record:
    """Reads and writes the Record."""

    def __init__(self, situation: Situation) -> None:
        self._manifests = situation.manifests
        self._name = situation.manifests.secrets[FOLDER]

    def renew_values(self, access: Iterable[str]) -> RandomValues:
        """Return the values for an access, new ones if any earlier access is withdrawn.

        A gateway may still use former configuration, such as routes that Envoy could not replace,
        a warming listener, or an older connection. With new values this configuration no longer
        matches the rest.
        """
        kept = self._stored
        granted = sorted({hashlib.sha256(each.encode()).hexdigest()[:12] for each in access})
        values = kept.values if set(kept.access) <= set(granted) else RandomValues()
        self._write(kept.model_copy(update={"values": values, "access": tuple(granted)}))
        return values

    @property
    def annotated_service(self) -> str:
        """`namespace/name` of the Service that this application annotated; empty: none."""
        return self._stored.annotated

    @annotated_service.setter
    def annotated_service(self, reference: str) -> None:
        if reference != self.annotated_service:
            self._write(self._stored.model_copy(update={"annotated": reference}))

    @property
    def certificate_namespace(self) -> str:
        """The namespace of the gateway's certificate; empty: no certificate."""
        annotations = cluster.at(self._secret, "metadata", "annotations")
        return str(annotations.get(names.CERTIFICATE_IN, ""))

    @certificate_namespace.setter
    def certificate_namespace(self, namespace: str) -> None:
        if namespace != self.certificate_namespace:
            self._write(self._stored, namespace)

    def remove(self) -> None:  # noqa: D102
        self._manifests.remove(FOLDER)

    @functools.cached_property
    def _secret(self) -> cluster.Object | None:
        return self._manifests.find_own(cluster.SECRET, self._name)

    @property
    def _stored(self) -> _StoredRecord:
        try:
            text = base64.b64decode(cluster.at(self._secret, "data").get(_KEY, ""))
            return _StoredRecord.model_validate_json(text)
        except ValueError:
            return _StoredRecord()

    def _write(self, kept: _StoredRecord, certificate_in: str | None = None) -> None:
        namespace = self.certificate_namespace if certificate_in is None else certificate_in
        context = {
            "name": self._name,
            "annotations": {names.CERTIFICATE_IN: namespace} if namespace else {},
            "data": {_KEY: base64.b64encode(kept.model_dump_json().encode()).decode()},
        }
        (self._secret,) = self._manifests.apply(FOLDER, context)
