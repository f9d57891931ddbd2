"""Running pods that stay outside of ambient mode, which takes in every other pod at once.

The label of a pod is enough, and the pod is not created anew: Istio's node agent follows it
(istio cni/pkg/nodeagent, informers.go). What comes later is labelled at its creation, where
`excluded-pods` asks for it, else at the next event.
"""

from __future__ import annotations

import logging

from integrator_contract import names, selectors
from istio_integrator.kube import cluster, errors, fences, owners
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)


def mark(context: situation.Situation, *, is_ambient: bool) -> None:
    """Label the pods that stay outside, and take our label from those that do no more.

    API servers call Juju's modeloperator and our webhook in plain text, which somebody's policies
    may forbid inside of the mesh. Of a model that is not in ambient mode no pod needs the label.
    """
    excluded = selectors.parse(context.config.excluded_pods)
    labelled = None if is_ambient else names.OUT_OF_AMBIENT
    ours = owners.UndoRecord(
        context.manifests.owner, names.OUT_OF_AMBIENT, {names.DATAPLANE_MODE: None}
    ).written()
    for pod in context.cluster.list(cluster.POD, context.model, labelled):
        with fences.around(cluster.reference(pod)):
            labels = cluster.at(pod, "metadata", "labels")
            has_ended = cluster.at(pod, "status").get("phase") in ("Succeeded", "Failed")
            stays_out = is_ambient and (
                names.is_machinery(labels, context.application)
                or selectors.matches(excluded, labels)
            )
            is_ours = cluster.at(pod, "metadata", "annotations").get(names.MEMBERSHIP) == ours
            if is_ours and labels.items() >= names.OUT_OF_AMBIENT.items():
                if not stays_out:
                    _patch(context, pod, None, None)
            elif stays_out and names.DATAPLANE_MODE not in labels and not has_ended:
                _patch(context, pod, names.OUT_OF_AMBIENT[names.DATAPLANE_MODE], ours)


def _patch(
    context: situation.Situation, pod: cluster.Object, mode: str | None, record: str | None
) -> None:
    metadata = {
        "labels": {names.DATAPLANE_MODE: mode},
        "annotations": {names.MEMBERSHIP: record},
    }
    try:
        context.cluster.merge_patch(pod, {"metadata": metadata})
    except errors.ApiError as error:
        # It has gone, or somebody's admission refuses it: the others are labelled.
        fences.note(cluster.reference(pod), str(error))
        return
    logger.info("%s: %s=%s.", cluster.reference(pod), names.DATAPLANE_MODE, mode)
