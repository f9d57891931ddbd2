"""Jobs in the model of the charm: a training job, and plain Jobs with and without a sidecar."""

from testbed import kubernetes
from testbed.kit import stage, timeline, workloads

JOB = "digits-training"
PODS = 3
"""How many replicas the training job has."""


async def with_us(on: stage.Stage) -> None:
    """Run the training job in the model, and a plain Job with and without a sidecar."""
    with on.step("With the charm: the same training job"):
        start = on.observer.now
        plain = workloads.sleeper("plain", on.model, on.image, annotations=on.classic)
        bare = workloads.sleeper("bare", on.model, on.image, labels=workloads.NO_SIDECAR)
        await on.api.apply(job(on, on.model), plain, bare)
        done = await on.expect(
            "the training job Succeeded", on.observer.succeeded(on.model, JOB, 240)
        )
        pods = on.observer.timeline.select(on.model, prefix=JOB)
        on.require(
            f"no download failed in {len(pods)} replicas",
            len(pods) == PODS and timeline.failures(pods) == 0,
        )
        await _accuracy(on)
        end = timeline.last_payload_end(pods)
        assert end is not None
        on.figure("Training job: from the last payload exit to Succeeded", f"{done - end:.1f} s")
        on.chart("With the charm", pods, start, [(end, "training is over"), (done, "Succeeded")])
        await _plain_job(on, "plain", "with a sidecar")
        await _plain_job(on, "bare", "without a sidecar")


def job(on: stage.Stage, namespace: str) -> kubernetes.Object:
    """The training job, with slow proxies of the classic kind."""
    annotations = {**workloads.SLOW_PROXY, **on.classic}
    return workloads.tfjob(JOB, namespace, on.image, annotations=annotations)


async def clear_jobs(api: kubernetes.Api, namespace: str) -> None:
    """Delete every job of a namespace with its pods."""
    for kind in ("TFJob", "Job"):
        for item in await api.list(kind, namespace):
            await api.delete(kind, item["metadata"]["name"], namespace)


async def _plain_job(on: stage.Stage, name: str, words: str) -> None:
    done = await on.expect(f"a Job {words} is Complete", on.observer.succeeded(on.model, name))
    pods = on.observer.timeline.select(on.model, {"job-name": name})
    on.require(f"its pod ran {words}", bool(pods[0].proxy) is (words == "with a sidecar"))
    end = timeline.last_payload_end(pods)
    assert end is not None
    on.figure(f"Job {words}: from its payload's exit to Complete", f"{done - end:.1f} s")


async def _accuracy(on: stage.Stage) -> None:
    text = await on.api.log(on.model, f"{JOB}-chief-0", "tensorflow")
    lines = [line for line in text.splitlines() if "accuracy" in line]
    on.require(lines[-1] if lines else "the chief reports its accuracy", lines)
