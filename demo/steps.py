"""The steps of the demo, in their order."""

from demo import stage
from testbed import kubernetes
from testbed.kit import bundle, juju, objects, timeline, toggles, training, workloads

PATIENCE = 15.0
"""Seconds for which a job that can't end is watched not to end."""


async def without_us(on: stage.Stage) -> None:
    """Run the training job in a namespace of the mesh as Istio leaves it."""
    with on.step("Without the charm: a training job in the mesh"):
        namespace = workloads.namespace(bundle.OUTSIDE, {"istio-injection": "enabled"})
        await on.api.apply(namespace, *workloads.digits(bundle.OUTSIDE, on.image))
        await on.observer.until(
            lambda: on.is_ready("digits", bundle.OUTSIDE), 90, "the data server Ready in the mesh"
        )
        if on.kind.native:
            await _native_job(on)
        await _stuck_job(on)
        await on.api.delete("Namespace", bundle.OUTSIDE)


async def _native_job(on: stage.Stage) -> None:
    """Where sidecars are native, show that they leave nothing to do."""
    await on.api.apply(
        workloads.tfjob("native", bundle.OUTSIDE, on.image, annotations=workloads.SLOW_PROXY)
    )
    await on.expect(
        "with native sidecars the job succeeds by itself",
        on.observer.succeeded(bundle.OUTSIDE, "native", 180),
    )
    await on.api.delete("TFJob", "native", bundle.OUTSIDE)
    on.note("the same job, asking for classic sidecars:")


async def _stuck_job(on: stage.Stage) -> None:
    start = on.observer.now
    await on.api.apply(training.job(on, bundle.OUTSIDE))

    def pods() -> list[timeline.PodLine]:
        return on.observer.timeline.select(bundle.OUTSIDE, prefix=training.JOB)

    failed = await on.observer.until(
        lambda: next((pod for pod in pods() if timeline.failures([pod])), None),
        120,
        "a replica whose first instruction fails",
    )
    text = await _failure_log(on, failed)
    on.require(f"{failed.name}: {text}", "the download failed" in text)

    end = await on.observer.until(
        lambda: _all_ended(pods()), 240, "every replica's payload ended with 0"
    )
    on.seen(f"tried again until it worked: {timeline.failures(pods())} runs failed before")
    on.figure("Failed runs of the training job without the charm", f"{timeline.failures(pods())}")
    job = on.observer.job(bundle.OUTSIDE, training.JOB)
    assert job is not None
    await on.observer.holds(
        lambda: not job.succeeded_at and timeline.proxies_run(pods()),
        PATIENCE,
        "the job stays Running with its proxies",
    )
    on.require(
        f"trained, and {on.observer.now - end:.0f} s later it is still Running: "
        f"{training.PODS} proxies have no reason to stop",
        job.since("Running"),
    )
    on.chart("Without the charm", pods(), start, [(end, "training is over")])


async def removal(on: stage.Stage) -> None:
    """Remove the charm and compare the cluster with what it was."""
    with on.step("Removal: the cluster is as it was"):
        await training.clear_jobs(on.api, on.model)
        await on.juju.remove(juju.APPLICATION)
        on.note(f"{juju.APPLICATION} is removed")
        await objects.until_same(on.api, on.before, 90, recreated=on.istiod.keys)
        on.seen(f"all {len(on.before)} objects compared, no difference")


def _all_ended(pods: list[timeline.PodLine]) -> float | None:
    """When the last payload ended, once all of them have and none is tried again."""
    states = {line.now.state for pod in pods for line in pod.payload}
    if len(pods) < training.PODS or states != {timeline.State.FINISHED}:
        return None
    return timeline.last_payload_end(pods)


async def _failure_log(on: stage.Stage, pod: timeline.PodLine) -> str:
    """Read why the payload's failed run failed; it may have been restarted by now."""
    name = pod.payload[0].name
    for previous in (True, False):
        try:
            text = await on.api.log(pod.namespace, pod.name, name, previous=previous)
        except kubernetes.ApiError:
            continue
        if lines := [line for line in text.splitlines() if "error:" in line]:
            return lines[-1]
    return "no log of the failed run"


STEPS = (
    bundle.prepare,
    without_us,
    bundle.worst_order,
    training.with_us,
    toggles.toggles,
    removal,
)


async def run(on: stage.Stage) -> None:
    """Run all steps; the first that is not observed ends the demo."""
    for step in STEPS:
        await step(on)
