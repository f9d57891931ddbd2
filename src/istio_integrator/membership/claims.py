"""Claims of namespaces other than the model's: one integrator serves each, if istiod does."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

from integrator_contract import names
from istio_integrator import texts
from istio_integrator.kube import cluster, errors, fences, owners
from istio_integrator.messages import Message, Said
from istio_integrator.situation import situation


class Claims(situation.Component):
    """Labels the namespaces that this application serves, other than its model.

    `authorization_service` returns the authorization service as `NAMESPACE/NAME`, or empty.
    """

    name = "membership"

    def __init__(
        self, context: situation.Situation, authorization_service: Callable[[], str]
    ) -> None:
        self._context = context
        self._authorization_service = authorization_service

    def reconcile(self) -> list[Message]:
        """Label unserved namespaces, and unlabel those that this application no longer serves.

        Returns:
            Messages about namespaces that other integrators serve or that istiod ignores.
        """
        context, own = self._context, self._context.manifests.owner
        others: list[str] = []
        is_gone = functools.cache(functools.partial(owners.is_gone, context.cluster))
        for namespace in context.cluster.list(cluster.NAMESPACE):
            with fences.around(cluster.reference(namespace)):
                labels = cluster.at(namespace, "metadata", "labels")
                owner = labels.get(names.SERVED_BY, "")
                kind = context.served.allowed_kind(namespace["metadata"]["name"], labels)
                wanted = own if kind not in (None, "model") else ""
                if wanted and owner not in ("", own) and not is_gone(owner):
                    others.append(owner)
                elif context.leader and wanted != owner and own in (wanted, owner):
                    self._label(namespace, wanted)
        said = [*self._ignored()]
        if others:
            count = "1 namespace is" if len(others) == 1 else f"{len(others)} namespaces are"
            taken = ", ".join(sorted(set(others)))
            said.append(Said.NAMESPACES_TAKEN(count=count, owners=taken))
        return said

    def remove(self) -> None:
        """Remove this application's label from every namespace."""
        ours = {names.SERVED_BY: self._context.manifests.owner}
        for namespace in self._context.cluster.list(cluster.NAMESPACE, labels=ours):
            self._label(namespace, "")

    def _label(self, namespace: cluster.Object, owner: str) -> None:
        metadata = namespace["metadata"]
        if "deletionTimestamp" in metadata:
            return
        patch: cluster.Object = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "labels": {names.SERVED_BY: owner or None},
            }
        }
        try:
            # A single integrator works without the label.
            with self._context.cluster.optional():
                self._context.cluster.merge_patch(namespace, patch)
        except errors.ConflictError:
            # Another integrator may have labelled it: reconcile retries.
            raise
        except errors.ApiError as error:
            # A webhook rejects the patch, or the namespace is gone: go on with the others.
            fences.note(cluster.reference(namespace), str(error))

    def _ignored(self) -> Iterable[Message]:
        context = self._context
        if context.mesh is None or not context.mesh.discovery_selectors:
            return
        service = self._authorization_service()
        home = service.partition("/")[0]
        others = {home, *context.served_namespaces} - {context.model}
        labels = {name: label for name in others if (label := context.missing_label(name))}
        if home in labels:
            place = {"namespace": home, "label": labels[home]}
            yield Said.SERVICE_IGNORED_BY_ISTIOD(service=service, **place)
        if served := labels.keys() & set(context.served_namespaces):
            shown, label = texts.listed(served), labels[min(served)]
            yield Said.NAMESPACES_IGNORED_BY_ISTIOD(count=len(served), names=shown, label=label)
