"""The workload, asked by exec: which pods lack a sidecar, and what becomes of their proxies."""

from __future__ import annotations

import json
from typing import Any, cast

import ops

from integrator_contract.answers import PodAnswer, ProxyAnswer
from istio_integrator.kube import cluster, errors
from istio_integrator.lifecycle import answers, layer, settings

CONTAINER = "lifecycle"

_ANSWER_SECONDS = 30


class Workload:
    """The program in the workload container, which alone knows the rules about pods."""

    def __init__(self, container: ops.Container) -> None:
        self._container = container

    def uninjected(self) -> answers.Answer:
        """Ask which pods lack the sidecar that they should have.

        Raises:
            LifecycleError: There is no answer.
        """
        return answers.parse(self._ask())

    def stale(self) -> list[PodAnswer]:
        """Ask which pods of the model have an old sidecar.

        Raises:
            LifecycleError: There is no answer.
        """
        return answers.parse(self._ask("--stale")).pods

    def restart(self, *, dry_run: bool, stale: bool, force: bool = False) -> list[PodAnswer]:
        """Have the leader's workload replace what may be replaced, without waiting for it.

        Args:
            dry_run: Only tell which.
            stale: Those with an old sidecar instead of those without.
            force: Also where a dry run shows that the new pod would be refused.

        Returns:
            The pods in question; the fixable ones are those to be replaced.

        Raises:
            LifecycleError: There is no answer.
        """
        which = ("--stale",) if stale else ()
        how = [*(("--dry-run",) if dry_run else ()), *(("--force",) if force else ())]
        return answers.of_pods(self._ask(*which, "--restart", *how))

    def explain(self, pods: list[cluster.Object]) -> list[ProxyAnswer]:
        """Ask what would be done about the proxies of some pods.

        Raises:
            LifecycleError: There is no answer.
        """
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
        return answers.of_proxies(execute(self._container, [*_command("explain"), "-"], document))

    def stop_proxy(self, namespace: str, pod: str) -> ProxyAnswer:
        """Stop the proxy of one pod now, if the rules say that it may end.

        Returns:
            What the rules say and, where they say stop, the `result` of it.

        Raises:
            LifecycleError: There is no answer, as for a pod that is not there.
        """
        argv = [*_command("stop"), pod, "--namespace", namespace]
        (answer,) = answers.of_proxies(execute(self._container, argv))
        return answer

    def _ask(self, *more: str) -> str:
        return execute(self._container, [*_command("uninjected"), *more])


def _command(name: str) -> list[str]:
    return [layer.PROGRAM, name, "--settings", settings.FILE]


def execute(container: ops.Container, argv: list[str], stdin: str | None = None) -> str:
    """Run a command line of the program in its container, and return what it prints.

    Raises:
        LifecycleError: It fails, or does not end.
    """
    # The image's user has no home, in which Pebble would start commands.
    try:
        process = container.exec(argv, timeout=_ANSWER_SECONDS, stdin=stdin, working_dir="/")
        output, _ = process.wait_output()
    except ops.pebble.ExecError as error:  # pyright: ignore[reportUnknownVariableType]
        # The program's last line says why it fails. What comes before may be warnings.
        reason = str(cast("Any", error).stderr or "").strip().rpartition("\n")[-1]
        reason = reason.removeprefix("sidecar-lifecycle: ")
        raise errors.LifecycleError(f"the workload can't tell: {reason[:200]}") from error
    except ops.pebble.ChangeError as error:
        # A headline, one line for the only task, and its log.
        reason = error.err.splitlines()[-1].removeprefix("- ")
        raise errors.LifecycleError(f"the workload does not answer: {reason}") from error
    except (ops.pebble.Error, TimeoutError) as error:
        raise errors.LifecycleError(f"the workload does not answer: {error}") from error
    return output
