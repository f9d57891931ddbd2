"""How the tests of the discovery look at a cluster."""

from istio_integrator.config import config
from istio_integrator.istio import discovery
from tests import shown

ALLOWED = {"istio-injection": "enabled"}
"""What a namespace of the default revision's mesh says."""


def discover(api, model, *, hint="", **options):
    """Look as the charm does; the hint is that of a charmed Istio."""
    wish = config.Config(**options)
    search = discovery.Discovery(api, wish, model=model, application="istio-integrator", hint=hint)
    search.reconcile()
    return search


def said(discovery):
    """All that the discovery says."""
    return [f"{status.name}: {status.message}" for status in shown.statuses(discovery.messages())]
