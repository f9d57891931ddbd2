"""The steps of the demo, in their order."""

import dataclasses
from collections.abc import Sequence

from demo import juju, kubernetes, objects, observer, stage, timeline, workloads

OUTSIDE = "without-us"
TFJOB = "digits-training"
TFJOB_PODS = 3
# How many steps `run` has.
COUNT = 6
WEB_NAMES = ("dashboard", "notebooks")
MODES = {"classic": "get what istiod injects", "auto": "get native sidecars"}
# How long a job that can't end is watched not to end.
PATIENCE = 15.0


@dataclasses.dataclass(frozen=True)
class Charms:
    """What the demo deploys."""

    integrator: juju.Deployable
    web: juju.Deployable
    # What jobs and the data server run.
    payload_image: str
    web_names: Sequence[str] = WEB_NAMES


async def prepare(on: stage.Stage, charms: Charms) -> None:
    """Begin the bundle: applications, and nothing that would put them into the mesh."""
    async with on.step("A cluster with Istio, and a model with applications outside the mesh"):
        on.note(on.kind.description)
        await on.istiod.wait_until_ready()
        await on.juju.add_model()
        for name in charms.web_names:
            await on.juju.deploy(charms.web, name)
        await on.api.apply(*workloads.digits(on.model, on.image))
        for name in charms.web_names:
            await on.juju.wait_for("active", 180, name)
            await observer.eventually(lambda name=name: _is_open(on, name), 30, f"{name}'s port")
        apps = [*charms.web_names, "digits"]
        await on.expect(
            f"running: {', '.join(apps)}",
            on.observer.until(
                lambda: all(_ready(on, on.model, name) for name in apps), 90, "applications Ready"
            ),
        )
        on.require("none of them has a sidecar", not _with_sidecar(on))


async def without_us(on: stage.Stage) -> None:
    """Run the training job in a namespace of the mesh as Istio leaves it."""
    async with on.step("Without the charm: a training job in the mesh"):
        namespace = workloads.namespace(OUTSIDE, {"istio-injection": "enabled"})
        await on.api.apply(namespace, *workloads.digits(OUTSIDE, on.image))
        await on.observer.until(
            lambda: _ready(on, OUTSIDE, "digits"), 90, "the data server Ready in the mesh"
        )
        if on.kind.native:
            await _native_job(on)
        await _stuck_job(on)
        await on.api.delete("Namespace", OUTSIDE)


async def _native_job(on: stage.Stage) -> None:
    """Where sidecars are native, show that they leave nothing to do."""
    await on.api.apply(
        workloads.tfjob("native", OUTSIDE, on.image, annotations=workloads.SLOW_PROXY)
    )
    await on.expect(
        "with native sidecars the job succeeds by itself",
        _succeeded(on, OUTSIDE, "native", 180),
    )
    await on.api.delete("TFJob", "native", OUTSIDE)
    on.note("the same job, asking for classic sidecars:")


async def _stuck_job(on: stage.Stage) -> None:
    start = on.observer.now
    await on.api.apply(_training(on, OUTSIDE))

    def pods() -> list[timeline.PodLine]:
        return on.observer.timeline.select(OUTSIDE, prefix=TFJOB)

    failed = await on.observer.until(
        lambda: next((pod for pod in pods() if timeline.failures([pod])), None),
        120,
        "a replica whose first instruction fails",
    )
    text = await _failure_log(on, failed)
    on.require(f"{failed.name}: {text}", "the download failed" in text)

    end = await on.observer.until(
        lambda: _all_ended(pods(), TFJOB_PODS), 240, "every replica's payload ended with 0"
    )
    on.seen(f"tried again until it worked: {timeline.failures(pods())} runs failed before")
    on.figure("Failed runs of the training job without the charm", f"{timeline.failures(pods())}")
    await on.observer.holds(
        lambda: not _job(on, OUTSIDE, TFJOB).succeeded_at and _proxies_run(pods()),
        PATIENCE,
        "the job stays Running with its proxies",
    )
    running = _job(on, OUTSIDE, TFJOB).since("Running")
    on.require(
        f"trained, and {on.observer.now - end:.0f} s later it is still Running: "
        f"{TFJOB_PODS} proxies have no reason to stop",
        running,
    )
    on.chart("Without the charm", pods(), start, [(end, "training is over")])


