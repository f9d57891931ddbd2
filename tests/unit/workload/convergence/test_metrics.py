"""Figures about the model's pods."""

import prometheus_client
from sidecar_lifecycle.shell.convergence import metrics


def test_pods_are_counted_by_each_change_that_was_made_to_them():
    registry = prometheus_client.CollectorRegistry()
    figures = metrics.Metrics(registry)

    figures.show_applied(["hold", "", "hold,labels", "excluded"])
    figures.show_applied(["hold", "hold,labels", ""])

    def value(change):
        return registry.get_sample_value("sidecar_lifecycle_applied_pods", {"change": change})

    assert (value("hold"), value("labels"), value("excluded")) == (2, 1, None)

    figures.show_applied(["hold,".ljust(metrics.LONGEST + more, "x") for more in (0, 1)])
    assert value("hold") == 1


def test_pods_that_claim_other_changes_make_no_labels():
    registry = prometheus_client.CollectorRegistry()
    figures = metrics.Metrics(registry)
    figures.show_applied([",".join(f"x{number}" for number in range(30)), "hold," * 50_000])

    shown = [
        sample
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "sidecar_lifecycle_applied_pods"
    ]
    assert shown == []
