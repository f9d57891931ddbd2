#!/usr/bin/env python3
"""The charm: every Juju event makes everything as it should be, and says what is true."""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
from collections.abc import Callable
from typing import TypeVar

import ops

import actions
import admission
import claims
import cluster
import component
import config
import diagnosis
import errors
import farewell
import ingress
import lifecycle
import manifests
import membership
import mesh
import modeloperator
import observability
import relations
import statuses

logger = logging.getLogger(__name__)
# Each request would be a dozen lines of `juju debug-log`, each a process in the hook's path.
for _library in ("httpx2", "httpcore2"):
    logging.getLogger(_library).setLevel(logging.WARNING)

_RESOLVER = pathlib.Path("/etc/resolv.conf")
_ATTEMPTS = 3
"""Tries at an object that somebody else keeps changing, before the next event tries again."""
_T = TypeVar("_T")


class IstioIntegrator(ops.CharmBase):
    """Joins its model to the Istio that is there."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        self._statuses: list[ops.StatusBase] = []
        self._workload: lifecycle.Lifecycle | None = None
        container = self.on[lifecycle.CONTAINER]
        for event in (
            self.on.install,
            self.on.config_changed,
            self.on.start,
            self.on.update_status,
            container.pebble_ready,
            container.pebble_custom_notice,
            container.pebble_check_failed,
            container.pebble_check_recovered,
            *relations.events(self.on),
        ):
            framework.observe(event, self._on_event)
        for event in (self.on.upgrade_charm, self.on.leader_elected):
            # Of a refreshed application either may be the first to run as the leader.
            framework.observe(event, self._on_upgrade)
        framework.observe(self.on.remove, self._on_remove)
        framework.observe(self.on.collect_unit_status, self._on_collect_status)
        for name in actions.ANSWERS:
            framework.observe(self.on[name].action, self._on_action)
        framework.observe(self.on["diagnose"].action, self._on_diagnose)

    def _on_event(self, _: ops.EventBase) -> None:
        if self.app.planned_units() == 0:
            # Another unit may already be taking things away: nothing may come back.
            return
        self._related.announce_versions()
        try:
            self._reconcile(config.Config.load(self.config))
        except errors.ConfigError as error:
            for problem in error.problems:
                logger.warning("%s", problem)
            self._statuses = [ops.BlockedStatus(str(error))]
        except errors.CharmError as error:
            self._statuses = [self._status_of(error)]

    def _on_upgrade(self, event: ops.EventBase) -> None:
        self._on_event(event)
        if self._workload is None or not self.unit.is_leader():
            return
        try:
            self._workload.scope.manifests.prune_retired()
        except errors.CharmError as error:
            self._statuses.append(self._status_of(error))

    def _on_remove(self, _: ops.RemoveEvent) -> None:
        # Scaling to none looks the same, and is: no unit is left to look after the model.
        if self.app.planned_units() > 0:
            return
        scope = self._scope(cluster.connect(), self._options_or_defaults(), None)
        workload = self._lifecycle(scope, None)
        workload.stop_convergence()
        farewell.say(scope, workload)
        failed: list[errors.CharmError] = []
        for remove in (
            ingress.Ingress(scope, self._related).remove,
            membership.Membership(scope).remove,
            admission.Admission(scope, "").remove,
            scope.manifests.prune_retired,
            workload.remove,
            claims.Claims(scope).remove,
        ):
            try:
                _again(remove)
            except errors.CharmError as error:
                logger.warning("%s: %s", remove.__qualname__, error)
                failed.append(error)
        if any(not isinstance(error, errors.ForbiddenError) for error in failed):
            # Juju runs the hook again; without any right it would never succeed.
            raise failed[0]

    def _options_or_defaults(self) -> config.Config:
        """Options that are wrong must not keep the application from being removed."""
        try:
            return config.Config.load(self.config)
        except errors.ConfigError:
            return config.Config()

    def _on_collect_status(self, event: ops.CollectStatusEvent) -> None:
        if not self._statuses:
            # Not every event makes us look: what was said last still holds.
            return
        phrases: list[str] = []
        for status in self._statuses:
            if isinstance(status, ops.ActiveStatus):
                phrases.append(status.message)
            else:
                event.add_status(status)
        event.add_status(ops.ActiveStatus(" · ".join(phrases)))

    def _reconcile(self, options: config.Config) -> None:
        api = cluster.connect()
        discovery = mesh.Discovery(
            api,
            options,
            model=self.model.name,
            application=self.app.name,
            hint=self._related.istio_root_namespace(),
        )
        # Without an answer of the API server nothing is known, so nothing is changed.
        discovery.reconcile()
        self._statuses = list(discovery.statuses())
        scope = self._scope(api, options, discovery.mesh)
        place = membership.Membership(scope)
        if refusal := _again(place.claim):
            self._withdraw(scope, refusal)
            return
        self._run(claims.Claims(scope))
        self._run(admission.Admission(scope, self._image(scope)))
        if discovery.mesh is not None:
            self._statuses.append(ops.ActiveStatus(discovery.mesh.sidecars))
        self._run(place)
        self._workload = self._lifecycle(scope, lifecycle.Joined.of(scope, joined=place.joined))
        self._run(self._workload)
        self._run(ingress.Ingress(scope, self._related))
        self._run(modeloperator.Modeloperator(scope))
        self._run(diagnosis.Concerns(self._look(scope, discovery)))
        self._run(observability.Observability.of(self, scope, self._related))

    def _run(self, part: component.Component) -> None:
        """Reconcile one part; what it can't do must not keep the others from their work."""
        try:
            _again(part.reconcile)
        except errors.CharmError as error:
            self._statuses.append(self._status_of(error))
        self._statuses += part.statuses()

    def _withdraw(self, scope: component.Scope, why: str) -> None:
        """Do nothing in this model: two of us would each replace pods and prepare new ones."""
        self._statuses = [ops.BlockedStatus(why)]
        self._lifecycle(scope, None).stop()
        if scope.leader:
            try:
                admission.Admission(scope, "").remove()
            except errors.CharmError as error:
                self._statuses.append(self._status_of(error))

    def _image(self, scope: component.Scope) -> str:
        try:
            return lifecycle.image(scope)
        except errors.CharmError as error:
            self._statuses.append(self._status_of(error))
            return ""

    def _status_of(self, error: errors.CharmError) -> ops.StatusBase:
        logger.warning("%s: %s", type(error).__name__, error)
        return statuses.of_error(error, application=self.app.name)

    @property
    def _related(self) -> relations.Relations:
        return relations.Relations(self.model, self.app, leader=self.unit.is_leader())

    def _scope(
        self, api: cluster.Cluster, options: config.Config, found: mesh.Mesh | None
    ) -> component.Scope:
        own = manifests.Manifests(api, model=self.model.name, application=self.app.name)
        return component.Scope(
            cluster=api,
            manifests=own,
            config=options,
            mesh=found,
            model=self.model.name,
            application=self.app.name,
            unit=self.unit.name,
            leader=self.unit.is_leader(),
            controller=component.Controller.read(os.environ.get("JUJU_API_ADDRESSES", "")),
            cluster_domain=component.cluster_domain(_RESOLVER.read_text()),
            exposes=self._related.is_related(*ingress.EXPOSING),
        )

    def _lifecycle(
        self, scope: component.Scope, joined: lifecycle.Joined | None
    ) -> lifecycle.Lifecycle:
        container = self.unit.get_container(lifecycle.CONTAINER)
        return lifecycle.Lifecycle(scope, container, joined)

    def _on_action(self, event: ops.ActionEvent) -> None:
        """Bring everything up to date, then answer; what goes wrong fails the action."""
        name = event.handle.kind.removesuffix("_action").replace("_", "-")
        self._on_event(event)
        if self._workload is None:
            event.fail("; ".join(status.message for status in self._statuses))
            return
        try:
            event.set_results(actions.ANSWERS[name](self._workload, event.params))
        except errors.CharmError as error:
            event.fail(str(error))

    def _on_diagnose(self, event: ops.ActionEvent) -> None:
        """Bring everything up to date, then look at all of it, whatever went wrong."""
        self._on_event(event)
        try:
            scope = self._scope(cluster.connect(), self._options_or_defaults(), None)
        except errors.CharmError as error:
            event.fail(str(error))
            return
        diagnosis.answer(event, self._look(scope), self._statuses)

    def _look(
        self, scope: component.Scope, discovery: mesh.Discovery | None = None
    ) -> diagnosis.Look:
        container = self.unit.get_container(lifecycle.CONTAINER)
        return diagnosis.Look(scope, self._related, container, discovery=discovery)


def _again(work: Callable[[], _T]) -> _T:
    """Do something anew where somebody wrote in between: it depends on what they wrote."""
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(errors.ConflictError):
            return work()
    return work()


if __name__ == "__main__":
    ops.main(IstioIntegrator)