async def worst_order(on: stage.Stage, charms: Charms) -> None:
    """Deploy the charm after the applications, and Istio after the charm."""
    async with on.step("The worst order: applications, then the charm, istiod last"):
        await _gone(on, OUTSIDE)
        on.before = await objects.snapshot(on.api)
        on.note(f"{len(on.before)} objects recorded, to be compared at the end")
        await on.istiod.remove()
        on.note("istiod is not there")
        await on.juju.deploy(charms.integrator, juju.APPLICATION)
        status = await on.juju.wait_for("waiting", 180, words="istiod")
        on.seen(f"{juju.APPLICATION} is {status}")
        labels = (await on.api.get("Namespace", on.model))["metadata"].get("labels", {})
        on.require(
            "the model's namespace is not labelled",
            not any(key.startswith(("istio-injection", "istio.io/")) for key in labels),
        )
        start = on.observer.now
        await on.istiod.install()
        installed = on.observer.now
        on.note("istiod is installed; from here nobody types anything")
        apps = [*charms.web_names, "digits"]
        for name in apps:
            await on.observer.until(
                lambda name=name: _ready(on, on.model, name, in_mesh=True),
                240,
                f"{name} Ready with a sidecar",
            )
            on.seen(f"{name} runs with a sidecar")
        status = await on.juju.wait_until_in_mesh(120)
        on.seen(f"{juju.APPLICATION} is {status}")
        on.require(
            f"the status is true: {len(apps)} applications have sidecars, modeloperator none",
            status.in_mesh == (len(apps), len(apps))
            and {pod.name for pod in _with_sidecar(on)}
            == {pod.name for name in apps for pod in _pods_of(on, on.model, name)},
        )
        on.require(f"admission by {on.kind.backend}", on.kind.backend in status.message)
        on.figure(
            "From istiod's return until the whole model is in the mesh",
            f"{on.observer.now - installed:.1f} s",
        )
        on.chart(
            "Convergence",
            on.observer.timeline.select(on.model),
            start,
            [(installed, "istiod serves")],
        )


async def with_us(on: stage.Stage) -> None:
    """Run the same job in the model, and a plain Job with and without a sidecar."""
    async with on.step("With the charm: the same training job"):
        start = on.observer.now
        await on.api.apply(_training(on, on.model))
        done = await on.expect("the training job Succeeded", _succeeded(on, on.model, TFJOB, 240))
        pods = on.observer.timeline.select(on.model, prefix=TFJOB)
        on.require(
            f"no download failed in {len(pods)} replicas",
            len(pods) == TFJOB_PODS and timeline.failures(pods) == 0,
        )
        await _accuracy(on)
        end = timeline.last_payload_end(pods)
        assert end is not None
        on.figure("Training job: from the last payload exit to Succeeded", f"{done - end:.1f} s")
        on.chart("With the charm", pods, start, [(end, "training is over"), (done, "Succeeded")])

        await _plain_job(
            on,
            workloads.sleeper("plain", on.model, on.image, annotations=_classic(on)),
            in_mesh=True,
        )
        await _plain_job(
            on,
            workloads.sleeper("bare", on.model, on.image, labels=workloads.NO_SIDECAR),
            in_mesh=False,
        )


async def _plain_job(on: stage.Stage, job: kubernetes.Object, *, in_mesh: bool) -> None:
    name = job["metadata"]["name"]
    words = "with a sidecar" if in_mesh else "without a sidecar"
    await on.api.apply(job)
    done = await on.expect(f"a Job {words} is Complete", _succeeded(on, on.model, name))
    pods = on.observer.timeline.select(on.model, {"job-name": name})
    on.require(f"its pod ran {words}", bool(pods[0].proxy) is in_mesh)
    end = timeline.last_payload_end(pods)
    assert end is not None
    on.figure(f"Job {words}: from its payload's exit to Complete", f"{done - end:.1f} s")


async def toggles(on: stage.Stage) -> None:
    """Change the charm's options and see each take effect."""
    async with on.step("Options take effect at once"):
        await _toggle_shutdown(on)
        await _toggle_hold(on)
        await _toggle_mode(on)


