"""The workload container: its Pebble layer, and the answers that only the workload has."""

from __future__ import annotations

import dataclasses
import json
import logging
import shlex
from collections.abc import Iterable
from typing import Any, Self, cast

import ops

import cluster
import component
import config
import errors
import mesh
import statuses

logger = logging.getLogger(__name__)

CONTAINER = "lifecycle"
SERVICE = "lifecycle"
PROGRAM = "/usr/bin/sidecar-lifecycle"
LEVEL_FILE = "/tmp/sidecar-lifecycle.log-level"  # noqa: S108  the container's own, writable by all
"""The workload reads it again and again: another level is no reason to restart it."""

_LIVE = "live"
_READY = "ready"
PORT = 8080
"""Of health and metrics."""
_ANSWER_SECONDS = 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Joined:
    """The mesh that the model's pods are asked to join."""

    namespace: str
    revision: str

    @classmethod
    def of(cls, scope: component.Scope, *, joined: bool) -> Self | None:
        """Tell which mesh that is; None where they are asked to join none.

        Args:
            scope: With the mesh that was found.
            joined: Whether the model's namespace is a member, or the selected ones of its pods.
        """
        if scope.mesh is None or not joined:
            return None
        return cls(namespace=scope.mesh.namespace, revision=scope.mesh.revision)


@dataclasses.dataclass(frozen=True)
class Paused:
    """A workload whose pods can't be replaced now."""

    workload: str
    reason: str
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summary:
    """How far the model is in the mesh."""

    eligible: int
    """Pods that are in the mesh or that we may bring there."""
    in_mesh: int
    converging: int
    """Pods that are being replaced."""
    proposed: int
    """Pods that are replaced only when somebody asks for it."""
    guarded: tuple[str, ...]
    """Workloads that again had no sidecar after their replacement, with the reason."""
    paused: tuple[Paused, ...] = ()
    """Workloads that somebody else keeps us from."""
    reported: int
    """Pods without a sidecar that are not ours to replace."""
    settled_before_us: bool
    """The model ran long before we came: nothing is replaced unasked."""
    stale: int = 0
    """Pods in the mesh whose proxy is of another revision or of an earlier istiod."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """The workload's answer about pods without the sidecar that they should have."""

    pods: list[dict[str, Any]]
    summary: Summary


def command(scope: component.Scope, joined: Joined | None, *, converge: bool = True) -> list[str]:
    """Write the command line of the service."""
    options = scope.config
    convergence = options.sidecar_convergence if joined and converge else "off"
    return [
        PROGRAM,
        "run",
        *_whose(scope),
        *("--unit", scope.unit),
        *("--mesh-namespace", joined.namespace if joined else ""),
        *("--mesh-revision", joined.revision if joined else ""),
        *_which_pods(options),
        *("--lifecycle-namespaces", ",".join(options.lifecycle_namespaces)),
        *("--proxy-shutdown", _flag(value=options.proxy_shutdown)),
        *("--wait-for-containers", ",".join(options.wait_for_containers)),
        *("--ignore-containers", ",".join(options.ignore_containers)),
        *(
            "--status-port",
            str(scope.mesh.status_port if scope.mesh else mesh.DEFAULT_STATUS_PORT),
        ),
        *("--replace-broken-pods", _flag(value=options.replace_broken_pods)),
        *("--observe-gateways", _flag(value=scope.exposes)),
        *("--convergence", convergence),
        *("--convergence-max-unavailable", str(options.convergence_max_unavailable)),
        *("--listen", f"0.0.0.0:{PORT}"),
        *("--log-level-file", LEVEL_FILE),
    ]


def _whose(scope: component.Scope) -> tuple[str, ...]:
    return "--model", scope.model, "--application", scope.application


def _which_pods(options: config.Config) -> tuple[str, ...]:
    return (
        *("--membership", options.mesh_membership),
        *("--included-pods", options.included_pods),
        *("--excluded-pods", options.excluded_pods),
    )


def _flag(*, value: bool) -> str:
    return "true" if value else "false"


def layer(argv: list[str]) -> ops.pebble.LayerDict:
    """Write the Pebble layer.

    The checks have no level: Juju's probes read the levels, and the kubelet would kill the
    container where restarting the service is enough. On a starved node even a live service
    answers late, and to restart it then would lose the stops under way.
    """
    return {
        "summary": "sidecar lifecycle",
        "services": {
            SERVICE: {
                "override": "replace",
                "summary": "stops finished proxies, brings pods into the mesh",
                "command": shlex.join(argv),
                "startup": "enabled",
                "on-check-failure": {_LIVE: "restart"},
            }
        },
        "checks": {
            _LIVE: {
                "override": "replace",
                "period": "10s",
                "timeout": "9s",
                "threshold": 3,
                "http": {"url": f"http://localhost:{PORT}/livez"},
            },
            _READY: {
                "override": "replace",
                "period": "10s",
                "timeout": "3s",
                "threshold": 3,
                "http": {"url": f"http://localhost:{PORT}/readyz"},
            },
        },
    }


