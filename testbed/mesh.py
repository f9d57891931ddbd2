"""Installing istiod on a running testbed, and taking it away again."""

import json

from testbed import images, istio
from testbed import outside as links
from testbed.running import RunningTestbed

_RECORD = "istio.json"


def installation(
    *,
    revision: str = "",
    classic_sidecars: bool = False,
    compatibility: str = "",
    cni: bool = False,
    outside: str = "",
) -> istio.Installation:
    """Return the installation of these switches with the images of the testbed."""
    return istio.Installation(
        proxy_image=images.reference("proxy"),
        pilot_image=images.reference("pilot"),
        revision=revision,
        classic_sidecars=classic_sidecars,
        compatibility=compatibility,
        cni_image=images.reference("cni") if cni else "",
        outside=outside,
    )


def apply_settings(testbed: RunningTestbed, wanted: istio.Installation) -> None:
    """Apply everything that starts no pod, so that it needs no image yet."""
    manifests = istio.render(wanted)
    testbed.apply(json.dumps(istio.namespaces()))
    testbed.apply_file(manifests.definitions)
    testbed.apply_file(manifests.settings)
    _record(testbed, wanted)


def apply_workloads(testbed: RunningTestbed, wanted: istio.Installation) -> None:
    """Start istiod and the gateway."""
    testbed.apply_file(istio.render(wanted).workloads)
    # What a cloud's load balancer would do: the gateway answers at the node's address.
    address = {"loadBalancer": {"ingress": [{"ip": str(testbed.plan.node)}]}}
    patch = json.dumps({"status": address})
    service = ("service", istio.GATEWAY, f"--namespace={istio.INGRESS}")
    testbed.kubectl("patch", *service, "--subresource=status", "--type=merge", f"--patch={patch}")


def install(testbed: RunningTestbed, wanted: istio.Installation) -> None:
    """Install istiod and the gateway, and wait until both serve."""
    testbed.load_images(istio.images(cni=bool(wanted.cni_image)))
    apply_settings(testbed, wanted)
    apply_workloads(testbed, wanted)
    wait(testbed, wanted)


def wait(testbed: RunningTestbed, wanted: istio.Installation) -> None:
    """Wait until istiod and the gateway are available, and the CNI plugin is installed."""
    if wanted.cni_image:
        _available(testbed, f"daemonset/{istio.CNI}", istio.SYSTEM)
    if wanted.outside:
        _wait_for_injector(testbed)
    else:
        _available(testbed, f"deployment/{wanted.deployment}", istio.SYSTEM)
    _available(testbed, f"deployment/{istio.GATEWAY}", istio.INGRESS)


def _wait_for_injector(testbed: RunningTestbed) -> None:
    """Wait until an istiod outside has told the API server its authority."""
    testbed.wait_for("istiod")
    bundle = "--for=jsonpath={.webhooks[0].clientConfig.caBundle}"
    label = "--selector=app=sidecar-injector"
    testbed.kubectl("wait", "mutatingwebhookconfiguration", label, bundle, "--timeout=120s")


def uninstall(testbed: RunningTestbed) -> None:
    """Remove istiod, its webhooks and the gateway; definitions stay, as with istioctl."""
    manifests = istio.render(_recorded(testbed))
    for place in (manifests.workloads, manifests.settings):
        testbed.kubectl("delete", "--ignore-not-found", f"--filename={place}")
    names = (istio.SYSTEM, istio.INGRESS)
    testbed.kubectl("delete", "namespace", "--ignore-not-found", *names)


def stop(testbed: RunningTestbed) -> None:
    """Scale istiod to nothing and wait until it is gone, or cut its link; its webhooks stay."""
    wanted = _recorded(testbed)
    if wanted.outside:
        _set_link(testbed, "down")
        return
    _scale(testbed, wanted.deployment, 0)
    pods = ("pods", f"--namespace={istio.SYSTEM}", "--selector=app=istiod")
    testbed.kubectl("delete", *pods, "--grace-period=1", "--ignore-not-found")


def start(testbed: RunningTestbed) -> None:
    """Scale a stopped istiod up and wait until it serves, or mend its link."""
    wanted = _recorded(testbed)
    if wanted.outside:
        _set_link(testbed, "up")
        return
    _scale(testbed, wanted.deployment, 1)
    _available(testbed, f"deployment/{wanted.deployment}", istio.SYSTEM)


def _set_link(testbed: RunningTestbed, state: str) -> None:
    testbed.exec(["ip", "link", "set", links.LINK, state], check=True)


def _scale(testbed: RunningTestbed, deployment: str, replicas: int) -> None:
    where = f"--namespace={istio.SYSTEM}"
    testbed.kubectl("scale", "deployment", deployment, where, f"--replicas={replicas}")


def _available(testbed: RunningTestbed, workload: str, namespace: str) -> None:
    testbed.kubectl(
        "rollout",
        "status",
        workload,
        f"--namespace={namespace}",
        "--timeout=180s",
    )


def _record(testbed: RunningTestbed, wanted: istio.Installation) -> None:
    switches = {
        "revision": wanted.revision,
        "classic_sidecars": wanted.classic_sidecars,
        "compatibility": wanted.compatibility,
        "cni": bool(wanted.cni_image),
        "outside": wanted.outside,
    }
    (testbed.state_dir / _RECORD).write_text(json.dumps(switches))


def _recorded(testbed: RunningTestbed) -> istio.Installation:
    try:
        switches = json.loads((testbed.state_dir / _RECORD).read_text())
    except FileNotFoundError:
        raise istio.IstioError(f"Istio was not installed on testbed {testbed.name}") from None
    return installation(**switches)