async def _toggle_shutdown(on: stage.Stage) -> None:
    start = on.observer.now
    await on.juju.config(juju.APPLICATION, proxy_shutdown="false")
    await on.api.apply(workloads.sleeper("kept", on.model, on.image, annotations=_classic(on)))
    pods = await on.observer.until(
        lambda: _ended(on.observer.timeline.select(on.model, {"job-name": "kept"})),
        60,
        "the Job's payload ended",
    )
    await on.observer.holds(
        lambda: _proxies_run(pods), 10, "the proxy is left alone with proxy-shutdown=false"
    )
    on.seen("proxy-shutdown=false: a finished Job keeps its proxy, it is not Complete")
    changed = on.observer.now
    await on.juju.config(juju.APPLICATION, proxy_shutdown="true")
    done = await on.expect(
        "proxy-shutdown=true: the same Job is Complete", _succeeded(on, on.model, "kept")
    )
    on.chart("proxy-shutdown", pods, start, [(changed, "=true"), (done, "Complete")])


async def _toggle_hold(on: stage.Stage) -> None:
    for value, name in (("false", "not-held"), ("true", "held")):
        await on.juju.config(juju.APPLICATION, hold_application=value)
        await observer.eventually(
            lambda value=value: _hold_is(on, value == "true"), 60, f"hold-application={value}"
        )
        annotations = {**workloads.SLOW_PROXY, **_classic(on)}
        job = workloads.first_request(name, on.model, on.image, annotations=annotations)
        await on.api.apply(job)
        line = await on.observer.until(
            lambda name=name: _finished(on.observer.job(on.model, name)), 90, f"Job {name} ended"
        )
        outcome = "succeeds" if line.succeeded_at else "fails"
        on.require(
            f"hold-application={value}: a first request behind a slow proxy {outcome}",
            bool(line.succeeded_at) == (value == "true"),
        )


async def _toggle_mode(on: stage.Stage) -> None:
    for mode in ("classic", "auto"):
        await on.juju.config(juju.APPLICATION, sidecar_mode=mode)
        await observer.eventually(
            lambda mode=mode: _asks_for_native(on, mode == "auto"), 60, f"sidecar-mode={mode}"
        )
        on.seen(f"sidecar-mode={mode}: new pods that run to completion {MODES[mode]}")
    job = workloads.first_request("native", on.model, on.image, annotations=workloads.SLOW_PROXY)
    await on.api.apply(job)
    await _succeeded(on, on.model, "native", 90)
    pod = on.observer.timeline.select(on.model, {"job-name": "native"})[0].pod
    on.require(
        "sidecar-mode=auto: a Job with a native sidecar is Complete by itself",
        timeline.PROXY in [item["name"] for item in pod["spec"]["initContainers"]],
    )
    if mode := on.kind.config.get("sidecar-mode"):
        await on.juju.config(juju.APPLICATION, sidecar_mode=mode)


async def removal(on: stage.Stage) -> None:
    """Remove the charm and compare the cluster with what it was."""
    async with on.step("Removal: the cluster is as it was"):
        await clear_jobs(on.api, on.model)
        await on.juju.remove(juju.APPLICATION)
        on.note(f"{juju.APPLICATION} is removed")
        await objects.until_same(on.api, on.before, 90, recreated=on.istiod.keys)
        on.seen(f"all {len(on.before)} objects compared, no difference")


async def _is_open(on: stage.Stage, application: str) -> bool:
    """Whether Juju has given the application's Service the port that its charm asked for."""
    service = await on.api.get("Service", application, on.model)
    return all(port["name"].startswith("juju-") for port in service["spec"]["ports"])


async def clear_jobs(api: kubernetes.Api, namespace: str) -> None:
    """Delete every job of a namespace with its pods."""
    for kind in ("TFJob", "Job"):
        for item in await api.list(kind, namespace):
            await api.delete(kind, item["metadata"]["name"], namespace)


def _training(on: stage.Stage, namespace: str) -> kubernetes.Object:
    annotations = {**workloads.SLOW_PROXY, **_classic(on)}
    return workloads.tfjob(TFJOB, namespace, on.image, annotations=annotations)


