"""A real job of several pods, in a profile with strict mutual TLS and Kubeflow's policy."""

import copy
import ipaddress

import pytest

from testbed.kit import juju, observer, workloads
from tests.kubernetes_objects import made

pytestmark = [pytest.mark.usefixtures("integrated"), pytest.mark.timeout(600)]

USER = "kf-user"
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile", "istio-injection": "enabled"}
UNCHANGED = {"istio-integrator.charmhub.io/pod-traffic": "unchanged"}
FILTER = "EnvoyFilter.networking.istio.io"
NAME = f"istio-integrator.kubeflow.{juju.APPLICATION}.training"
SECURITY = "security.istio.io/v1"
STRICT = made(SECURITY, "PeerAuthentication", "default", USER, {"mtls": {"mode": "STRICT"}})
POLICY = made(
    SECURITY,
    "AuthorizationPolicy",
    "ns-owner-access-istio",
    USER,
    {
        "action": "ALLOW",
        # Two of the rules that Kubeflow's profile controller writes.
        "rules": [
            {"when": [{"key": "source.namespace", "values": [USER]}]},
            {"to": [{"operation": {"paths": ["/healthz", "/metrics", "/wait-for-drain"]}}]},
        ],
    },
)


def job(on, name, labels, annotations=None):
    """A PyTorchJob of three pods, whose ranks connect to each other by address."""
    command = workloads.payload("ranks.py", "--timeout", 30)
    ports = [{"containerPort": 23456, "name": "pytorchjob-port"}]
    main = workloads.container("pytorch", on.image, command, ports=ports)
    body = workloads.template([main], labels=labels, annotations=annotations)
    del body["spec"]["restartPolicy"]
    replica = {"restartPolicy": "Never", "template": body}
    return workloads.manifest(
        "kubeflow.org/v1",
        "PyTorchJob",
        name,
        USER,
        runPolicy={"cleanPodPolicy": "None"},
        pytorchReplicaSpecs={
            "Master": {**copy.deepcopy(replica), "replicas": 1},
            "Worker": {**copy.deepcopy(replica), "replicas": 2},
        },
    )


async def test_job_of_several_pods_trains_in_a_strict_profile(on):
    own = await on.api.get("Pod", f"{juju.APPLICATION}-0", on.model)
    # The nodes of a testbed have no podCIDRs.
    network = ipaddress.ip_network(f"{own['status']['podIP']}/21", strict=False)
    await on.juju.do("config", juju.APPLICATION, {"pod-networks": str(network)})
    await on.api.apply(workloads.namespace(USER, PROFILE), STRICT, POLICY)

    async def is_written():
        return await on.api.find(FILTER, NAME, USER)

    await observer.eventually(is_written, 60, "the EnvoyFilter of a new profile")
    wanted = {
        "changed": ({}, None, "Succeeded"),
        "classic": ({}, on.classic, "Succeeded"),
        "unchanged": (UNCHANGED, None, "Failed"),
    }
    jobs = [job(on, name, labels, marks) for name, (labels, marks, _) in wanted.items()]
    await on.api.apply(*jobs)

    async def ends():
        found = {}
        for name in wanted:
            obj = await on.api.find("PyTorchJob", name, USER)
            for each in (obj or {}).get("status", {}).get("conditions", ()):
                if each["type"] in ("Succeeded", "Failed") and each["status"] == "True":
                    found[name] = each["type"]
        return found if len(found) == len(wanted) else None

    found = await observer.eventually(ends, 240, "the jobs over")
    assert found == {name: end for name, (*_, end) in wanted.items()}
    text = await on.api.log(USER, "unchanged-worker-0", "pytorch")
    assert "Connection reset by peer" in text

    await on.juju.do("config", juju.APPLICATION, {"pod-networks": "none"})

    async def is_gone():
        return not await is_written()

    await observer.eventually(is_gone, 60, "no EnvoyFilter")
    await on.juju.do("config", juju.APPLICATION, {"pod-networks": ""})
    await on.api.delete("Namespace", USER)
