"""The bundle: applications in a model, and the charm deployed in the worst order."""

from testbed.kit import juju, objects, observer, stage, timeline, workloads

WEB_NAMES = ("dashboard", "notebooks")
APPLICATIONS = (*WEB_NAMES, "digits")


async def prepare(on: stage.Stage) -> None:
    """Begin the bundle: applications, and nothing that would put them into the mesh."""
    with on.step("A cluster with Istio, and a model with applications outside the mesh"):
        on.note(on.kind.description)
        await on.istiod.wait_until_ready()
        await on.juju.add_model()
        for name in WEB_NAMES:
            await on.juju.deploy(on.charms.web, name)
        await on.api.apply(*workloads.digits(on.model, on.image))
        for name in WEB_NAMES:
            await on.juju.wait_for("active", 180, name)
            await observer.eventually(lambda name=name: _is_open(on, name), 180, f"{name}'s port")
        await on.expect(
            f"running: {', '.join(APPLICATIONS)}",
            on.observer.until(
                lambda: all(map(on.is_ready, APPLICATIONS)), 180, "applications Ready"
            ),
        )
        on.require("none of them has a sidecar", not _with_sidecar(on))


async def worst_order(on: stage.Stage) -> None:
    """Deploy the charm after the applications, and Istio after the charm."""
    with on.step("The worst order: applications, then the charm, istiod last"):
        on.before = await objects.snapshot(on.api)
        on.note(f"{len(on.before)} objects recorded, to be compared at the end")
        await on.istiod.remove()
        on.note("istiod is not there")
        await on.juju.deploy(on.charms.integrator, juju.APPLICATION)
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
        await _converge(on)
        on.figure(
            "From istiod's return until the whole model is in the mesh",
            f"{on.observer.now - installed:.1f} s",
        )
        pods = on.observer.timeline.select(on.model)
        title = "Containers of the model: pods without istio-proxy are replaced"
        on.chart(title, pods, start, [(installed, "istiod serves")])


async def _converge(on: stage.Stage) -> None:
    """Wait until every application has its sidecar and the charm says so."""
    for name in APPLICATIONS:
        await on.expect(
            f"{name} runs with a sidecar",
            on.observer.until(
                lambda name=name: on.is_ready(name, in_mesh=True),
                240,
                f"{name} Ready with a sidecar",
            ),
        )
    status = await on.juju.wait_until_in_mesh(120)
    on.seen(f"{juju.APPLICATION} is {status}")
    count = len(APPLICATIONS)
    on.require(
        f"the status is true: {count} applications have sidecars, modeloperator none",
        status.in_mesh == (count, count)
        and {pod.name for pod in _with_sidecar(on)}
        == {pod.name for name in APPLICATIONS for pod in on.pods_of(name)},
    )
    on.require("admission by the webhook", "admission: webhook" in status.message)


def _with_sidecar(on: stage.Stage) -> list[timeline.PodLine]:
    return [
        pod
        for pod in on.observer.timeline.select(on.model)
        if pod.proxy is not None and not pod.is_going
    ]


async def _is_open(on: stage.Stage, application: str) -> bool:
    """Whether Juju has given the application's Service the port that its charm asked for."""
    service = await on.api.get("Service", application, on.model)
    return any(port["name"].startswith("juju-") for port in service["spec"]["ports"])