def _classic(on: stage.Stage) -> dict[str, str]:
    """Ask for a classic sidecar where istiod would make a native one."""
    return workloads.CLASSIC if on.kind.native else {}


def _pods_of(on: stage.Stage, namespace: str, application: str) -> list[timeline.PodLine]:
    pods = on.observer.timeline.select(namespace, prefix=f"{application}-")
    return [pod for pod in pods if not pod.is_going]


def _ready(on: stage.Stage, namespace: str, application: str, *, in_mesh: bool = False) -> bool:
    pods = _pods_of(on, namespace, application)
    return bool(pods) and all(pod.is_ready and (pod.proxy or not in_mesh) for pod in pods)


def _with_sidecar(on: stage.Stage) -> list[timeline.PodLine]:
    return [
        pod
        for pod in on.observer.timeline.select(on.model)
        if pod.proxy is not None and not pod.is_going
    ]


def _job(on: stage.Stage, namespace: str, name: str) -> observer.JobLine:
    line = on.observer.job(namespace, name)
    if line is None:
        raise observer.NotObserved(f"there is no job {namespace}/{name}")
    return line


def _finished(line: observer.JobLine | None) -> observer.JobLine | None:
    return line if line and (line.succeeded_at or line.failed_at) else None


async def _succeeded(on: stage.Stage, namespace: str, name: str, within: float = 60) -> float:
    line = await on.observer.until(
        lambda: _finished(on.observer.job(namespace, name)), within, f"{name} succeeds"
    )
    if line.succeeded_at is None:
        raise observer.NotObserved(f"{name} failed")
    return line.succeeded_at


def _ended(pods: list[timeline.PodLine]) -> list[timeline.PodLine] | None:
    return pods if timeline.last_payload_end(pods) is not None else None


def _all_ended(pods: list[timeline.PodLine], count: int) -> float | None:
    """When the last payload ended, once all of them have and none is tried again."""
    states = {line.now.state for pod in pods for line in pod.payload}
    if len(pods) < count or states != {timeline.State.FINISHED}:
        return None
    return timeline.last_payload_end(pods)


def _proxies_run(pods: list[timeline.PodLine]) -> bool:
    return all(pod.proxy and pod.proxy.now.state is timeline.State.RUNNING for pod in pods)


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


async def _accuracy(on: stage.Stage) -> None:
    text = await on.api.log(on.model, f"{TFJOB}-chief-0", "tensorflow")
    lines = [line for line in text.splitlines() if "accuracy" in line]
    on.require(lines[-1] if lines else "the chief reports its accuracy", lines)


async def _dry_run(on: stage.Stage, annotations: workloads.Labels) -> kubernetes.Object:
    """Ask what a new pod that runs to completion would look like."""
    main = workloads.container("main", on.image, ["true"])
    body = workloads.template([main], restart_policy="Never", annotations=annotations)
    return await on.api.create(workloads.pod("asked", on.model, body), dry_run=True)


async def _hold_is(on: stage.Stage, expected: bool) -> bool:
    """Whether a new pod would be held until its proxy works."""
    first = (await _dry_run(on, _classic(on)))["spec"]["containers"][0]
    held = first["name"] == timeline.PROXY and "postStart" in first.get("lifecycle", {})
    return held == expected


async def _asks_for_native(on: stage.Stage, expected: bool) -> bool:
    """Whether a new pod would ask istiod for a native sidecar."""
    annotations = (await _dry_run(on, {}))["metadata"].get("annotations", {})
    return (annotations.get("sidecar.istio.io/nativeSidecar") == "true") == expected


async def _gone(on: stage.Stage, namespace: str) -> None:
    async def is_gone() -> bool:
        return await on.api.find("Namespace", namespace) is None

    await observer.eventually(is_gone, 120, f"namespace {namespace} is gone")


async def run(on: stage.Stage, charms: Charms) -> None:
    """Run all steps; the first that is not observed ends the demo."""
    await prepare(on, charms)
    await without_us(on)
    await worst_order(on, charms)
    await with_us(on)
    await toggles(on)
    await removal(on)
