"""The part that tells Prometheus, Grafana and Loki what there is to see here."""

from __future__ import annotations

import json
import logging

import ops

from istio_integrator.admission import webhook
from istio_integrator.kube import cluster, errors
from istio_integrator.lifecycle import service, workload
from istio_integrator.messages import Message, Said
from istio_integrator.relations import endpoints, observability
from istio_integrator.situation import situation

logger = logging.getLogger(__name__)

_LAYER = "log-forwarding"


class Observability(situation.Component):
    """Tells the observability stack what there is to see here."""

    name = "observability"

    def __init__(
        self, charm: ops.CharmBase, scope: situation.Situation, related: endpoints.Relations
    ) -> None:
        self._charm = charm
        self._scope = scope
        self._related = related
        self._container = charm.unit.get_container(workload.CONTAINER)

    def reconcile(self) -> list[Message]:
        """Publish what is there, and send logs where they are wanted.

        Returns:
            The units of Loki whose URL can't be used.
        """
        lost = self._forward_logs()
        self._related.publish_unit(observability.METRICS, self._unit)
        if self._scope.leader and self._related.is_related(observability.GRAFANA):
            bag = {
                "dashboards": json.dumps(
                    observability.dashboards(observability.topology(self._charm))
                )
            }
            self._related.write(observability.GRAFANA, bag)
        if self._scope.leader and self._related.is_related(observability.METRICS):
            self._related.write(observability.METRICS, self._scraping())

        return [Said.LOKI_WITHOUT_URL(units=", ".join(lost))] if lost else []

    def _scraping(self) -> dict[str, str]:
        topology = observability.topology(self._charm)
        return {
            "scrape_metadata": json.dumps(topology.as_dict()),
            "scrape_jobs": json.dumps(observability.scrape_jobs(self._servers(), service.PORT)),
            "alert_rules": json.dumps(observability.alert_rules(topology)),
        }

    def _unit(self, address: str) -> dict[str, str]:
        return {
            "prometheus_scrape_unit_address": address,
            "prometheus_scrape_unit_name": self._scope.unit,
        }

    def _servers(self) -> dict[str, str]:
        labels = webhook.pod_labels(self._scope.manifests.owner)
        try:
            pods = self._scope.cluster.list(
                cluster.POD, namespace=self._scope.model, labels=labels
            )
        except errors.CharmError as error:
            logger.warning("The webhook's pods are not known: %s", error)
            return {}
        addresses = {
            pod["metadata"]["name"]: cluster.at(pod, "status").get("podIP") for pod in pods
        }
        return {name: address for name, address in addresses.items() if isinstance(address, str)}

    def _forward_logs(self) -> list[str]:
        units = self._related.unit_bags(endpoints.LOGGING)
        # Those that have not said anything yet will.
        lost = sorted(
            unit
            for unit, bag in units.items()
            if "endpoint" in bag and not observability.push_url(bag)
        )
        wanted = (
            observability.log_targets(observability.topology(self._charm), units) if units else {}
        )
        if not self._container.can_connect():
            # Its pebble-ready comes.
            return lost
        try:
            present = self._container.get_plan().log_targets
            changes = observability.changed_targets(present, wanted)
            if changes:
                self._container.add_layer(_LAYER, {"log-targets": changes}, combine=True)
        except (ops.pebble.Error, TimeoutError) as error:
            logger.warning("Logs are not forwarded: %s", error)
        return lost
