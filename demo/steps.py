"""The steps of the demo, in their order."""

import contextlib

from demo import stage
from testbed import kubernetes
from testbed.kit import bundle, juju, objects, observer, timeline, toggles, training, workloads

BEFORE = "kf-user-before"
"""The profile in which the training job runs without the charm."""
RESET = "Connection reset by peer"

PATIENCE = 15.0
"""Seconds for which a job that can't end is watched not to end."""


async def without_us(on: stage.Stage) -> None:
    """Run the training job in a profile as Istio and Kubeflow leave it."""
    with on.step("Without the charm: a training job in a profile"):
        async with training.profile(on, BEFORE):
            if on.kind.native:
                await _native_jobs(on)
            await _classic_jobs(on)


async def _native_jobs(on: stage.Stage) -> None:
    """Show that native sidecars end by themselves, but do not let replicas train together."""
    await on.api.apply(
        workloads.tfjob("native", BEFORE, on.image),
        workloads.sleeper("native-plain", BEFORE, on.image),
    )
    await on.expect(
        "with native sidecars a plain Job is Complete by itself",
        on.observer.succeeded(BEFORE, "native-plain", 180),
    )
    await _failure(on, "native", RESET)
    await on.api.delete("TFJob", "native", BEFORE)
    on.note("the same jobs, asking for classic sidecars:")


async def _classic_jobs(on: stage.Stage) -> None:
    start = on.observer.now
    plain = workloads.sleeper("plain", BEFORE, on.image, annotations=on.classic)
    await on.api.apply(training.job(on, BEFORE), plain)
    await _failure(on, training.JOB, "the download failed")
    reset = await _failure(on, training.JOB, RESET)

    pods = on.observer.timeline.select(BEFORE, prefix=training.JOB)
    finished = on.observer.timeline.select(BEFORE, {"job-name": "plain"})
    await on.observer.until(
        lambda: timeline.last_payload_end(finished), 60, "the plain Job's payload ended"
    )
    lines = [on.observer.job(BEFORE, name) for name in (training.JOB, "plain")]
    await on.observer.holds(
        lambda: timeline.proxies_run([*pods, *finished]) and not any(map(_has_ended, lines)),
        PATIENCE,
        "both jobs stay as they are",
    )
    on.failed(f"{PATIENCE:.0f} s later the training job has not trained, and tries again")
    on.failed("a plain Job whose work is done is not Complete, because its proxy still runs")
    on.figure("Failed runs of the training job without the charm", f"{timeline.failures(pods)}")
    title = "Containers of the training job and of a plain Job, without the charm"
    on.chart(title, [*pods, *finished], start, [(reset, RESET)])


def _has_ended(line: observer.JobLine | None) -> bool:
    return line is not None and line.has_ended


async def removal(on: stage.Stage) -> None:
    """Remove the charm and compare the cluster with what it was."""
    with on.step("Removal: the cluster is as it was"):
        await training.clear_jobs(on.api, on.model)
        await on.juju.remove(juju.APPLICATION)
        on.note(f"{juju.APPLICATION} is removed")
        await objects.until_same(on.api, on.before, 90, recreated=on.istiod.keys)
        on.seen(f"all {len(on.before)} objects compared, no difference")


async def _failure(on: stage.Stage, job: str, words: str) -> float:
    """Wait until a replica's log has an error with these words, and return when it was seen."""

    async def found() -> str | None:
        for pod in on.observer.timeline.select(BEFORE, prefix=f"{job}-"):
            # The replica may have been restarted by now.
            for previous in (True, False):
                with contextlib.suppress(kubernetes.ApiError):
                    text = await on.api.log(BEFORE, pod.name, "tensorflow", previous=previous)
                    for line in text.splitlines():
                        if words in line:
                            return f"{pod.name}: {line}"
        return None

    on.failed(await observer.eventually(found, 120, f"a replica that says: {words}"))
    return on.observer.now


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
