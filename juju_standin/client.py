"""Drive the controller from Python, in the words of Canonical's `jubilant`."""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

WAIT = 300.0
"""Seconds for which waiting is worth it by default."""

POLL = 0.25
"""Seconds between looks while waiting."""


class JujuError(Exception):
    """The controller refused, or something did not happen in time."""


class ActionFailedError(JujuError):
    """An action ended as failed; `outcome` is what it left."""

    def __init__(self, outcome: dict[str, Any]) -> None:
        super().__init__(f"action {outcome['action']} {outcome['status']}: {outcome['message']}")
        self.outcome = outcome


class Controller:
    """The controller's command interface."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self._folder = folder

    def command(self, name: str, /, **given: Any) -> Any:
        """Run a command.

        Raises:
            JujuError: when the controller refuses.
            OSError: when it can't be reached.
        """
        host, port = self.address.rsplit(":", 1)
        tls = ssl.create_default_context(cafile=str(self._folder / "ca.crt"))
        password = (self._folder / "password").read_text()
        connection = http.client.HTTPSConnection(host, int(port), context=tls, timeout=WAIT)
        try:
            connection.request(
                "POST",
                f"/command/{name}",
                json.dumps(given),
                {"Authorization": f"Bearer {password}"},
            )
            answer = json.loads(connection.getresponse().read())
        except (http.client.HTTPException, ValueError) as error:
            raise ConnectionError(f"controller {self.address}: {error!r}") from error
        finally:
            connection.close()
        if "error" in answer:
            raise JujuError(answer["error"])
        return answer["result"]


class Juju:
    """One model."""

    def __init__(self, controller: Controller, model: str) -> None:
        """Name a model that may not exist yet."""
        self._controller = controller
        self.model = model

    def add_model(self, config: Mapping[str, str] | None = None) -> None:
        """Create the model."""
        self._controller.command("add-model", name=self.model, config=dict(config or {}))

    def destroy_model(self, *, force: bool = False) -> None:
        """Remove everything in the model, then its namespace."""
        self._controller.command("destroy-model", model=self.model, force=force)

    def model_config(self, values: Mapping[str, Any]) -> None:
        """Change the model's options."""
        self._command("model-config", values=dict(values))

    def deploy(
        self,
        charm: Path,
        app: str = "",
        *,
        config: Mapping[str, str] | None = None,
        resources: Mapping[str, str] | None = None,
        trust: bool = False,
        num_units: int = 1,
    ) -> str:
        """Deploy a packed charm; returns the application's name."""
        return self._command(
            "deploy",
            charm=str(Path(charm).resolve()),
            name=app,
            config=dict(config or {}),
            resources=dict(resources or {}),
            trust=trust,
            units=num_units,
        )

    def fake_app(self, name: str, script: Mapping[str, Any]) -> None:
        """Create or change a scripted application.

        Args:
            name: Its name.
            script: endpoint → `role` (provides, requires), `interface`, `application` and `unit`
                settings.
        """
        self._command("fake-app", name=name, script=dict(script))

    def config(
        self, app: str, values: Mapping[str, Any] | None = None, reset: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Change an application's options; returns their values."""
        given = {key: _text(value) for key, value in (values or {}).items()}
        return self._command("config", application=app, values=given, reset=list(reset))

    def trust(self, app: str, *, remove: bool = False) -> None:
        """Give the application the whole cluster, or take it back."""
        self._command("trust", application=app, remove=remove)

    def integrate(self, first: str, second: str) -> None:
        """Relate two applications."""
        self._command("integrate", first=first, second=second)

    def remove_relation(self, first: str, second: str) -> None:
        """Remove a relation."""
        self._command("remove-relation", first=first, second=second)

    def add_unit(self, app: str, num_units: int = 1) -> None:
        """Add units."""
        self._command("add-unit", application=app, count=num_units)

    def remove_unit(self, app: str, num_units: int = 1) -> None:
        """Remove the units with the highest numbers."""
        self._command("remove-unit", application=app, count=num_units)

    def refresh(
        self, app: str, charm: Path | None = None, resources: Mapping[str, str] | None = None
    ) -> None:
        """Change the charm or its images."""
        path = str(charm.resolve()) if charm else ""
        self._command("refresh", application=app, charm=path, resources=dict(resources or {}))

    def remove_application(self, app: str, *, force: bool = False) -> None:
        """Remove an application; by force, without running its hooks."""
        self._command("remove-application", application=app, force=force)

    def run(
        self, unit: str, action: str, params: Mapping[str, Any] | None = None, wait: float = WAIT
    ) -> dict[str, Any]:
        """Run an action and wait for its end.

        Raises:
            ActionFailedError: when it fails.
            JujuError: when it does not end in time.
        """
        number = self._command("run", target=unit, action=action, parameters=dict(params or {}))
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            outcome = self._command("show-operation", number=number)
            if outcome["status"] == "failed":
                raise ActionFailedError(outcome)
            if outcome["status"] == "completed":
                return outcome
            time.sleep(POLL)
        raise JujuError(f"action {action} on {unit} did not end in {wait:.0f} s")

    def resolved(self, unit: str) -> None:
        """Let a unit go on without its failed hook, as `juju resolved --no-retry` does."""
        self._command("resolved", unit=unit)

    def lead(self, unit: str) -> None:
        """Move leadership to a unit, as a lease that ran out would (not a command of Juju)."""
        self._command("lead", unit=unit)

    def status(self) -> dict[str, Any]:
        """The model's status, as `juju status --format json` shows it."""
        return self._command("status")

    def show_unit(self, unit: str) -> dict[str, Any]:
        """A unit with its relations' settings."""
        return self._command("show-unit", unit=unit)[unit]

    def debug_log(self) -> str:
        """The whole log."""
        return self._command("debug-log")

    def wait(
        self, ready: Callable[[dict[str, Any]], bool], timeout: float = WAIT
    ) -> dict[str, Any]:
        """Wait until the status is as wanted; returns it.

        Raises:
            JujuError: when it is not in time.
        """
        deadline = time.monotonic() + timeout
        while True:
            status = self.status()
            if ready(status):
                return status
            if time.monotonic() > deadline:
                raise JujuError(f"not in {timeout:.0f} s: {json.dumps(status['applications'])}")
            time.sleep(POLL)

    def wait_for(self, app: str, status: str = "active", timeout: float = WAIT) -> dict[str, Any]:
        """Wait until an application and all its units have a status and are idle."""
        return self.wait(lambda found: has_status(found, app, status), timeout)

    def wait_gone(self, app: str, timeout: float = WAIT) -> None:
        """Wait until an application has disappeared."""
        self.wait(lambda found: app not in found["applications"], timeout)

    def _command(self, name: str, /, **given: Any) -> Any:
        return self._controller.command(name, model=self.model, **given)


def has_status(status: Mapping[str, Any], app: str, wanted: str) -> bool:
    """Whether an application and all units that it should have show a status, agents idle."""
    application = status["applications"].get(app)
    if application is None or application["application-status"]["current"] != wanted:
        return False
    units = application["units"].values()
    return len(units) == max(application["scale"], 1 if units else 0) and all(
        unit["workload-status"]["current"] == wanted and unit["juju-status"]["current"] == "idle"
        for unit in units
    )


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
