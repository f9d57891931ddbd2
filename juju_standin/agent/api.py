"""Talk to the controller over HTTPS: remote calls, and the charm's download."""

import http.client
import json
import shutil
import ssl
from pathlib import Path
from typing import Any

LONG_POLL = 25.0
"""Seconds that the controller may hold a call for news; below the usual proxies' 30 s."""


class ControllerError(Exception):
    """The controller answered with an error; the text is what a hook tool prints."""


class Controller:
    """A client of the controller that speaks for one unit (or, before that, one pod)."""

    def __init__(self, address: str, ca_certificate: str, identity: dict[str, str]) -> None:
        self.address = address
        self._identity = identity
        self._tls = ssl.create_default_context(cadata=ca_certificate)
        self._idle: list[http.client.HTTPSConnection] = []

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the controller's agent interface.

        Raises:
            ControllerError: when the controller refuses.
            OSError: when the controller can't be reached.
        """
        body = json.dumps({"identity": self._identity, "parameters": parameters})
        try:
            answer = json.loads(self._post(f"/agent/{method}", body))
        except (http.client.HTTPException, ValueError) as error:
            raise ConnectionError(f"controller {self.address}: {error!r}") from error
        if "error" in answer:
            raise ControllerError(answer["error"])
        return answer["result"]

    def _post(self, path: str, body: str) -> bytes:
        """Send a request, on a connection of before if there is one that still stands."""
        while True:
            try:
                connection, is_new = self._idle.pop(), False
            except IndexError:
                connection, is_new = self._connect(), True
            try:
                connection.request("POST", path, body)
                response = connection.getresponse()
                text = response.read()
            except (http.client.RemoteDisconnected, ConnectionError):
                connection.close()
                # The controller had taken leave of it before it could see the request.
                if is_new:
                    raise
                continue
            except BaseException:
                connection.close()
                raise
            if response.will_close:
                connection.close()
            else:
                self._idle.append(connection)
            return text

    def download_charm(self, target: Path) -> None:
        """Fetch the packed charm of our application."""
        connection = self._connect()
        try:
            connection.request("POST", "/charm", json.dumps({"identity": self._identity}))
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                raise ControllerError(f"charm download: HTTP {response.status}")
            with target.open("wb") as file:
                shutil.copyfileobj(response, file)
        finally:
            connection.close()

    def close(self) -> None:
        """Take leave of the controller."""
        while self._idle:
            self._idle.pop().close()

    def _connect(self) -> http.client.HTTPSConnection:
        host, port = self.address.rsplit(":", 1)
        return http.client.HTTPSConnection(
            host, int(port), context=self._tls, timeout=LONG_POLL + 15
        )
