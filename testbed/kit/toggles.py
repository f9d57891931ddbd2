"""Changes of the charm's options, and what each does to the next pods."""

from collections.abc import Mapping

from testbed import kubernetes
from testbed.kit import juju, observer, stage, timeline, workloads

MODES = {"classic": "get what istiod injects", "auto": "get native sidecars"}


async def toggles(on: stage.Stage) -> None:
    """Change the charm's options and see each take effect."""
    with on.step("Options take effect at once"):
        start = on.observer.now
        await _switch(on, "false")
        kept = workloads.sleeper("kept", on.model, on.image, annotations=on.classic)
        await on.api.apply(_asking(on, "not-held"), kept)

        def ended() -> list[timeline.PodLine] | None:
            pods = on.observer.timeline.select(on.model, {"job-name": "kept"})
            return pods if timeline.last_payload_end(pods) is not None else None

        pods = await on.observer.until(ended, 180, "the Job's payload ended")
        await on.observer.holds(
            lambda: timeline.proxies_run(pods),
            10,
            "the proxy is left alone with proxy-shutdown=false",
        )
        on.failed("proxy-shutdown=false: a finished Job keeps its proxy, it is not Complete")
        changed = on.observer.now
        await _switch(on, "true")
        await on.api.apply(_asking(on, "held"))
        done = await on.expect(
            "proxy-shutdown=true: the same Job is Complete",
            on.observer.succeeded(on.model, "kept"),
        )
        marks = [(changed, "proxy-shutdown=true"), (done, "Complete")]
        on.chart("Containers of the finished Job", pods, start, marks)
        await _first_request(on, "not-held", hold=False)
        await _toggle_mode(on)
        await _first_request(on, "held", hold=True)


async def _switch(on: stage.Stage, value: str) -> None:
    """Set both options of what is done for proxies, and wait until new pods show it."""
    await on.juju.config(juju.APPLICATION, proxy_shutdown=value, hold_application=value)
    await observer.eventually(
        lambda: _hold_is(on, value == "true"), 60, f"hold-application={value}"
    )


def _asking(on: stage.Stage, name: str) -> kubernetes.Object:
    """A Job whose first instruction is a request through a slow proxy."""
    annotations = {**workloads.SLOW_PROXY, **on.classic}
    return workloads.first_request(name, on.model, on.image, annotations=annotations)


async def _first_request(on: stage.Stage, name: str, *, hold: bool) -> None:
    line = await on.observer.ended(on.model, name, 90)
    outcome = "succeeds" if line.succeeded_at else "fails"
    if bool(line.succeeded_at) != hold:
        raise observer.NotObserved(f"the first request of {name} {outcome}")
    say = on.seen if hold else on.failed
    say(f"hold-application={str(hold).lower()}: a first request behind a slow proxy {outcome}")


async def _toggle_mode(on: stage.Stage) -> None:
    for mode in ("classic", "auto"):
        await on.juju.config(juju.APPLICATION, job_sidecars=mode)
        await observer.eventually(
            lambda mode=mode: _asks_for_native(on, mode == "auto"), 60, f"job-sidecars={mode}"
        )
        on.seen(f"job-sidecars={mode}: new pods that run to completion {MODES[mode]}")
    job = workloads.first_request("native", on.model, on.image, annotations=workloads.SLOW_PROXY)
    await on.api.apply(job)
    await on.observer.succeeded(on.model, "native", 90)
    pod = on.observer.timeline.select(on.model, {"job-name": "native"})[0].pod
    on.require(
        "job-sidecars=auto: a Job with a native sidecar is Complete by itself",
        timeline.PROXY in [item["name"] for item in pod["spec"]["initContainers"]],
    )
    if mode := on.kind.config.get("job-sidecars"):
        await on.juju.config(juju.APPLICATION, job_sidecars=mode)


async def _dry_run(on: stage.Stage, annotations: Mapping[str, str]) -> kubernetes.Object:
    """Ask what a new pod that runs to completion would look like."""
    main = workloads.container("main", on.image, ["true"])
    body = workloads.template([main], restart_policy="Never", annotations=annotations)
    return await on.api.create(workloads.pod("asked", on.model, body), dry_run=True)


async def _hold_is(on: stage.Stage, expected: bool) -> bool:
    """Whether a new pod would be held until its proxy works."""
    first = (await _dry_run(on, on.classic))["spec"]["containers"][0]
    held = first["name"] == timeline.PROXY and "postStart" in first.get("lifecycle", {})
    return held == expected


async def _asks_for_native(on: stage.Stage, expected: bool) -> bool:
    """Whether a new pod would ask istiod for a native sidecar."""
    annotations = (await _dry_run(on, {}))["metadata"].get("annotations", {})
    return (annotations.get("sidecar.istio.io/nativeSidecar") == "true") == expected
