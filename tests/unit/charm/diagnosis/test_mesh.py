"""Is there an istiod, what are its settings, and is the model a member whose pods are prepared?"""

from tests.unit.cases import cases
from tests.unit.charm import fake_cluster, istio_objects
from tests.unit.charm.charm_world import state
from tests.unit.charm.diagnosis.world import diagnose, said


def default(fake):
    fake_cluster.install_istio(fake)


def dead(fake):
    fake_cluster.install_istio(fake, alive=False)


def dead_elsewhere(fake):
    istio_objects.install_remote(fake, alive=False)


def not_tried(fake):
    """An istiod that may only be asked in the model, which is another one's."""
    fake_cluster.install_istio(fake)
    fake.labels("kf")["istio.io/rev"] = "other"
    fake.forbidden.add(("create", "pods", "istio-system"))
    ready = [{"conditions": {"ready": True}}]
    labels = {"kubernetes.io/service-name": "istiod"}
    fake.put("EndpointSlice", "istiod-1", "istio-system", labels=labels, endpoints=ready)


@cases(
    ("installed", "level", "want", "command"),
    alive=(default, "fine", "ISTIOD_INJECTS", ""),
    not_tried=(not_tried, "doubtful", "ISTIOD_NOT_TRIED", ""),
    dead=(
        dead,
        "broken",
        "ISTIOD_AWAY",
        "kubectl -n istio-system get pods,endpoints -l app=istiod",
    ),
    dead_elsewhere=(
        dead_elsewhere,
        "broken",
        "ISTIOD_AWAY",
        "kubectl get mutatingwebhookconfiguration istio-sidecar-injector",
    ),
    none=(
        lambda _: None,
        "broken",
        "INJECTOR_ABSENT",
        "kubectl get mutatingwebhookconfigurations",
    ),
)
def test_istiod_is_judged_by_its_answer(ctx, fake, installed, level, want, command):  # noqa: PLR0917
    installed(fake)
    (found,) = diagnose(ctx, "istiod")
    assert (found.level, found.message) == (level, want)
    assert command in found.next


EVERY = "[{ports: [17070, 443]}]"
CHARMS = "[{pods: app.kubernetes.io/name, ports: [17070, 443]}]"
UNKNOWN = "OUTBOUND_POLICY_UNKNOWN"
MANAGED = {"name": "istiod-asm-managed", "revision": "asm-managed"}
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
    monkeypatch.setenv("JUJU_API_ADDRESSES", "controller.example.com:443 10.1.2.3:17070")
    istio_objects.install_remote(fake, **installed)
    rows = diagnose(ctx, "settings", state(excluded_outbound_ports=ports))
    assert said(rows) == want
    assert all(
        "excluded-outbound-ports='[{pods: app" in r.next for r in rows if r.message == UNKNOWN
    )


def disabled(fake):
    default(fake)
    fake.labels("kf")["istio-injection"] = "disabled"


def unprepared(fake):
    default(fake)
    fake.webhook_answers = False


def unwritable(fake):
    default(fake)
    fake.forbidden.add(("patch", "namespaces"))


@cases(
    ("installed", "given", "want"),
    member=(default, {}, "NAMESPACE_AS_WANTED"),
    not_wanted=(default, {"mesh_mode": "none"}, "NAMESPACE_AS_WANTED"),
    selected=(default, {"included_pods": "a=b"}, "NAMESPACE_AS_WANTED"),
    conflict=(disabled, {}, "INJECTION_DISABLED"),
    not_written=(unwritable, {}, "NAMESPACE_OF_NO_MESH"),
    waiting=(dead, {}, "NOT_IN_MESH_YET"),
    waiting_for_the_webhook=(unprepared, {}, "NOT_IN_MESH_YET"),
)
def test_namespace_is_judged_by_what_would_be_done_with_it(ctx, fake, installed, given, want):
    installed(fake)
    assert said(diagnose(ctx, "namespace", state(**given))) == [want]


@cases(
    ("options", "want"),
    works=({}, "ADMISSION_WORKS"),
    not_needed=({"mesh_mode": "none"}, "ADMISSION_OFF"),
)
def test_preparation_of_new_pods_is_named(ctx, fake, options, want):
    default(fake)
    assert said(diagnose(ctx, "admission", state(**options))) == [want]
