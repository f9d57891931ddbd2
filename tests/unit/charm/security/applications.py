"""Applications that Juju runs, what they say about callers, and the policies that come of it."""

import json

from ops import testing

from tests.unit.charm import ingress_world
from tests.unit.charm.security import members
from tests.unit.charm.security.callers import NAME


def add_application(fake, name, port):
    """Have Juju run an application: its Service and a pod with a sidecar."""
    found = fake.add(members.service(name, port))
    found["metadata"]["labels"] = {NAME: name}
    found["spec"]["ports"][0]["name"] = "http"
    pod = fake.add(members.pod(name, {"name": "istio-proxy"}, inside=False))
    pod["spec"]["containers"][0]["name"] = "charm"


def mesh(application, *stated):
    bag = {"policies": json.dumps(stated)} if stated else {}
    return testing.Relation("service-mesh", remote_app_name=application, remote_app_data=bag)


def written(fake):
    """Our policies, by the workload that each is for; that for all has no name."""
    found = (
        obj["spec"]
        for obj in fake.objects.values()
        if obj["kind"] == "AuthorizationPolicy"
        and obj["metadata"]["labels"].get(ingress_world.OWNER)
    )
    return {
        next(iter(spec.get("selector", {}).get("matchLabels", {}).values()), ""): spec
        for spec in found
    }
