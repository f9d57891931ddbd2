"""Write down what is known about a cluster when something was not observed."""

from testbed import kubernetes
from testbed.kit import juju


async def collect(api: kubernetes.Api, controller: juju.Juju, namespaces: tuple[str, ...]) -> str:
    """Read pods, events, Juju's log and containers' logs into one text."""
    sections: list[str] = []
    for namespace in namespaces:
        sections += [await _pods(api, namespace), await _events(api, namespace)]
    try:
        sections.append(f"== juju\n{await controller.report()}")
    except juju.JujuError as error:
        sections.append(f"== juju\n{error}")
    for namespace in namespaces:
        for pod in await api.list("Pod", namespace):
            sections += [await _log(api, pod, name) for name in _containers(pod)]
    return "\n\n".join(sections) + "\n"


def _containers(pod: kubernetes.Object) -> list[str]:
    spec = pod["spec"]
    return [item["name"] for item in [*spec.get("initContainers", []), *spec["containers"]]]


async def _pods(api: kubernetes.Api, namespace: str) -> str:
    lines = [f"== pods of {namespace}"]
    for pod in await api.list("Pod", namespace):
        status = pod.get("status", {})
        states = [
            f"{item['name']}={item['state']}"
            for field in ("initContainerStatuses", "containerStatuses")
            for item in status.get(field, [])
        ]
        lines.append(f"{pod['metadata']['name']} {status.get('phase')} {' '.join(states)}")
    return "\n".join(lines)


async def _events(api: kubernetes.Api, namespace: str) -> str:
    lines = [f"== events of {namespace}"]
    for event in await api.list("Event", namespace):
        involved = event.get("involvedObject") or event.get("regarding") or {}
        message = event.get("message") or event.get("note", "")
        when = event.get("lastTimestamp") or event.get("eventTime")
        lines.append(
            f"{when} {involved.get('kind')}/{involved.get('name')} "
            f"{event.get('reason')}: {message}"
        )
    return "\n".join(lines)


async def _log(api: kubernetes.Api, pod: kubernetes.Object, container: str) -> str:
    metadata = pod["metadata"]
    title = f"== log of {metadata['namespace']}/{metadata['name']} {container}"
    try:
        text = await api.log(metadata["namespace"], metadata["name"], container)
    except kubernetes.ApiError as error:
        text = str(error)
    return f"{title}\n{text[-20000:]}"
