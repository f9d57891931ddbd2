"""The client of the workload, for pods, proxies and the gateway.

The service answers on 127.0.0.1, as both containers are in one pod. The contract of its image is
known before the service runs: the program prints it with `--version`.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import logging
import pathlib
import re
import shlex
import urllib.parse
from collections.abc import Generator
from typing import TypeVar

import msgspec
import ops
import tenacity

from integrator_contract import bounded, schema, seen, service
from integrator_contract.answers import Listing, PodAnswer, ProxyAnswer
from istio_integrator import texts
from istio_integrator.kube import errors

logger = logging.getLogger(__name__)

CONTAINER = "lifecycle"
SERVICE = "lifecycle"
PROGRAM = "/usr/bin/sidecar-lifecycle"
CONTRACT = ("--contract", schema.SCHEMA)
SETTINGS = "/tmp/sidecar-lifecycle.settings.json"  # noqa: S108  the container's, writable by all
RESULTS = str(service.name_results_file(pathlib.PurePath(SETTINGS)))

_T = TypeVar("_T")
_KEEPS_TO = re.compile(r"\(contract ([0-9a-f]{1,16})\)$")
"""The end of the output of `--version`."""
_COMMAND_SECONDS = 30
_START_SECONDS = 3.0
"""Seconds for a service that was just started to listen."""
_LONGEST_ERROR = 500
"""Characters of an error about an answer, which quotes the answer."""


@contextlib.contextmanager
def translate_pebble_errors(problem: str) -> Generator[None]:
    """Turn errors of Pebble into a LifecycleError with the problem and the reason."""
    try:
        yield
    except ops.pebble.ChangeError as error:
        # A headline, one line for the only task, and its log.
        reason = error.err.strip().rpartition("\n")[2].removeprefix("- ")
        raise errors.LifecycleError(f"{problem}: {reason}") from error
    except (ops.pebble.Error, TimeoutError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise errors.LifecycleError(f"{problem}: {reason}") from error


class WorkloadClient:
    """The program in the workload container, which has the rules about pods.

    Its methods raise LifecycleError without an answer.
    """

    def __init__(self, container: ops.Container) -> None:
        self.container = container

    @property
    def is_running(self) -> bool:
        """Whether the service runs, as far as Pebble answers."""
        with contextlib.suppress(ops.pebble.Error, ops.ModelError, RuntimeError):
            return self.container.get_service(SERVICE).is_running()
        return False

    def read_settings(self) -> service.Options | None:
        """Return the present settings of the service; None if unknown."""
        return self._read_file(SETTINGS, service.Options)

    def write_settings(self, settings: service.Options) -> None:
        """Write the settings of the service; raise LifecycleError if Pebble fails."""
        self._write_file(SETTINGS, settings)

    def read_expectation(self) -> seen.Expectation | None:
        """Return the gateway's expected configuration of an earlier hook."""
        last = self._read_file(RESULTS, service.Results)
        return last.expected if last else None

    def write_results(self, results: service.Results) -> None:
        """Write the results of this hook; if that fails, the next hook writes its own."""
        if self.container.can_connect():
            try:
                self._write_file(RESULTS, results)
            except errors.LifecycleError as error:
                logger.warning("What this hook found is not in the metrics: %s", error)

    def list_uninjected(self) -> Listing:
        """Return the pods that lack their sidecar."""
        return self._request_answer(Listing, "GET", "/uninjected")

    def list_stale(self) -> tuple[PodAnswer, ...]:
        """Return the pods of the model that have an old sidecar."""
        return self._request_answer(Listing, "GET", "/uninjected", stale="").pods

    def restart_pods(
        self, *, dry_run: bool, stale: bool, force: bool = False
    ) -> tuple[PodAnswer, ...]:
        """Make the leader's workload replace pods that have an old sidecar or lack one.

        The call does not wait for the end. Of the returned pods, the fixable ones are replaced.
        With `force` this includes pods beside unready ones, and those that a dry run rejects.
        """
        how = {"stale": stale, "dry-run": dry_run, "force": force}
        words = {word: "" for word, is_so in how.items() if is_so}
        return self._request_answer(Listing, "POST", "/restart", **words).pods

    def read_envoy_state(self) -> seen.EnvoyState | None:
        """Return the configuration of the gateway's Envoys; None without an answer."""
        try:
            return self._request_answer(seen.EnvoyState, "GET", "/seen")
        except errors.LifecycleError as error:
            logger.warning("%s", error)
            return None

    def has_chain(self, namespace: str, pod: str, name: str) -> bool:
        """Tell whether a pod's proxy has an outbound filter chain of an EnvoyFilter."""
        return self._request_answer(
            bool, "GET", "/outbound", namespace=namespace, pod=pod, name=name
        )

    def stop_proxy(self, namespace: str, pod: str) -> ProxyAnswer:
        """Stop the proxy of one pod now, if the rules allow it.

        The answer has the decision and, if that is to stop, the `result` of the stop.
        """
        return self._request_answer(ProxyAnswer, "POST", "/stop", namespace=namespace, pod=pod)

    def list_ended(self) -> list[ProxyAnswer]:
        """Return the decisions about running proxies of pods whose payload has ended."""
        return self._request_answer(list[ProxyAnswer], "GET", "/ended")

    def read_contract(self) -> str:
        """Return the contract of the image; empty if the image names none.

        A service with the contract in its command runs in an image with that contract.
        """
        with translate_pebble_errors("waiting for Pebble in lifecycle"):
            running = self.container.get_plan().services.get(SERVICE)
        if running and CONTRACT in itertools.pairwise(shlex.split(running.command)):
            return schema.SCHEMA
        with translate_pebble_errors("the workload does not answer"):
            # The image's user has no home directory, where Pebble would start commands.
            process = self.container.exec(
                [PROGRAM, "--version"], timeout=_COMMAND_SECONDS, working_dir="/"
            )
            said = _KEEPS_TO.search(process.wait_output()[0].strip())
        return said[1] if said else ""

    @functools.cached_property
    def _token(self) -> str:
        """The listener's token, from the settings file."""
        told = self.read_settings()
        if told is None:
            raise errors.LifecycleError("the workload does not answer: it has no settings")
        return told.token

    def _read_file(self, file: str, kind: type[_T]) -> _T | None:
        try:
            with self.container.pull(file, encoding=None) as found:
                return msgspec.json.decode(found.read(), type=kind)
        except (ops.pebble.Error, TimeoutError, ValueError, RecursionError) as error:
            logger.debug("%s is not known: %s", file, error)
            return None

    def _write_file(self, file: str, values: service.Options | service.Results) -> None:
        with translate_pebble_errors("lifecycle gets no settings"):
            self.container.push(file, values.encode(), make_dirs=True, permissions=0o600)

    def _request_answer(self, kind: type[_T], method: str, path: str, **parameters: str) -> _T:
        query = urllib.parse.urlencode(parameters)
        try:
            status, body = _send_request(method, f"{path}?{query}", self._token)
        except (OSError, http.client.HTTPException) as error:
            raise errors.LifecycleError(f"the workload does not answer: {error}") from error
        if status != http.HTTPStatus.OK:
            text = body.decode(errors="replace")[:200]
            is_input = status == http.HTTPStatus.BAD_REQUEST
            raise errors.LifecycleError(text if is_input else f"the workload reports: {text}")
        headed = _decode(_Answer, body)
        if headed.contract != schema.SCHEMA:
            raise errors.LifecycleError(f"the workload answers by contract {headed.contract[:16]}")
        return _decode(kind, headed.answer)


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(ConnectionRefusedError),
    stop=tenacity.stop_after_delay(_START_SECONDS),
    wait=tenacity.wait_fixed(0.2),
    reraise=True,
)
def _send_request(method: str, path: str, token: str) -> tuple[int, bytes]:
    """Return the status and the body of the service's answer."""
    where = ("127.0.0.1", service.LISTENER_PORT)
    connection = http.client.HTTPConnection(*where, timeout=service.ANSWER_SECONDS[method])
    with contextlib.closing(connection):
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read(bounded.LONGEST_OBJECT + 1)


class _Answer(msgspec.Struct):
    """An answer of the service, which names its contract."""

    contract: str
    answer: msgspec.Raw


def _decode(kind: type[_T], document: bytes | str | msgspec.Raw) -> _T:
    try:
        return msgspec.json.decode(document, type=kind)
    except (ValueError, RecursionError) as error:
        said = texts.escape(f"the workload's answer is not understood: {error}", _LONGEST_ERROR)
        raise errors.LifecycleError(said) from error
