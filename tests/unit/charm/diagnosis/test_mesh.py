"""Is there an istiod, what are its settings, and is the model a member whose pods are prepared?"""

import functools

from tests.unit.cases import cases
from tests.unit.charm import fake_cluster, istio_objects
from tests.unit.charm.charm_world import state
from tests.unit.charm.diagnosis.world import diagnose, said

default = fake_cluster.install_istio
dead = functools.partial(default, alive=False)
dead_elsewhere = functools.partial(istio_objects.install_remote, alive=False)
DENIED = "ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no"


def not_tried(fake):
    """An istiod that may only be asked in the model, which is another one's."""
    fake_cluster.install_istio(fake)
    fake.labels("kf")["istio.io/rev"] = "other"
    fake.forbidden.add(("create", "pods", "istio-system"))
    ready = [{"conditions": {"ready": True}}]
    labels = {"kubernetes.io/service-name": "istiod"}
    fake.put("EndpointSlice", "istiod-1", "istio-system", labels=labels, endpoints=ready)


def refused(fake):
    """An istiod that is not tried, as another team's policy denies pods."""
    default(fake)
    fake.deny("Pod", 403, DENIED)


POLICY = "kubectl get validatingadmissionpolicy a -o yaml"
AWAY, GET = ("broken", "ISTIOD_AWAY"), "kubectl get mutatingwebhookconfiguration"


@cases(
    ("installed", "level", "want", "command"),
    alive=(default, "fine", "ISTIOD_INJECTS", ""),
    not_tried=(not_tried, "doubtful", "ISTIOD_NOT_TRIED", ""),
    refused=(refused, "broken", "OBJECT_REFUSED", POLICY),
    dead=(dead, *AWAY, "kubectl -n istio-system get pods,endpoints -l app=istiod"),
    dead_elsewhere=(dead_elsewhere, *AWAY, f"{GET} istio-sidecar-injector"),
    none=(lambda _: None, "broken", "INJECTOR_ABSENT", f"{GET}s"),
)
def test_istiod_is_judged_by_its_answer(ctx, fake, installed, level, want, command):  # noqa: PLR0917
    installed(fake)
    (found,) = diagnose(ctx, "istiod")
    assert (found.level, found.message) == (level, want)
    assert command in ("", found.next)


EVERY = "[{ports: [37017]}, {ports: [17070]}]"
CHARMS = "[{pods: app.kubernetes.io/name, ports: [17070, 37017]}]"
UNKNOWN = "OUTBOUND_POLICY_UNKNOWN"
MANAGED = {"name": "istiod-asm-managed", "revision": "asm-managed"}
TOLD = {
    UNKNOWN: (" call Juju's controller at 17070, 37017; ", f"excluded-outbound-ports='{CHARMS}'"),
    "ISTIOD_NAMESPACE_UNKNOWN": (
        "istiod-asm-managed calls https://istiod.example:15017/inject, and the namespace of ",
        "istiod-namespace=NAMESPACE",
    ),
}
"""Words and command of each message."""
INBOUND_ONLY = {"traffic.sidecar.istio.io/excludeOutboundIPRanges": "0.0.0.0/0"}


@cases(
    ("installed", "ports", "want"),
    nothing_told=({}, "", [UNKNOWN]),
    namespace_not_known=(MANAGED, EVERY, ["ISTIOD_NAMESPACE_UNKNOWN"]),
    of_some_pods=({}, "[{pods: app=trainer, ports: [17070]}]", [UNKNOWN]),
    other_port=({}, "5432", [UNKNOWN]),
    one_of_two_ports=({}, "17070", [UNKNOWN]),
    of_every_pod=({}, EVERY, []),
    of_charms=({}, CHARMS, []),
    not_captured=({"injected_annotations": INBOUND_ONLY}, "", []),
)
def test_settings_that_are_not_known_are_told_by_the_options(  # noqa: PLR0917 - a table
    ctx, fake, monkeypatch, installed, ports, want
):
    monkeypatch.setenv("JUJU_API_ADDRESSES", "controller.example.com:37017 10.1.2.3:17070")
    istio_objects.install_remote(fake, **installed)
    rows = diagnose(ctx, "settings", state(excluded_outbound_ports=ports))
    assert said(rows) == want
    if installed is MANAGED:
        known = state(excluded_outbound_ports=ports, istiod_namespace="managed")
        assert diagnose(ctx, "settings", known) == []
    for row in rows:
        words, command = TOLD[row.message]
        assert words in row.seen
        assert row.next.removeprefix("if so: ") == f"juju config mesh-2 {command}"


def labelled(**labels):
    return lambda fake: (default(fake), fake.labels("kf").update(labels))


def unprepared(fake):
    default(fake)
    fake.webhook_answers = False


NONE, SELECTED = {"mesh_mode": "none"}, {"included_pods": "a=b"}


@cases(
    ("installed", "given", "seen"),
    member=(default, {}, "namespace kf has istio-injection=enabled"),
    not_wanted=(default, NONE | SELECTED, "namespace kf has no label: mesh-mode=none"),
    labelled=(
        *(labelled(**{"istio.io/rev": "x", "istio-injection": "enabled"}), NONE),
        "namespace kf has istio-injection=enabled and istio.io/rev=x: mesh-mode=none",
    ),
    selected=(default, SELECTED, "namespace kf has no label: included-pods is set"),
    conflict=(
        *(labelled(**{"istio-injection": "disabled"}), {}),
        "namespace kf has istio-injection=disabled; or set mesh-mode=none",
    ),
    not_written=(
        *(lambda fake: (default(fake), fake.forbidden.add(("patch", "namespaces"))), {}),
        "namespace kf has no label, which is not the mesh's",
    ),
    waiting=(dead, {}, "not in the mesh until istiod has injected a dry-run pod"),
    waiting_for_the_webhook=(
        *(unprepared, {}),
        "not in the mesh until the admission webhook prepares new pods",
    ),
)
def test_namespace_is_judged_by_what_would_be_done_with_it(ctx, fake, installed, given, seen):
    installed(fake)
    (row,) = diagnose(ctx, "namespace", state(**given))
    assert row.seen == seen
    look = "kubectl get namespace kf --show-labels"
    assert not seen.startswith("not in the mesh until") or row.next == look


@cases(
    ("installed", "options", "seen"),
    works=(default, {}, "admission: webhook"),
    not_needed=(default, NONE, "admission: not needed"),
    silent=(
        *(unprepared, {}),
        "new pods are not prepared: the webhook does not change a dry-run pod yet",
    ),
    refused=(refused, {}, "ValidatingAdmissionPolicy a refuses a dry-run Pod in kf; no"),
)
def test_preparation_of_new_pods_is_named(ctx, fake, installed, options, seen):
    installed(fake)
    (row,) = diagnose(ctx, "admission", state(**options))
    assert row.seen == seen
    pods = "istio-integrator.charmhub.io/component=admission-webhook"
    looks = {"fine": "", "broken": f"kubectl -n kf describe deployments,pods -l {pods}"}
    assert row.next == (POLICY if installed is refused else looks[row.level])
