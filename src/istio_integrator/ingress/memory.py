"""Where the model is served, remembered in a ConfigMap of the model."""

from __future__ import annotations

import dataclasses
import logging
import re
import secrets

import pydantic

from istio_integrator import parts
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster, owners

logger = logging.getLogger(__name__)

FOLDER = "gateway-place"
_KEY = "place"
_OPEN_KEY = "token"
_TOKEN = re.compile(r"[0-9a-f]{32}")
_LONGEST = 128 * 1024
"""Characters of what is remembered; a thousand hosts take half of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """The variables of the templates in gateway-place."""

    name: str
    place: str
    token: str
    """What only we know; empty while nothing needs it."""


class Memory:
    """The place that was chosen once, which only the operator moves."""

    def __init__(self, scope: parts.Context) -> None:
        self._scope = scope
        self._name = owners.object_name(scope.application, FOLDER)
        self._written: gateway.Place | None = None
        """What is remembered, as it was read last."""
        self._written_token = ""
        self._token = ""

    def read(self) -> gateway.Place | None:
        """Read the place; None where none is remembered, or none that can be read."""
        self._written = self._read()
        return self._written

    def remember(self, target: gateway.Target) -> None:
        """Write down where the model is served."""
        if (self._written, self._written_token) == (target.place, self._token):
            return
        if self._written != target.place:
            logger.info("Gateway %s serves the model.", target.reference)
        text = target.place.model_dump_json(exclude_defaults=True)
        context = Context(name=self._name, place=text, token=self._token)
        self._scope.manifests.apply(FOLDER, context)
        self._written, self._written_token = target.place, self._token

    def token(self) -> str:
        """Return random text that stays the same; it has to be remembered before it is used."""
        if not self._token:
            self._token = secrets.token_hex(16)
        return self._token

    def forget(self) -> None:
        """Have the next gateway be chosen anew."""
        self._scope.manifests.remove(FOLDER)

    def _read(self) -> gateway.Place | None:
        found = self._scope.manifests.own(cluster.CONFIG_MAP, self._name)
        if found is None:
            return None
        data = cluster.at(found, "data")
        self._written_token = self._token = _token(data.get(_OPEN_KEY))
        text = data.get(_KEY)
        if not isinstance(text, str) or len(text) > _LONGEST:
            return None
        try:
            return gateway.Place.model_validate_json(text)
        except pydantic.ValidationError as error:
            logger.warning("What %s remembers is not readable: %s", self._name, error)
            return None


def _token(value: object) -> str:
    return value if isinstance(value, str) and _TOKEN.fullmatch(value) else ""
