#!/usr/bin/env python3
"""Serves HTTP, and asks for its path as Kubeflow's charms do."""

import logging
import pathlib

import ops
import serialized_data_interface as sdi
from charmlibs.interfaces import istio_ingress_route as routes
from charmlibs.interfaces import service_mesh

SERVER = pathlib.Path(__file__).with_name("server.py")
PLACE = "/srv/server.py"
ENDPOINTS = ("istio-ingress-route", "istio-ingress-route-unauthenticated")


class KubeflowApp(ops.CharmBase):
    """Runs a server that is packed with it."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        # Each line of a log is a process; the client of Kubernetes writes many.
        logging.getLogger().setLevel(logging.INFO)
        self._waiting = ""
        self._routes = {name: routes.IstioIngressRouteRequirer(self, name) for name in ENDPOINTS}
        self._mesh = service_mesh.ServiceMeshConsumer(self, policies=[self._callers])
        for event in (
            *(requirer.on.ready for requirer in self._routes.values()),
            *(self.on[name].relation_created for name in ENDPOINTS),
            self.on.config_changed,
            self.on.leader_elected,
            self.on.server_pebble_ready,
            self.on["ingress"].relation_changed,
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
        self._send("ingress", request)
        for requirer in self._routes.values():
            if requirer.is_ready():
                requirer.submit_config(self._config(requirer))

    @property
    def _callers(self) -> service_mesh.AppPolicy:
        """Who may call the port: each application that is related to `callers`."""
        endpoints = [service_mesh.Endpoint(ports=[self._port])]
        return service_mesh.AppPolicy(relation="callers", endpoints=endpoints)

    def _config(
        self, requirer: routes.IstioIngressRouteRequirer
    ) -> routes.IstioIngressRouteConfig:
        """Ask for the path, on the port that charms ask for when there is TLS."""
        port = 443 if requirer.tls_enabled else 80
        listener = routes.Listener(port=port, protocol=routes.ProtocolType.HTTP)
        prefix = routes.HTTPPathMatchType.PathPrefix
        path = routes.HTTPPathMatch(type=prefix, value=str(self.config["prefix"]))
        route = routes.HTTPRoute(
            name="http-ingress",
            listener=listener,
            matches=[routes.HTTPRouteMatch(path=path)],
            backends=[routes.BackendRef(service=self.app.name, port=self._port)],
        )
        return routes.IstioIngressRouteConfig(
            model=self.model.name, listeners=[listener], http_routes=[route]
        )

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
