"""Namespaces that several integrators could serve: each records the one that does."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable

import ops

from integrator_contract import names
from istio_integrator import parts
from istio_integrator.kube import cluster, errors, fences, owners

logger = logging.getLogger(__name__)

_NOUNS = ("namespace", "namespaces")


def served(context: parts.Context) -> list[str]:
    """List the namespaces whose proxies are stopped by this application, the model's first.

    Without the right to list namespaces it is the model's alone, as for the workload.
    """
    found: list[str] = []
    try:
        namespaces = context.cluster.list(cluster.NAMESPACE)
    except errors.ForbiddenError as error:
        logger.info("Only the model is known to be served: %s", error)
        own = context.cluster.get(cluster.NAMESPACE, context.model)
        namespaces = [] if own is None else [own]
    for namespace in namespaces:
        with fences.around(cluster.reference(namespace)):
            name = namespace["metadata"]["name"]
            is_going = name != context.model and "deletionTimestamp" in namespace["metadata"]
            if not is_going and context.served.kind_of(name, _labels(namespace)):
                found.append(name)
    return sorted(found, key=lambda name: (name != context.model, name))


def _labels(namespace: cluster.Object) -> cluster.Object:
    return cluster.at(namespace, "metadata", "labels")


class Claims:
    """Labels the namespaces that this application serves beside its model."""

    def __init__(self, context: parts.Context) -> None:
        self._context = context
        self._others: set[str] = set()
        self._left = 0
        self._conflict: errors.ConflictError | None = None
        """The last one: what is to be done about that namespace depends on what was written."""

    def reconcile(self) -> None:
        """Claim what nobody serves, leave what another does, give back what is not served."""
        context = self._context
        served = context.served
        self._others, self._left = set(), 0
        is_gone = functools.cache(functools.partial(owners.is_gone, context.cluster))
        for namespace in context.cluster.list(cluster.NAMESPACE):
            with fences.around(cluster.reference(namespace)):
                labels = _labels(namespace)
                holder = labels.get(names.SERVED_BY, "")
                kind = served.allowed_kind(namespace["metadata"]["name"], labels)
                is_going = "deletionTimestamp" in namespace["metadata"]
                is_served = kind not in (None, "model") and not is_going
                if is_served and holder not in ("", self._owner) and not is_gone(holder):
                    self._others.add(holder)
                    self._left += 1
                elif is_served and holder != self._owner:
                    self._mark(namespace, self._owner)
                elif not is_served and holder == self._owner:
                    self._mark(namespace, None)
        self._try_again()

    def remove(self) -> None:
        """Give back every claim of ours."""
        ours = {names.SERVED_BY: self._owner}
        for namespace in self._context.cluster.list(cluster.NAMESPACE, labels=ours):
            self._mark(namespace, None, forced=True)
        self._try_again()

    def _try_again(self) -> None:
        conflict, self._conflict = self._conflict, None
        if conflict is not None:
            raise conflict

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say which namespaces other integrators serve."""
        if self._left:
            others = ", ".join(sorted(self._others))
            yield ops.ActiveStatus(f"{self._left} {_NOUNS[self._left > 1]} left to {others}")

    @property
    def _owner(self) -> str:
        return self._context.manifests.owner

    def _mark(self, namespace: cluster.Object, owner: str | None, *, forced: bool = False) -> None:
        if not (self._context.leader or forced):
            return
        metadata = namespace["metadata"]
        if "deletionTimestamp" in metadata:
            return
        patch: cluster.Object = {
            "metadata": {
                "resourceVersion": metadata["resourceVersion"],
                "labels": {names.SERVED_BY: owner},
            }
        }
        try:
            self._context.cluster.merge_patch(namespace, patch)
        except errors.ForbiddenError as error:
            # One integrator needs no record, so the right to write it is optional.
            logger.info("Namespace %s is served without a record: %s", metadata["name"], error)
        except errors.ConflictError as error:
            self._conflict = error
        except errors.ApiError as error:
            # Somebody's admission refuses it, or it has gone: the others are served.
            fences.note(cluster.reference(namespace), str(error))
