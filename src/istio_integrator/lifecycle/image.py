"""The workload's image: which one it is, and whether it keeps to the charm's contract."""

from __future__ import annotations

import functools
import itertools
import re
import shlex

import ops

from integrator_contract import schema
from istio_integrator import parts
from istio_integrator.kube import cluster, errors
from istio_integrator.lifecycle import layer, workload
from istio_integrator.messages import Message, Said

_KEEPS_TO = re.compile(r"\(contract ([0-9a-f]{1,16})\)$")
"""What `--version` ends with; images from before the contract say nothing of it."""


class Image:
    """The image that the workload container runs, which the webhook runs as well."""

    def __init__(self, context: parts.Context, container: ops.Container) -> None:
        self._context = context
        self._container = container

    @property
    def name(self) -> str:
        """Its name, with registry and digest as deployed; empty where it is not known."""
        pod = self._context.cluster.get(cluster.POD, self._context.pod, self._context.model)
        for container in cluster.parts(cluster.at(pod, "spec"), "containers"):
            if container.get("name") == workload.CONTAINER:
                return str(container.get("image", ""))
        return ""

    def serving(self) -> str:
        """Return its name for others to run; empty where it is not known, or does not fit."""
        return self.name if self.fits else ""

    @property
    def fits(self) -> bool:
        """Whether it is known to keep to the charm's contract."""
        return self._container.can_connect() and self.mismatch is None

    @functools.cached_property
    def mismatch(self) -> Message | None:
        """What is to be done before this charm and the image work together.

        None where they do, and where the container can't be asked yet. An image is asked once: a
        service that was told of the contract runs in one that keeps to it. Of another image
        nothing is started, and what runs there goes on.
        """
        if not self._container.can_connect():
            return None
        try:
            if self._is_told():
                return None
            version = workload.execute(self._container, [layer.PROGRAM, "--version"])
        except errors.LifecycleError as error:
            return Said.SERVICE_SILENT(problem=str(error)[:120])
        said = _KEEPS_TO.search(version.strip())
        return compared(said[1] if said else "", application=self._context.application)

    def _is_told(self) -> bool:
        """Tell whether the container's service was started by a charm of this contract."""
        try:
            service = self._container.get_plan().services.get(layer.SERVICE)
        except (ops.pebble.Error, TimeoutError) as error:
            raise errors.LifecycleError("waiting for Pebble in lifecycle") from error
        words = shlex.split(service.command) if service else []
        return layer.CONTRACT in itertools.pairwise(words)


def compared(contract: str, *, application: str) -> Message | None:
    """Say what is to be done about an image; None where it keeps to the charm's contract.

    Args:
        contract: That the image keeps to; empty where it is from before there was one.
        application: Ours, for the command that helps.
    """
    if contract == schema.SCHEMA:
        return None
    said = Said.IMAGE_DOES_NOT_FIT if contract else Said.IMAGE_TOO_OLD
    contracts = f"contract {contract or 'none'}, here {schema.SCHEMA}"
    return said(application=application, contracts=contracts)
