#!/usr/bin/env python3
"""Serves HTTP, and asks for its path and for being asked as Kubeflow's charms do."""

import pathlib

import ops
import serialized_data_interface as sdi

SERVER = pathlib.Path(__file__).with_name("server.py")
PLACE = "/srv/server.py"


class KubeflowApp(ops.CharmBase):
    """Runs a server that is packed with it."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        self._waiting = ""
        for event in (
            self.on.config_changed,
            self.on.leader_elected,
            self.on.server_pebble_ready,
            self.on["ingress"].relation_changed,
            self.on["ingress-auth"].relation_changed,
        ):
            framework.observe(event, self._reconcile)
        framework.observe(self.on.collect_unit_status, self._on_collect_status)

    @property
    def _port(self) -> int:
        return int(str(self.config["arguments"]).split()[0])

    def _reconcile(self, _: ops.EventBase) -> None:
        self._serve()
        if not self.unit.is_leader():
            return
        request = {"service": self.app.name, "port": self._port, "prefix": self.config["prefix"]}
        if rewrite := self.config["rewrite"]:
            request["rewrite"] = rewrite
        self._send("ingress", request)
        asked = {
            "service": self.app.name,
            "port": self._port,
            "allowed-request-headers": ["cookie", "X-Auth-Token"],
            "allowed-response-headers": ["kubeflow-userid"],
        }
        self._send("ingress-auth", asked)

    def _send(self, endpoint: str, data: dict[str, object]) -> None:
        try:
            interface = sdi.get_interface(self, endpoint)
        except sdi.NoVersionsListed as error:
            self._waiting = str(error)
            return
        if interface:
            interface.send_data(data)

    def _serve(self) -> None:
        container = self.unit.get_container("server")
        if not container.can_connect():
            return
        self.unit.set_ports(self._port)
        container.push(PLACE, SERVER.read_text(), make_dirs=True)
        command = f"python3 {PLACE} {self.config['arguments']}"
        service: ops.pebble.ServiceDict = {
            "override": "replace",
            "startup": "enabled",
            "command": command,
        }
        container.add_layer("server", {"services": {"server": service}}, combine=True)
        container.replan()

    def _on_collect_status(self, event: ops.CollectStatusEvent) -> None:
        container = self.unit.get_container("server")
        if not container.can_connect() or not container.get_services("server"):
            self._waiting = "for the server"
        event.add_status(ops.WaitingStatus(self._waiting) if self._waiting else ops.ActiveStatus())


if __name__ == "__main__":
    ops.main(KubeflowApp)
