"""A training job in a Kubeflow profile, and plain Jobs with and without a sidecar."""

import contextlib
import ipaddress
from collections.abc import AsyncIterator

from testbed import kubernetes
from testbed.kit import juju, observer, stage, timeline, workloads

JOB = "digits-training"
PODS = 3
"""How many replicas the training job has."""
PROFILE = "kf-user"
"""The profile in which it runs with the charm."""


async def with_us(on: stage.Stage) -> None:
    """Run the training job and a plain Job with and without a sidecar in a profile."""
    with on.step("With the charm: a training job in a profile"):
        async with profile(on, PROFILE):
            network = await name_networks(on.juju, on.api)
            await on.expect(
                f"pod-networks={network}: the profile has the charm's EnvoyFilter",
                observer.eventually(
                    lambda: find_filter(on.api, PROFILE, on.model), 60, "the EnvoyFilter"
                ),
            )
            await run_jobs(on, PROFILE)


@contextlib.asynccontextmanager
async def profile(on: stage.Stage, name: str) -> AsyncIterator[None]:
    """Create a profile with the data to train on; at the end delete it and wait until it is gone.

    What fails in it leaves it, so that its pods can be looked at.
    """
    await on.api.apply(*workloads.profile(name), *workloads.digits(name, on.image))
    on.note(f"profile {name}: strict mutual TLS, and the AuthorizationPolicy that Kubeflow writes")
    await on.observer.until(
        lambda: on.is_ready("digits", name, in_mesh=True), 90, "the data server Ready in the mesh"
    )
    yield
    await on.api.delete("Namespace", name)

    async def is_gone() -> bool:
        return await on.api.find("Namespace", name) is None

    await observer.eventually(is_gone, 120, f"namespace {name} is gone")


async def name_networks(controller: juju.Juju, api: kubernetes.Api) -> str:
    """Set `pod-networks`, since a Node of a testbed has no podCIDRs; returns the network."""
    unit = await api.get("Pod", f"{juju.APPLICATION}-0", controller.model)
    network = str(network_of(unit["status"]["podIP"]))
    await controller.set(juju.APPLICATION, pod_networks=network)
    return network


def network_of(address: str) -> ipaddress.IPv4Network:
    """Return the network of a testbed's pods, which has the address of a pod."""
    return ipaddress.IPv4Network(f"{address}/21", strict=False)


async def find_filter(api: kubernetes.Api, namespace: str, model: str) -> kubernetes.Object | None:
    """Read the EnvoyFilter that the charm of a model has in a namespace, None without one."""
    name = f"istio-integrator.{model}.{juju.APPLICATION}.training"
    return await api.find("EnvoyFilter.networking.istio.io", name, namespace)


async def run_jobs(on: stage.Stage, namespace: str) -> None:
    """Run the training job, and a plain Job with and without a sidecar, in a served namespace."""
    start = on.observer.now
    plain = workloads.sleeper("plain", namespace, on.image, annotations=on.classic)
    bare = workloads.sleeper("bare", namespace, on.image, labels=workloads.NO_SIDECAR)
    await on.api.apply(job(on, namespace), plain, bare)
    done = await on.expect(
        "the training job Succeeded", on.observer.succeeded(namespace, JOB, 240)
    )
    pods = on.observer.timeline.select(namespace, prefix=JOB)
    on.require(
        f"no download and no connection failed in {len(pods)} replicas",
        len(pods) == PODS and timeline.failures(pods) == 0,
    )
    await _accuracy(on, namespace)
    await on.expect(
        f"{PODS} proxies are stopped",
        on.observer.until(
            lambda: all(pod.proxy and pod.proxy.now.state.has_ended for pod in pods),
            30,
            "the proxies stopped",
        ),
    )
    end = timeline.last_payload_end(pods)
    assert end is not None
    on.figure("Training job: from the last payload exit to Succeeded", f"{done - end:.1f} s")
    marks = [(end, "training is over"), (done, "Succeeded")]
    on.chart("Containers of the training job, with the charm", pods, start, marks)
    await _plain_job(on, namespace, "plain", "with a sidecar")
    await _plain_job(on, namespace, "bare", "without a sidecar")


def job(on: stage.Stage, namespace: str) -> kubernetes.Object:
    """The training job, with slow proxies of the classic kind."""
    annotations = {**workloads.SLOW_PROXY, **on.classic}
    return workloads.tfjob(JOB, namespace, on.image, annotations=annotations)


async def clear_jobs(api: kubernetes.Api, namespace: str) -> None:
    """Delete every job of a namespace with its pods."""
    for kind in ("TFJob", "Job"):
        for item in await api.list(kind, namespace):
            await api.delete(kind, item["metadata"]["name"], namespace)


async def _plain_job(on: stage.Stage, namespace: str, name: str, words: str) -> None:
    done = await on.expect(f"a Job {words} is Complete", on.observer.succeeded(namespace, name))
    pods = on.observer.timeline.select(namespace, {"job-name": name})
    on.require(f"its pod ran {words}", bool(pods[0].proxy) is (words == "with a sidecar"))
    end = timeline.last_payload_end(pods)
    assert end is not None
    on.figure(f"Job {words}: from its payload's exit to Complete", f"{done - end:.1f} s")


async def _accuracy(on: stage.Stage, namespace: str) -> None:
    text = await on.api.log(namespace, f"{JOB}-chief-0", "tensorflow")
    lines = [line for line in text.splitlines() if "accuracy" in line]
    on.require(lines[-1] if lines else "the chief reports its accuracy", lines)