def parse(output: str) -> Answer:
    """Read what `uninjected --output json` printed.

    Raises:
        LifecycleError: It is not what the command line promises.
    """
    lines = _lines(output)
    try:
        values = lines.pop()["summary"]
        guarded = tuple(f"{item['workload']}: {item['message']}" for item in values["guarded"])
        summary = Summary(
            eligible=int(values["eligible"]),
            in_mesh=int(values["in_mesh"]),
            converging=int(values["converging"]),
            proposed=int(values["proposed"]),
            guarded=guarded,
            paused=tuple(
                Paused(item["workload"], item["reason"], item["message"])
                for item in values.get("paused", ())
            ),
            reported=int(values["reported"]),
            settled_before_us=bool(values["settled_before_us"]),
            stale=int(values.get("stale", 0)),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise errors.LifecycleError(
            f"the workload's answer is not understood: {error!r}"
        ) from error
    return Answer(lines, summary)


def _lines(output: str) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in output.splitlines() if line.strip()]
    except ValueError as error:
        raise errors.LifecycleError(f"the workload's answer is not JSON: {error}") from error


def image(scope: component.Scope) -> str:
    """Read the image that the workload container runs, with registry and digest as deployed."""
    pod = scope.cluster.get(cluster.POD, scope.pod, scope.model)
    for container in cluster.items(cluster.at(pod, "spec"), "containers"):
        if container["name"] == CONTAINER:
            return container["image"]
    return ""


class Lifecycle:
    """Runs the workload on every unit, and asks it."""

    def __init__(
        self, scope: component.Scope, container: ops.Container, joined: Joined | None
    ) -> None:
        self.scope = scope
        self._container = container
        self._joined = joined
        self._statuses: list[ops.StatusBase] = []

    def reconcile(self) -> None:
        """Have the service run with the options as they are, and ask how far the model is."""
        self._statuses = []
        if not self._container.can_connect():
            self._statuses.append(ops.WaitingStatus("waiting for the lifecycle container"))
            return
        if not self._replan(command(self.scope, self._joined)) or not self._is_ready():
            return
        if self.scope.leader:
            for each in self._kept():
                if found := self.scope.cluster.get(*each):
                    self.scope.manifests.tie(found)
        try:
            self._statuses += progress(
                self.uninjected().summary if self._joined else None,
                application=self.scope.application,
            )
        except errors.LifecycleError as error:
            logger.warning("%s", error)
            self._statuses.append(ops.WaitingStatus(str(error)[:120]))

    def stop_convergence(self) -> None:
        """Let no pod be replaced any more; the reconciler goes on."""
        if self._container.can_connect():
            self._replan(command(self.scope, self._joined, converge=False))

    def stop(self) -> None:
        """Stop the service, if it runs."""
        try:
            self._container.stop(SERVICE)
        except (ops.pebble.Error, ops.ModelError, RuntimeError) as error:
            # Juju stops the container anyway, and may have done so already.
            logger.debug("The service is not stopped: %s", error)

    def remove(self) -> None:
        """Stop the service and delete what it keeps in the cluster."""
        self.stop()
        for each in self._kept():
            self.scope.cluster.delete(_named(*each))

    def _kept(self) -> Iterable[tuple[cluster.Kind, str, str]]:
        """Name what the service keeps in the cluster."""
        for kind, suffix in ((cluster.LEASE, "lifecycle"), (cluster.CONFIG_MAP, "convergence")):
            yield kind, f"{self.scope.application}-{suffix}", self.scope.model

    def statuses(self) -> Iterable[ops.StatusBase]:
        """Say what the workload says."""
        return self._statuses

    def uninjected(self) -> Answer:
        """Ask which pods lack the sidecar that they should have.

        Raises:
            LifecycleError: There is no answer.
        """
        return parse(self._ask())

    def stale(self) -> list[dict[str, Any]]:
        """Ask which pods of the model have an old sidecar.

        Raises:
            LifecycleError: There is no answer.
        """
        return parse(self._ask("--stale")).pods

    def restart(self, *, dry_run: bool, stale: bool) -> list[dict[str, Any]]:
        """Have the acting unit's workload replace what may be replaced, without waiting for it.

        Args:
            dry_run: Only tell which.
            stale: Those with an old sidecar instead of those without.

        Returns:
            The pods in question; the fixable ones are those to be replaced.

        Raises:
            LifecycleError: There is no answer.
        """
        which = ("--stale",) if stale else ()
        how = ("--dry-run",) if dry_run else ()
        return _lines(self._ask(*which, "--restart", "--no-wait", *how))

    def explain(self, pods: list[cluster.Object]) -> list[dict[str, Any]]:
        """Ask what would be done about the proxies of some pods.

        Raises:
            LifecycleError: There is no answer.
        """
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
        argv = [PROGRAM, "explain", "-", "--output", "json", *self._rules()]
        return _lines(self._exec(argv, document))

    def stop_proxy(self, namespace: str, pod: str) -> dict[str, Any]:
        """Stop the proxy of one pod now, if the rules say that it may end.

        Returns:
            What the rules say and, where they say stop, the `result` of it.

        Raises:
            LifecycleError: There is no answer, as for a pod that is not there.
        """
        argv = [PROGRAM, "stop", pod, "--namespace", namespace, "--output", "json"]
        (answer,) = _lines(self._exec([*argv, *self._rules()]))
        return answer

    def _rules(self) -> list[str]:
        options, found = self.scope.config, self.scope.mesh
        return [
            *("--wait-for-containers", ",".join(options.wait_for_containers)),
            *("--ignore-containers", ",".join(options.ignore_containers)),
            *(("--status-port", str(found.status_port)) if found else ()),
        ]

    def _ask(self, *more: str) -> str:
        now = self.scope.mesh
        argv = [
            *(PROGRAM, "uninjected"),
            *_whose(self.scope),
            *("--mesh-revision", self._joined.revision if self._joined else ""),
            *_which_pods(self.scope.config),
            *("--lifecycle-namespaces", ",".join(self.scope.config.lifecycle_namespaces)),
            *("--convergence", self.scope.config.sidecar_convergence if self._joined else "off"),
            *("--proxy-revision", now.proxy_revision if now else ""),
            *("--proxy-version", now.version if now else ""),
            *("--output", "json", *more),
        ]
        return self._exec(argv)

    def _exec(self, argv: list[str], stdin: str | None = None) -> str:
        # The image's user has no home, in which Pebble would start commands.
        try:
            process = self._container.exec(
                argv, timeout=_ANSWER_SECONDS, stdin=stdin, working_dir="/"
            )
            output, _ = process.wait_output()
        except ops.pebble.ExecError as error:  # pyright: ignore[reportUnknownVariableType]
            stderr = str(cast("Any", error).stderr or "").strip()
            raise errors.LifecycleError(f"the workload can't tell: {stderr[-200:]}") from error
        except ops.pebble.ChangeError as error:
            # A headline, one line for the only task, and its log.
            reason = error.err.splitlines()[-1].removeprefix("- ")
            raise errors.LifecycleError(f"the workload does not answer: {reason}") from error
        except (ops.pebble.Error, TimeoutError) as error:
            raise errors.LifecycleError(f"the workload does not answer: {error}") from error
        return output

    def _replan(self, argv: list[str]) -> bool:
        try:
            self._container.push(LEVEL_FILE, self.scope.config.log_level, make_dirs=True)
            self._container.add_layer(SERVICE, layer(argv), combine=True)
            self._container.replan()
        except (ops.pebble.Error, TimeoutError) as error:
            logger.warning("The lifecycle service does not start: %s", error)
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            self._statuses.append(ops.WaitingStatus(f"lifecycle does not start: {first[:100]}"))
            return False
        return True

    def _is_ready(self) -> bool:
        try:
            check = self._container.get_checks(_READY).get(_READY)
        except (ops.pebble.Error, TimeoutError) as error:
            logger.warning("Whether the lifecycle service is ready: %s", error)
            self._statuses.append(ops.WaitingStatus("waiting for Pebble in lifecycle"))
            return False
        if check is not None and check.status is ops.pebble.CheckStatus.DOWN:
            self._statuses.append(ops.WaitingStatus("waiting for lifecycle to watch the cluster"))
            return False
        return True


