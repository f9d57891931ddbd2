"""The namespaces beside the model's that are needed and that istiod ignores."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import ops

from istio_integrator import parts
from istio_integrator.membership import claims

_MOST_NAMED = 3


class UnservedNamespaces:
    """Names what istiod's discoverySelectors leave out; nothing is written.

    Args:
        context: The context of every part.
        authorization_service: Returns the authorization service as `NAMESPACE/NAME`, or nothing.
    """

    def __init__(self, context: parts.Context, authorization_service: Callable[[], str]) -> None:
        self._context = context
        self._authorization_service = authorization_service
        self._statuses: list[ops.StatusBase] = []

    def reconcile(self) -> None:
        """Look at the labels of the authorization service's and the served namespaces."""
        context = self._context
        if context.mesh is None or not context.mesh.discovery_selectors:
            return
        service = self._authorization_service()
        namespace = service.partition("/")[0]
        if namespace != context.model and (label := context.missing_label(namespace)):
            self._statuses.append(
                ops.BlockedStatus(
                    f"istiod ignores {service}; "
                    f"run: kubectl label namespace {namespace} {label}; "
                    "discoverySelectors leave out the authorization service"
                )
            )
        served = [name for name in claims.served(context) if name != context.model]
        labels = {name: label for name in served if (label := context.missing_label(name))}
        if labels:
            more = ", …" if len(labels) > _MOST_NAMED else ""
            named = ", ".join([*labels][:_MOST_NAMED]) + more
            self._statuses.append(
                ops.ActiveStatus(
                    f"istiod ignores {len(labels)} served namespaces ({named}): "
                    f"label them {next(iter(labels.values()))}"
                )
            )

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Name the namespaces, and how istiod comes to serve them."""
        return self._statuses
