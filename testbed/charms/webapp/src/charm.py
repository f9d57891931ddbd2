#!/usr/bin/env python3
"""A charm that knows nothing of meshes: it runs one web server."""

import logging
import time

import ops

logger = logging.getLogger(__name__)

PORT = 8080


class WebApp(ops.CharmBase):
    """Runs the web server in its workload container."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        framework.observe(self.on.install, self._on_install)
        framework.observe(self.on.config_changed, self._on_config_changed)
        framework.observe(self.on.web_pebble_ready, self._on_ready)
        framework.observe(self.on.collect_unit_status, self._on_collect_status)

    def _on_install(self, _: ops.InstallEvent) -> None:
        self._work("install")

    def _on_config_changed(self, _: ops.ConfigChangedEvent) -> None:
        self._work("setup")

    def _on_ready(self, event: ops.PebbleReadyEvent) -> None:
        service: ops.pebble.ServiceDict = {
            "override": "replace",
            "startup": "enabled",
            "command": f"python3 /opt/payload/server.py --port {PORT}",
        }
        event.workload.add_layer("web", {"services": {"web": service}}, combine=True)
        event.workload.replan()
        self.unit.set_ports(PORT)

    def _work(self, what: str) -> None:
        """Take as long as the option says; Juju's log keeps what a killed hook said, too."""
        if seconds := int(self.config[f"{what}-seconds"]):
            logger.info("begin %s", what)
            time.sleep(seconds)
            logger.info("end %s", what)

    def _on_collect_status(self, event: ops.CollectStatusEvent) -> None:
        container = self.unit.get_container("web")
        is_running = container.can_connect() and any(
            service.is_running() for service in container.get_services("web").values()
        )
        event.add_status(
            ops.ActiveStatus() if is_running else ops.WaitingStatus("for the web server")
        )


if __name__ == "__main__":
    ops.main(WebApp)