def progress(summary: Summary | None, *, application: str) -> Iterable[ops.StatusBase]:
    """Turn the workload's counts into what the operator sees; None while not in a mesh."""
    if summary is None:
        return
    counts = f"{summary.in_mesh}/{summary.eligible} pods in mesh"
    for workload in summary.guarded[:1]:
        more = f" (and {len(summary.guarded) - 1} more)" if len(summary.guarded) > 1 else ""
        yield ops.BlockedStatus(f"{workload}{more}")
    for paused in summary.paused[:1]:
        yield _pause(paused, counts, application)
    if summary.converging:
        yield ops.MaintenanceStatus(f"{counts}, {summary.converging} being replaced")
    elif summary.proposed:
        why = ", settled before we came" if summary.settled_before_us else ""
        restart = f"juju run {application}/leader restart-uninjected"
        yield ops.BlockedStatus(f"{counts}{why}; run: {restart}")
    elif summary.in_mesh < summary.eligible and not (summary.guarded or summary.paused):
        yield ops.MaintenanceStatus(f"{counts}, the others are being brought in")
    outside = f", {summary.reported} not ours to replace" if summary.reported else ""
    old = f", {summary.stale} with an old proxy: restart-stale" if summary.stale else ""
    yield ops.ActiveStatus(f"{counts}{outside}{old}")


def _pause(paused: Paused, counts: str, application: str) -> ops.StatusBase:
    if paused.reason == "Forbidden":
        error = errors.ForbiddenError(403, paused.message)
        return statuses.of_error(error, application=application)
    return ops.WaitingStatus(f"{counts}, {paused.workload} waits: {paused.message}")


def _named(kind: cluster.Kind, name: str, namespace: str) -> cluster.Object:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
