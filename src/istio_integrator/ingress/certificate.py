"""The certificate that the gateway shows: from an operator's Secret or a related authority."""

from __future__ import annotations

import base64
import dataclasses
import datetime
from collections.abc import Iterable

import ops

from integrator_contract import names
from istio_integrator import parts
from istio_integrator.ingress import gateway
from istio_integrator.kube import cluster
from istio_integrator.relations import certificates, endpoints

KEY_FOLDER = "gateway-key"
SECRET_FOLDER = "gateway-tls"  # noqa: S105


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyContext:
    """The variables of the templates in gateway-key."""

    name: str
    annotations: dict[str, str]
    data: dict[str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SecretContext:
    """The variables of the templates in gateway-tls."""

    name: str
    namespace: str
    data: dict[str, str]


class GatewayCertificate:
    """Keeps a key, asks for certificates in time, and hands them to the gateway."""

    def __init__(self, scope: parts.Context, related: endpoints.Relations) -> None:
        self._scope = scope
        self._related = related
        self._statuses: list[ops.StatusBase] = []
        self._name = scope.manifests.secrets[SECRET_FOLDER]
        self.shown = ""
        """What the gateway shows, in PEM; empty where it is not known."""

    @property
    def is_wanted(self) -> bool:
        """Whether the model is to be served by HTTPS."""
        return bool(self._scope.config.tls_secret) or self._is_related

    def credential(self, target: gateway.Target, *, shown: str) -> str:
        """Name the Secret for the gateway to use; empty while there is none.

        Args:
            target: The gateway.
            shown: The Secret that it uses now.
        """
        self._statuses = []
        if name := self._scope.config.tls_secret:
            return self._given(name, target, shown)
        if not self._is_related:
            return ""
        if not target.hosts:
            run = f"juju config {self._scope.application} hosts=NAME"
            self._statuses.append(ops.BlockedStatus(f"certificates needs hosts; run: {run}"))
            return ""
        found = self._scope.cluster.get(cluster.SECRET, self._name, target.namespace)
        data = self._asked(target, cluster.at(found, "data"))
        if data is not None:
            context = SecretContext(name=self._name, namespace=target.namespace, data=data)
            self._scope.manifests.apply(SECRET_FOLDER, context)
        return self._name if data is not None or found is not None else ""

    def prune(self) -> None:
        """Forget key and certificate when no authority is related any more."""
        if self._scope.config.tls_secret or not self._is_related:
            self.remove()

    def remove(self) -> None:
        """Take away key and certificate."""
        # The key's Secret says where the certificate is.
        self._scope.manifests.remove(SECRET_FOLDER)
        self._scope.manifests.remove(KEY_FOLDER)

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say what is missing for HTTPS."""
        return tuple(self._statuses)

    @property
    def _is_related(self) -> bool:
        return self._related.is_related(endpoints.CERTIFICATES)

    def _given(self, name: str, target: gateway.Target, shown: str) -> str:
        found = self._scope.cluster.get(cluster.SECRET, name, target.namespace)
        if found is not None:
            self.shown = _decoded(cluster.at(found, "data"), "tls.crt")
            return name
        self._statuses.append(
            ops.BlockedStatus(f"tls-secret: there is no Secret {target.namespace}/{name}")
        )
        # Envoy goes on with what it has of one that is being replaced.
        return name if name == shown else ""

    def _asked(self, target: gateway.Target, shown: dict[str, str]) -> dict[str, str] | None:
        """Ask for a certificate; its Secret's data as soon as it has come."""
        self._leave(target.namespace)
        key = self._key(target.namespace)
        names = target.hosts
        bag = self._related.own(endpoints.CERTIFICATES)
        request = certificates.own_request(bag)
        current = self.shown = _decoded(shown, "tls.crt")
        now = datetime.datetime.now(datetime.UTC)
        if not certificates.is_request_for(request, key, names):
            request = certificates.new_request(key, names)
        self._related.write(endpoints.CERTIFICATES, certificates.written(request))
        received = self._related.bags(endpoints.CERTIFICATES)[0]
        answer = certificates.answer(received.content, request)
        if isinstance(answer, str):
            text = f": {answer}" if answer else ""
            if not current or answer:
                self._statuses.append(ops.WaitingStatus(f"waiting for a certificate{text}"))
            return None
        if not certificates.fits(answer.certificate, key):
            self._statuses.append(ops.BlockedStatus("the certificate does not match the request"))
            return None
        if certificates.is_due(answer.certificate, now):
            # The old one serves until the answer to this one has come.
            request = certificates.new_request(key, names)
            self._related.write(endpoints.CERTIFICATES, certificates.written(request))
        self.shown = answer.certificate
        return {"tls.crt": _encoded(answer.bundle), "tls.key": _encoded(key)}

    def _key(self, place: str) -> str:
        """Read or make the key of certificates that are put into a namespace."""
        found = cluster.at(self._kept_key(), "data")
        key = _decoded(found, "tls.key") or certificates.new_key()
        context = KeyContext(
            name=self._key_name,
            annotations={names.CERTIFICATE_IN: place},
            data={"tls.key": _encoded(key)},
        )
        self._scope.manifests.apply(KEY_FOLDER, context)
        return key

    @property
    def _key_name(self) -> str:
        return self._scope.manifests.secrets[KEY_FOLDER]

    def _kept_key(self) -> cluster.Object | None:
        return self._scope.manifests.own(cluster.SECRET, self._key_name)

    def _leave(self, place: str) -> None:
        """Take the certificate away from where it was put, unless that is where it belongs."""
        annotations = cluster.at(self._kept_key(), "metadata", "annotations")
        if annotations.get(names.CERTIFICATE_IN, place) != place:
            self._scope.manifests.remove(SECRET_FOLDER)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(data: dict[str, str], key: str) -> str:
    try:
        return base64.b64decode(data.get(key, ""), validate=True).decode()
    except ValueError:
        return ""
