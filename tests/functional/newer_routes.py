"""Routes that today's charms request by istio_ingress_route, written with their library."""

import dataclasses

from charmlibs.interfaces import istio_ingress_route as library
from ops import testing

from tests.functional import ingress_world

ASKED = "istio-ingress-route"
OPEN = "istio-ingress-route-unauthenticated"
REPLACED = library.PathModifierType.ReplacePrefixMatch


@dataclasses.dataclass(frozen=True)
class Charm:
    """The route of a charm, a request, and the path that its application receives."""

    port: int
    """Of its Service."""
    listener: int
    prefix: str
    replaced: str
    """The replacement of the prefix; empty: no filter is sent."""
    path: str
    seen: str
    endpoint: str = ASKED


STORE = "/ml_metadata.MetadataStoreService/"
CHARMS = {
    "kubeflow-dashboard": Charm(8082, 443, "/", "", "/_/x?a=b", "/_/x?a=b"),
    "jupyter-ui": Charm(5000, 443, "/jupyter/", "/", "/jupyter/api/x", "/api/x"),
    "katib-ui": Charm(8080, 443, "/katib/", "", "/katib/x", "/katib/x"),
    "kfp-ui": Charm(3000, 443, "/pipeline", "/pipeline", "/pipeline/apis", "/pipeline/apis"),
    "kubeflow-volumes": Charm(5000, 80, "/volumes", "/", "/volumes/api?a=b", "/api?a=b"),
    "tensorboards-web-app": Charm(5000, 80, "/tensorboards/", "/", "/tensorboards/x", "/x"),
    "mlflow-server": Charm(5000, 443, "/mlflow/", "/", "/mlflow/x", "/x"),
    "envoy": Charm(9090, 80, STORE, "", f"{STORE}GetExecutions", f"{STORE}GetExecutions"),
    "dex-auth": Charm(5556, 80, "/dex/", "", "/dex/auth", "/dex/auth", OPEN),
    "oidc-gatekeeper": Charm(8080, 80, "/authservice/", "", *["/authservice/x"] * 2, OPEN),
}
"""All charms of Kubeflow that have the interface. Some have heard that there is a certificate and
ask for port 443; the others ask for 80 whatever they hear."""


def listener(port=80):
    """A listener of routes."""
    return library.Listener(port=port, protocol=library.ProtocolType.HTTP)


def matched(path, kind=library.HTTPPathMatchType.PathPrefix, **more):
    """A match of a path, by its prefix if nothing else is said."""
    return library.HTTPRouteMatch(path=library.HTTPPathMatch(type=kind, value=path), **more)


def wish(service, *matches, port=80, **more):
    """A route to a Service, or to the backends that are given."""
    return library.HTTPRoute(
        name="http-ingress",
        listener=listener(port),
        backends=more.pop("backends", [library.BackendRef(service=service, port=80)]),
        matches=list(matches),
        **more,
    )


def rewritten(path, kind=REPLACED, **more):
    """A filter that replaces the path."""
    modifier = library.PathModifier(type=kind, value=path)
    return library.URLRewriteFilter(urlRewrite=library.URLRewriteSpec(path=modifier, **more))


def bag(number, application, *http, endpoint=ASKED, grpc=(), model=ingress_world.MODEL):
    """The relation of a charm, which writes with the library."""
    config = library.IstioIngressRouteConfig(
        model=model,
        listeners=[route.listener for route in (*http, *grpc)],
        http_routes=list(http),
        grpc_routes=list(grpc),
    )
    said = {"config": config.model_dump_json()}
    return testing.Relation(endpoint, id=number, remote_app_name=application, remote_app_data=said)


def charms():
    """The relations of all of Kubeflow's charms."""
    for number, (name, charm) in enumerate(CHARMS.items(), 100):
        route = wish(
            name,
            matched(charm.prefix),
            port=charm.listener,
            backends=[library.BackendRef(service=name, port=charm.port)],
            filters=[rewritten(charm.replaced)] if charm.replaced else None,
        )
        yield bag(number, name, route, endpoint=charm.endpoint)
