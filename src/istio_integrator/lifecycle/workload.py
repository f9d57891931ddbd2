"""The workload, asked which pods lack a sidecar, and what becomes of their proxies.

The service answers on 127.0.0.1, as both containers are in one pod. What it has no answer for is
asked by exec.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import urllib.parse
from typing import Any, cast

import ops
import tenacity

from integrator_contract import bounded, service
from integrator_contract.answers import Listing, PodAnswer, ProxyAnswer
from integrator_contract.seen import Seen
from istio_integrator.kube import cluster, errors
from istio_integrator.lifecycle import answers, layer, settings

CONTAINER = "lifecycle"

PORT = service.LISTENER_PORT
_ANSWER_SECONDS = {"GET": 12, "POST": 28}
"""The service itself gives up after 10, and after 25 where it acts."""
_COMMAND_SECONDS = 30
_START_SECONDS = 3.0
"""For a service that was just started to listen."""


class Workload:
    """The program in the workload container, which alone knows the rules about pods."""

    def __init__(self, container: ops.Container) -> None:
        self._container = container

    def uninjected(self) -> Listing:
        """Ask which pods lack the sidecar that they should have.

        Raises:
            LifecycleError: There is no answer.
        """
        return answers.of_listing(self._ask("GET", "/uninjected"))

    def stale(self) -> tuple[PodAnswer, ...]:
        """Ask which pods of the model have an old sidecar.

        Raises:
            LifecycleError: There is no answer.
        """
        return answers.of_listing(self._ask("GET", "/uninjected", stale="")).pods

    def restart(self, *, dry_run: bool, stale: bool, force: bool = False) -> tuple[PodAnswer, ...]:
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
        how = {"stale": stale, "dry-run": dry_run, "force": force}
        words = {word: "" for word, is_so in how.items() if is_so}
        return answers.of_listing(self._ask("POST", "/restart", **words)).pods

    def seen(self) -> Seen:
        """Ask what the gateway's Envoys have.

        Raises:
            LifecycleError: There is no answer.
        """
        return answers.of_gateway(self._ask("GET", "/seen"))

    def explain(self, pods: list[cluster.Object]) -> list[ProxyAnswer]:
        """Ask what would be done about the proxies of some pods.

        Raises:
            LifecycleError: There is no answer.
        """
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
        argv = [layer.PROGRAM, "explain", "--settings", settings.FILE, "-"]
        return answers.of_proxies(execute(self._container, argv, document))

    def stop_proxy(self, namespace: str, pod: str) -> ProxyAnswer:
        """Stop the proxy of one pod now, if the rules say that it may end.

        Returns:
            What the rules say and, where they say stop, the `result` of it.

        Raises:
            LifecycleError: There is no answer, as for a pod that is not there.
        """
        return answers.of_stop(self._ask("POST", "/stop", namespace=namespace, pod=pod))

    @functools.cached_property
    def _token(self) -> str:
        """The listener's token, which the settings keep while their file is there."""
        told = settings.read(self._container)
        if told is None:
            raise errors.LifecycleError("the workload does not answer: it has no settings")
        return told.token

    def _ask(self, method: str, path: str, **parameters: str) -> str:
        query = urllib.parse.urlencode(parameters)
        try:
            status, text = _answer(method, f"{path}?{query}", self._token)
        except (OSError, http.client.HTTPException) as error:
            raise errors.LifecycleError(f"the workload does not answer: {error}") from error
        if status != http.HTTPStatus.OK:
            raise errors.LifecycleError(f"the workload can't tell: {text[:200]}")
        return text


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(ConnectionRefusedError),
    stop=tenacity.stop_after_delay(_START_SECONDS),
    wait=tenacity.wait_fixed(0.2),
    reraise=True,
)
def _answer(method: str, path: str, token: str) -> tuple[int, str]:
    """Return the status and the body of the service's answer."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=_ANSWER_SECONDS[method])
    with contextlib.closing(connection):
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read(bounded.LONGEST_OBJECT + 1).decode(errors="replace")


def execute(container: ops.Container, argv: list[str], stdin: str | None = None) -> str:
    """Run a command line of the program in its container, and return what it prints.

    Raises:
        LifecycleError: It fails, or does not end.
    """
    # The image's user has no home, in which Pebble would start commands.
    try:
        process = container.exec(argv, timeout=_COMMAND_SECONDS, stdin=stdin, working_dir="/")
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
