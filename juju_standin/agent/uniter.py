"""The uniter: ask what is next, run it, commit or drop, again."""

import copy
import random
import signal
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import archive, pace, process, resolver
from .api import LONG_POLL, Controller, ControllerError
from .context import ActionRun, HookContext, UnitBagCache
from .hook import Hook
from .jujuc import ToolServer
from .pebble import Workload, WorkloadEvent

SPREAD = 0.2
"""Share by which retries and update-status are moved at random."""

AGENT_STATUS = {
    "install": "installing charm software",
    "stop": "stopping charm software",
    "remove": "cleaning up prior to charm deletion",
}
"""The workload status that the agent itself sets before these hooks."""


class BounceError(Exception):
    """The uniter has to start again, as Juju's worker does after a failed notice hook."""


@dataclass(frozen=True)
class Settings:
    """What the agent is told when it starts."""

    unit: str
    paths: process.Paths
    sockets: dict[str, Path]
    """Pebble sockets by workload container."""


class Uniter:
    """Runs one unit's hooks and actions, strictly one after another."""

    is_ready = False
    """Whether the start hook has committed: the agent's readiness."""
    is_terminated = False
    """Whether SIGTERM has come."""

    def __init__(
        self,
        controller: Controller,
        settings: Settings,
        log: process.LogLine,
        tools: ToolServer,
    ) -> None:
        self._controller = controller
        self._settings = settings
        self._log = log
        self._tools = tools
        self._runner = process.Runner(log)
        self._wake = threading.Event()
        self._local = resolver.LocalState()

    def terminate(self) -> None:
        """React to SIGTERM: end the running hook and, if the unit will be back, stop it."""
        self.is_terminated = True
        self._runner.terminate()
        self._wake.set()

    def run(self) -> bool:
        """Live until the unit is dead (true) or its pod goes away (false).

        Raises:
            BounceError: when it has to start again.
            OSError: when the controller is lost.
        """
        login = self._controller.call("login", address=own_address(self._controller.address))
        self._model = login["model"]
        self._local = resolver.LocalState.from_dict(login["uniter_state"])
        resolver.after_agent_start(self._local, has_charm=self._settings.paths.charm.exists())
        self._cache = UnitBagCache()
        self._events: deque[WorkloadEvent] = deque()
        self._retries = 0
        self._retry_at = time.monotonic()
        self._interval = -1.0
        self._update_status_at = time.monotonic()
        self._is_stopping = False
        self._lost: Exception | None = None
        self.is_ready = False
        over = threading.Event()
        threading.Thread(target=self._watch, args=(over,), daemon=True).start()
        workloads = [
            Workload(name, path, self._submit) for name, path in self._settings.sockets.items()
        ]
        for workload in workloads:
            workload.start()
        try:
            return self._loop()
        finally:
            over.set()
            for workload in workloads:
                workload.stop()

    def _submit(self, event: WorkloadEvent) -> None:
        self._events.append(event)
        self._wake.set()

    def _watch(self, over: threading.Event) -> None:
        seen = ""
        while not over.is_set():
            try:
                seen = self._controller.call("watch", seen=seen, seconds=LONG_POLL)
            except (OSError, ControllerError) as error:
                self._lost = error
            self._wake.set()
            if self._lost:
                return

    def _loop(self) -> bool:
        while True:
            self._wake.clear()
            if self._lost:
                raise BounceError(f"controller lost: {self._lost}")
            if self.is_terminated and not self._is_stopping:
                self._is_stopping = self._controller.call("will_restart")
            snapshot = self._controller.call("snapshot")
            remote = resolver.RemoteState.from_dict(snapshot["unit"])
            self._resolve(snapshot)
            if not snapshot["workload_notices"]:
                self._drop_notices()
            self._join_relations(remote)
            moment = self._moment(snapshot)
            step = resolver.next_step(self._local, remote, moment)
            if isinstance(step, resolver.Finish):
                return step.dead
            if step is None:
                self._become_idle()
                self._wake.wait(self._seconds_to_wait())
            else:
                self._execute(step, remote, snapshot)

    def _moment(self, snapshot: dict[str, Any]) -> resolver.Moment:
        keys = sorted(self._local.relations)
        interval = snapshot["update_status_interval"]
        if interval != self._interval:
            self._interval = interval
            self._update_status_at = time.monotonic() + self._update_interval(snapshot)
        return resolver.Moment(
            unit=self._settings.unit,
            shutting_down=self._is_stopping,
            retry_due=time.monotonic() >= self._retry_at,
            update_status_due=interval > 0 and time.monotonic() >= self._update_status_at,
            workload_hook=self._events[0].hook if self._events else None,
            relation_order=tuple(random.sample(keys, len(keys))),
        )

    def _execute(
        self, step: resolver.Step, remote: resolver.RemoteState, snapshot: dict[str, Any]
    ) -> None:
        match step:
            case Hook():
                self._run_hook(step, remote)
                if step.kind == "update-status" or time.monotonic() >= self._update_status_at:
                    self._update_status_at = time.monotonic() + self._update_interval(snapshot)
            case resolver.RunAction(number):
                self._run_action(number)
            case resolver.LeaveScope(relation):
                self._local.relations.pop(relation)
                self._controller.call("leave_scope", relation=relation)
                self._save()
            case resolver.Resign():
                self._local.leader = False
                self._save()
            case resolver.Finish():
                raise AssertionError(step)

    def _run_hook(self, hook: Hook, remote: resolver.RemoteState) -> None:
        self._set_agent_status("executing", f"running {hook.name} hook")
        if hook.kind in AGENT_STATUS:
            self._set_workload_status("maintenance", AGENT_STATUS[hook.kind])
        if hook.kind in ("install", "upgrade-charm"):
            self._deploy_charm()
        context = self._context(hook=hook)
        result = self._dispatch(context, hook.name)
        if result.returncode in (-signal.SIGTERM, 128 + signal.SIGTERM):
            self._requeue(hook)
        elif result.returncode == 0 and self._commit(context, hook, remote):
            self._log("INFO", "worker.uniter.operation", f'ran "{hook.name}" hook')
            self._after_success(hook)
        else:
            self._log(
                "ERROR",
                "worker.uniter.operation",
                f'hook "{hook.name}" failed: exit status {result.returncode}',
            )
            self._after_failure(hook)

    def _commit(self, context: HookContext, hook: Hook, remote: resolver.RemoteState) -> bool:
        after = copy.deepcopy(self._local)
        resolver.after_success(after, hook, remote.config_hash)
        try:
            context.commit(after.to_dict())
        except ControllerError as error:
            self._log("ERROR", "worker.uniter.context", f"cannot commit: {error}")
            return False
        self._local = after
        return True

    def _after_success(self, hook: Hook) -> None:
        self._retries = 0
        self._retry_at = time.monotonic()
        if hook.kind == "relation-broken":
            self._controller.call("leave_scope", relation=hook.relation)
        elif hook.kind == "start":
            self.is_ready = True
            self._controller.call("started")
        elif hook.kind == "stop":
            self.is_ready = False
        elif hook.kind == "remove":
            self._set_workload_status("terminated", "")
        elif hook.is_pebble:
            self._finish_event(hook, succeeded=True)

    def _after_failure(self, hook: Hook) -> None:
        if hook.is_pebble:
            self._finish_event(hook, succeeded=False)
            if hook.kind != "pebble-ready":
                raise BounceError(f'"{hook.name}" failed')
            return
        if hook.kind == "stop" and self._is_stopping:
            self._local.stopped = True
            return
        delay = min(pace.FIRST_RETRY * 2**self._retries, pace.LAST_RETRY)
        self._retries += 1
        self._retry_at = time.monotonic() + delay * random.uniform(1 - SPREAD, 1 + SPREAD)
        self._local.pending, self._local.failed = hook, True
        self._save()
        self._set_agent_status("error", f'hook failed: "{hook.name}"')

    def _requeue(self, hook: Hook) -> None:
        self._log("INFO", "worker.uniter", f'hook "{hook.name}" was interrupted, queued again')
        if hook.is_pebble:
            self._finish_event(hook, succeeded=False)
        elif hook.kind != "stop":
            self._local.pending, self._local.failed = hook, False
            self._save()

    def _drop_notices(self) -> None:
        """Be as Juju before 3.6.25, which has no hook for notices of non-root workloads."""
        while self._events and self._events[0].hook.kind == "pebble-custom-notice":
            event = self._events.popleft()
            self._log("INFO", "worker.uniter", f"notice {event.hook.notice_key} dropped")
            event.finish(succeeded=True)

    def _finish_event(self, hook: Hook, *, succeeded: bool) -> None:
        if self._events and self._events[0].hook == hook:
            self._events.popleft().finish(succeeded=succeeded)

    def _run_action(self, number: str) -> None:
        begun = self._controller.call("begin_action", action=number)
        action = ActionRun(number, begun["name"], begun["parameters"])
        self._set_agent_status("executing", f"running action {action.name}")
        context = self._context(action=action)
        result = self._dispatch(context, action.name)
        if result.returncode == 0:
            try:
                context.commit(self._local.to_dict())
            except ControllerError as error:
                action.failed, action.message = True, str(error)
        else:
            action.failed = True
            action.message = action.message or f"exit status {result.returncode}"
        output: dict[str, Any] = {"return-code": result.returncode}
        output |= {"stdout": result.stdout} if result.stdout else {}
        output |= {"stderr": result.stderr} if result.stderr else {}
        self._controller.call(
            "finish_action",
            action=number,
            status="failed" if action.failed else "completed",
            message=action.message,
            results={**action.results, **output},
        )
        if self._local.failed and self._local.pending:
            name = self._local.pending.name
            self._set_agent_status("error", f'hook failed: "{name}"')

    def _context(self, hook: Hook | None = None, action: ActionRun | None = None) -> HookContext:
        return HookContext(
            self._controller,
            self._settings.unit,
            self._local.relations,
            self._cache,
            log=self._log,
            hook=hook,
            action=action,
        )

    def _dispatch(self, context: HookContext, name: str) -> process.Result:
        paths = self._settings.paths
        self._tools.enter(context)
        try:
            variables = process.environment(context, paths, self._model, process.inherited())
            return self._runner.run(paths.charm, variables, name)
        finally:
            self._tools.enter(None)

    def _deploy_charm(self) -> None:
        paths = self._settings.paths
        if paths.charm.exists():
            return
        packed = paths.agent / "state" / "charm.zip"
        packed.parent.mkdir(parents=True, exist_ok=True)
        self._controller.download_charm(packed)
        archive.unpack(packed, paths.charm)
        packed.unlink()

    def _join_relations(self, remote: resolver.RemoteState) -> None:
        if not self._local.installed or self._local.pending or remote.life != "alive":
            return
        for key, relation in remote.relations.items():
            if key not in self._local.relations and relation.life == "alive":
                self._controller.call("enter_scope", relation=key)
                self._local.relations[key] = resolver.LocalRelation(
                    relation.endpoint, relation.application, relation.is_peer
                )

    def _resolve(self, snapshot: dict[str, Any]) -> None:
        if not snapshot["resolved"]:
            return
        self._controller.call("clear_resolved")
        hook = self._local.pending
        if hook and self._local.failed:
            resolver.after_success(self._local, hook, snapshot["unit"]["config_hash"])
            self._save()
            self._after_success(hook)

    def _become_idle(self) -> None:
        if not self._local.failed:
            self._set_agent_status("idle", "")

    def _seconds_to_wait(self) -> float:
        due = [time.monotonic() + LONG_POLL]
        if self._interval > 0:
            due.append(self._update_status_at)
        if self._local.failed:
            due.append(self._retry_at)
        return max(0.05, min(due) - time.monotonic())

    def _update_interval(self, snapshot: dict[str, Any]) -> float:
        return snapshot["update_status_interval"] * random.uniform(1 - SPREAD, 1 + SPREAD)

    def _save(self) -> None:
        self._controller.call("save_state", uniter_state=self._local.to_dict())

    def _set_agent_status(self, status: str, message: str) -> None:
        self._controller.call("set_agent_status", status=status, message=message)

    def _set_workload_status(self, status: str, message: str) -> None:
        self._controller.call("set_status", status=status, message=message)


def own_address(controller: str) -> str:
    """The address from which the controller is reached: the pod's."""
    host, port = controller.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        return probe.getsockname()[0]
