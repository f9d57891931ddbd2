"""The namespaces beside the model's that are needed and that istiod ignores."""

from __future__ import annotations

from collections.abc import Callable

from istio_integrator import parts
from istio_integrator.membership import claims
from istio_integrator.messages import Message, Said

_MOST_NAMED = 3


class UnservedNamespaces(parts.Part):
    """Names what istiod's discoverySelectors leave out; nothing is written.

    Args:
        context: The context of every part.
        authorization_service: Returns the authorization service as `NAMESPACE/NAME`, or nothing.
    """

    name = "membership"

    def __init__(self, context: parts.Context, authorization_service: Callable[[], str]) -> None:
        self._context = context
        self._authorization_service = authorization_service

    def reconcile(self) -> list[Message]:
        """Look at the labels of the authorization service's and the served namespaces.

        Returns:
            The namespaces that istiod ignores, and the label by which it comes to serve them.
        """
        context, said = self._context, list[Message]()
        if context.mesh is None or not context.mesh.discovery_selectors:
            return said
        service = self._authorization_service()
        namespace = service.partition("/")[0]
        if namespace != context.model and (label := context.missing_label(namespace)):
            said.append(
                Said.SERVICE_IGNORED_BY_ISTIOD(service=service, namespace=namespace, label=label)
            )
        served = [name for name in claims.served(context) if name != context.model]
        labels = {name: label for name in served if (label := context.missing_label(name))}
        if labels:
            more = ", …" if len(labels) > _MOST_NAMED else ""
            said.append(
                Said.NAMESPACES_IGNORED_BY_ISTIOD(
                    count=len(labels),
                    names=", ".join([*labels][:_MOST_NAMED]) + more,
                    label=next(iter(labels.values())),
                )
            )
        return said
