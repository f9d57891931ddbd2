"""A real job of several pods, in a profile with strict mutual TLS and Kubeflow's policy."""

import asyncio

import pytest

from testbed.kit import juju, observer, training, workloads
from tests.e2e import training_world

pytestmark = [pytest.mark.usefixtures("integrated"), pytest.mark.timeout(600)]

PROFILE = training_world.Setting(name="kf", is_strict=True, has_policy=True)


async def test_job_of_several_pods_trains_in_a_strict_profile(on):
    await training.name_networks(on.juju, on.api)
    await training_world.prepare(on.api, PROFILE, on.model)
    jobs = [
        training_world.Job(
            kind="PyTorchJob",
            namespace=PROFILE.name,
            name=name,
            image=on.image,
            command=tuple(workloads.payload("ranks.py", "--timeout", 30)),
            labels=labels,
            annotations=annotations,
        )
        for name, labels, annotations in (
            ("changed", {}, {}),
            ("classic", {}, on.classic),
            ("unchanged", training_world.UNCHANGED, {}),
        )
    ]
    await on.api.apply(*(each for job in jobs for each in job.objects()))
    ends = [training_world.end_of(on.api, job, 240) for job in jobs]
    assert await asyncio.gather(*ends) == [True, True, False]
    text = await on.api.log(PROFILE.name, "unchanged-worker-0", "pytorch")
    assert "Connection reset by peer" in text

    await on.juju.set(juju.APPLICATION, pod_networks="none")

    async def is_gone():
        return not await training.find_filter(on.api, PROFILE.name, on.model)

    await observer.eventually(is_gone, 60, "no EnvoyFilter")
    await on.juju.set(juju.APPLICATION, pod_networks="")
    await on.api.delete("Namespace", PROFILE.name)
