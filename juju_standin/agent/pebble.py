"""Follow the Pebbles of the workload containers: restarts, notices and check events."""

import http.client
import json
import logging
import socket
import threading
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import pace
from .hook import Hook

logger = logging.getLogger(__name__)

NOTICE_WAIT = 30
"""Seconds that Pebble holds a request for notices."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def request(path: Path, url: str, timeout: float = 5) -> Any:
    """GET from a Pebble socket.

    Raises:
        OSError: when nobody answers, or with an error.
    """
    connection = _UnixConnection(path, timeout)
    try:
        connection.request("GET", url)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (http.client.HTTPException, ValueError) as error:
        raise ConnectionError(f"pebble {path}: {error!r}") from error
    finally:
        connection.close()
    if response.status == http.HTTPStatus.NOT_FOUND:
        raise FileNotFoundError(url)
    if response.status != http.HTTPStatus.OK:
        raise ConnectionError(f"pebble {path}: {answer}")
    return answer["result"]


class Workload:
    """One container's Pebble; puts hooks on the queue, one at a time, and hears how they ended."""

    def __init__(
        self, name: str, pebble_socket: Path, submit: "Callable[[WorkloadEvent], None]"
    ) -> None:
        self.name = name
        self._socket = pebble_socket
        self._submit = submit
        self._boot_id = ""
        self._after = ""
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to follow."""
        for target in (self._follow_boot_id, self._follow_notices):
            threading.Thread(target=target, name=f"{self.name}-pebble", daemon=True).start()

    def stop(self) -> None:
        """Stop at the next opportunity."""
        self._stopped.set()

    def _follow_boot_id(self) -> None:
        while not self._stopped.wait(pace.READY_INTERVAL):
            try:
                boot_id = request(self._socket, "/v1/system-info")["boot-id"]
            except OSError:
                continue
            if boot_id == self._boot_id:
                continue
            hook = Hook(kind="pebble-ready", workload=self.name, boot_id=boot_id)
            if self._run(hook):
                self._boot_id = boot_id

    def _follow_notices(self) -> None:
        while not self._stopped.is_set():
            query = {"timeout": f"{NOTICE_WAIT}s", "users": "all"}
            if self._after:
                query["after"] = self._after
            try:
                notices = request(
                    self._socket, f"/v1/notices?{urllib.parse.urlencode(query)}", NOTICE_WAIT + 5
                )
            except OSError:
                self._stopped.wait(pace.NOTICE_PAUSE)
                continue
            # All at once: what waits here overtakes the relation hooks that wait for the uniter.
            events = [(notice, self._event_of(notice)) for notice in notices or ()]
            for notice, event in events:
                if event and not self._wait(event):
                    return
                self._after = notice["last-repeated"]

    def _event_of(self, notice: dict[str, Any]) -> "WorkloadEvent | None":
        hook = self._hook_of(notice)
        if hook is None:
            return None
        event = WorkloadEvent(hook)
        self._submit(event)
        return event

    def _hook_of(self, notice: dict[str, Any]) -> Hook | None:
        if notice["type"] == "custom":
            return Hook(
                kind="pebble-custom-notice",
                workload=self.name,
                notice_id=notice["id"],
                notice_type="custom",
                notice_key=notice["key"],
            )
        if notice["type"] != "change-update":
            return None
        wanted = {"perform-check": "Error", "recover-check": "Done"}
        data = notice.get("last-data") or {}
        if data.get("kind") not in wanted:
            return None
        try:
            change = request(self._socket, f"/v1/changes/{notice['key']}")
        except FileNotFoundError:
            change = {"status": wanted[data["kind"]]}
        except OSError:
            return None
        if change["status"] != wanted[data["kind"]]:
            return None
        failed = data["kind"] == "perform-check"
        return Hook(
            kind="pebble-check-failed" if failed else "pebble-check-recovered",
            workload=self.name,
            check=data.get("check-name", ""),
        )

    def _run(self, hook: Hook) -> bool:
        event = WorkloadEvent(hook)
        self._submit(event)
        return self._wait(event)

    def _wait(self, event: "WorkloadEvent") -> bool:
        while not event.done.wait(1):
            if self._stopped.is_set():
                return False
        return event.succeeded


class WorkloadEvent:
    """A hook that a Pebble caused, and how it ended."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self.done = threading.Event()
        self.succeeded = False

    def finish(self, *, succeeded: bool) -> None:
        """Tell the follower, which then goes on."""
        self.succeeded = succeeded
        self.done.set()
