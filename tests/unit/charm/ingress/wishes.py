"""Builders for the data bags of `istio_ingress_route`."""

import json
import types

from ops import testing

from istio_integrator.asked.routes import plan as planning
from istio_integrator.asked.routes import requested
from istio_integrator.relations import ingress_route

ASKED = "istio-ingress-route"
OPEN = "istio-ingress-route-unauthenticated"
TERMS = {"model": "kf", "application": "mesh-2"}


def match(path=None, kind="PathPrefix", **more):
    """A match, by default of a prefix."""
    said = {"path": {"type": kind, "value": path}} if path is not None else {}
    return {**said, **more}


def route(*matches, name="web", service="app", port=80, **more):
    """A route to one Service."""
    return {
        "name": name,
        "listener": {"port": 80, "protocol": "HTTP"},
        "backends": [{"service": service, "port": port}],
        "matches": list(matches) or None,
        **more,
    }


def config(*http, grpc=(), model="kf"):
    """All that an application asks for."""
    return {"model": model, "http_routes": list(http), "grpc_routes": list(grpc)}


def asks(application, *http, endpoint=ASKED, **more):
    """The relation of an application, which may not have written yet."""
    said = {"config": json.dumps(config(*http, **more))} if http or more else {}
    return testing.Relation(
        endpoint,
        interface="istio_ingress_route",
        remote_app_name=application,
        remote_app_data=said,
    )


def received(relation, *http, application=None, endpoint=ASKED, **more):
    """Parse the routes of an application."""
    return ingress_route.Received(
        endpoint=endpoint,
        relation=relation,
        application=application or f"app-{relation}",
        message=ingress_route.IstioIngressRouteConfig.model_validate(config(*http, **more)),
    )


def plan(*newer, older=(), **terms):
    """Plan the routes of applications."""
    scope = types.SimpleNamespace(**{**TERMS, **terms})
    return planning.plan_routes(requested.read(scope, [*older, *newer]))


def served(*http, **terms):
    """The routes of one application whose every wish can be fulfilled."""
    found = plan(received(1, *http), **terms)
    assert found.problems == ()
    return found.routes
