"""Claims of namespaces other than the model's: one integrator serves each, if istiod does."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from integrator_contract import names
from istio_integrator import texts
from istio_integrator.component import Component
from istio_integrator.istio import meshconfig
from istio_integrator.kube import cluster, errors, fences, owners
from istio_integrator.messages import Message, Template


class Claims(Component):
    """Labels the namespaces that this application serves, other than its model."""

    name = "membership"

    def reconcile(self) -> list[Message]:
        """Label unserved namespaces, and unlabel those that this application no longer serves."""
        situation, own = self._situation, self._situation.manifests.owner
        served = self._facts.served
        others: list[str] = []
        is_gone = functools.cache(functools.partial(owners.is_gone, situation.cluster))
        for namespace in situation.cluster.list(cluster.NAMESPACE):
            with fences.isolate(cluster.reference(namespace)):
                labels = cluster.at(namespace, "metadata", "labels")
                owner = labels.get(names.SERVED_BY, "")
                kind = served.find_allowed_kind(namespace["metadata"]["name"], labels)
                wanted = own if kind not in (None, "model") else ""
                if wanted and owner not in ("", own) and not is_gone(owner):
                    others.append(owner)
                elif situation.leader and wanted != owner and own in (wanted, owner):
                    self._write_label(namespace, wanted)
        said = [*self._report_ignored_namespaces()]
        if others:
            count = "1 namespace is" if len(others) == 1 else f"{len(others)} namespaces are"
            taken = ", ".join(sorted(set(others)))
            said.append(Template.NAMESPACES_TAKEN(count=count, owners=taken))
        return said

    def remove(self) -> None:
        """Remove this application's label from every namespace."""
        ours = {names.SERVED_BY: self._situation.manifests.owner}
        for namespace in self._situation.cluster.list(cluster.NAMESPACE, labels=ours):
            self._write_label(namespace, "")

    def _write_label(self, namespace: cluster.Object, owner: str) -> None:
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
            with self._situation.cluster.skip_if_forbidden():
                self._situation.cluster.merge_patch(namespace, patch)
        except errors.ConflictError:
            # Another integrator may have labelled it: reconcile retries.
            raise
        except errors.ApiError as error:
            # A webhook rejects the patch, or the namespace is gone: go on with the others.
            fences.note_skipped(cluster.reference(namespace), str(error))

    def _report_ignored_namespaces(self) -> Iterable[Message]:
        facts, situation, mesh = self._facts, self._situation, self._facts.mesh
        selectors = mesh.settings.discovery_selectors if mesh else ()
        if not selectors:
            return
        found = facts.authentication.service
        service = found.reference if found else ""
        home = service.partition("/")[0]
        labels: dict[str, str] = {}
        for name in {home, *facts.served_namespaces} - {situation.model}:
            if label := meshconfig.read_lacking_labels(situation.cluster, selectors, name):
                labels[name] = label
        if home in labels:
            place = {"namespace": home, "label": labels[home]}
            yield Template.SERVICE_IGNORED_BY_ISTIOD(service=service, **place)
        if served := labels.keys() & set(facts.served_namespaces):
            shown, label = texts.join_names(served), labels[min(served)]
            yield Template.NAMESPACES_IGNORED_BY_ISTIOD(
                count=len(served), names=shown, label=label
            )
