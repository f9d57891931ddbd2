"""What a gateway's Envoy says that it has: its admin interface's `config_dump`, read."""

import re

ROUTES = "config_dump?resource=dynamic_route_configs"


def virtual_hosts(dump):
    """The routes of each virtual host, in the order in which Envoy tries them.

    Envoy leaves out what is empty, as in a route configuration whose Gateway has just gone.
    """
    return {
        host["name"]: host["routes"]
        for entry in dump["configs"]
        for host in entry["route_config"].get("virtual_hosts", ())
    }


def takes(match, path):
    """Tell whether a route is taken for a path."""
    others = [
        header["string_match"]["safe_regex"]["regex"]
        for header in match.get("headers", [])
        if header["name"] == ":path" and header["invert_match"]
    ]
    begins = path.startswith(match["prefix"]) if "prefix" in match else path == match["path"]
    return begins and not any(re.fullmatch(other, path) for other in others)


def cluster_for(routes, path):
    """Name the cluster that a path is sent to: of the first route that takes it; None: nowhere."""
    found = (route for route in routes if takes(route["match"], path))
    return next((route["route"]["cluster"] for route in found), None)
