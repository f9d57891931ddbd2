"""The option mtls, on a small API server: what stays open, who is cut off, and what is written."""

import json

import ops
import pytest

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.charm import charm_world, fake_cluster
from tests.unit.charm.charm_world import DOMAIN, state, status, workload
from tests.unit.charm.fake_cluster import ROOT
from tests.unit.charm.security import members
from tests.unit.charm.security.members import (
    api_service,
    definition,
    destination_rule,
    member,
    peers,
    pod,
    probed,
    service,
    sidecar,
    stateful_set,
    webhook,
)

STRICT = "mesh-2-strict"
KATIB = {"app.kubernetes.io/name": "katib"}
INSIDE_PORTS = "traffic.sidecar.istio.io/includeInboundPorts"
OUTSIDE_PORTS = "traffic.sidecar.istio.io/excludeInboundPorts"
SCRAPED = {"prometheus.io/scrape": "true"}
SCRAPED_AT = {**SCRAPED, "prometheus.io/port": "9100"}


@pytest.fixture
def empty(fake, monkeypatch):
    """A model without pods, and its Istio."""
    charm_world.search(monkeypatch)
    fake_cluster.install_istio(fake)
    return fake


@pytest.fixture
def world(empty):
    """A model in which katib is a webhook and minio has no callers outside of the mesh."""
    for each in (*member("minio"), *member("katib", labels=KATIB), service("katib", 443, 8443)):
        empty.add(each)
    empty.add(webhook("katib", "katib"))
    return empty


def policies(fake):
    return {
        obj["metadata"]["name"]: obj["spec"]
        for obj in fake.objects.values()
        if obj["kind"] == "PeerAuthentication"
    }


def strict(**options):
    return state(mtls="strict", **options)


def is_strict(fake):
    return policies(fake).get(STRICT) == {"mtls": {"mode": "STRICT"}}


def opened(fake):
    """The ports that our policies open, by a label of the workload."""
    found = {}
    for spec in policies(fake).values():
        if "selector" in spec:
            assert {each["mode"] for each in spec["portLevelMtls"].values()} == {"PERMISSIVE"}
            label = ",".join(sorted(spec["selector"]["matchLabels"].values()))
            found[label] = sorted(map(int, spec["portLevelMtls"]))
    return found


def listening(port, name=""):
    return {"name": "web", "ports": [{"containerPort": port, "name": name}]}


def to_come(*containers, **fields):
    """A workload that has no pod just now."""
    return [stateful_set("a", *containers, **fields)]


OS = "kubernetes.io/os"
ROUTER = {"name": "istio-proxy", "args": ["proxy", "router"]}
AS_IT_IS = {"sidecar.istio.io/rewriteAppHTTPProbers": "0"}


def requiring(*systems):
    """Required affinity to nodes with these systems."""
    terms = [{"matchExpressions": [{"key": OS, "operator": "In", "values": [*systems]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


PLACES = {
    "selects_windows": {"nodeSelector": {OS: "windows"}},
    "names_windows": {"os": {"name": "windows"}},
    "requires_windows": requiring("windows"),
    "requires_linux_or_windows": requiring("linux", "windows"),
    "uses_the_hosts_network": {"hostNetwork": True},
    "is_a_gateway": {"initContainers": [], "containers": [probed(8080), ROUTER]},
    "selects_linux": {"nodeSelector": {OS: "linux", "disk": "ssd"}, "os": {"name": "linux"}},
}
PORTS = [{"port": 80, "name": "a"}, {"port": 443, "targetPort": "webhook", "name": "main"}]
HOOK = [service("katib", 443, ports=PORTS), webhook("katib", "katib")]
RUNNER = {"app": "runner", "job-name": "x", "batch.kubernetes.io/job-name": "x"}
RUNNER["service.istio.io/canonical-name"] = "runner"
WIDE = stateful_set("wide")
TIER = {"team": "b", "tier": "x"}
WIDE["spec"]["selector"] = {"matchLabels": TIER}
FAR = stateful_set("far")
FAR["spec"]["selector"] = {"matchLabels": {"zone": "y"}}
SHARED = {**TIER, **KATIB}


@cases(
    ("objects", "option", "want"),
    nobody=([*member("minio"), service("minio", 9000)], "", {}),
    webhook_at_a_named_port=([*member("katib", listening(8443, "webhook")), *HOOK], "",
                             {"katib": [8443]}),
    name_at_other_ports_of_old_and_new_pods=(
        [*member("katib", listening(8443, "webhook")),
         pod("new", listening(9443, "webhook"), labels=KATIB), *HOOK],
        "", {"katib": [8443, 9443]},
    ),
    webhook_at_no_port=([*member("katib"), service("katib", 80), webhook("k", "katib")], "", {}),
    webhook_of_pods_with_one_of_its_labels=(
        [*member("katib"), webhook("k", "katib"),
         service("katib", 443, selector={"app.kubernetes.io/name": "katib", "role": "hook"})],
        "", {},
    ),
    webhook_without_a_service=([*member("katib"), webhook("k", "katib")], "", {}),
    mutating_webhook=(
        [*member("katib"), service("katib", 4443),
         webhook("m", "katib", 4443, kind="MutatingWebhookConfiguration")],
        "", {"katib": [4443]},
    ),
    webhook_of_another_namespace=(
        [*member("katib"), service("katib", 443), webhook("k", "katib", namespace="kf-user")],
        "", {},
    ),
    conversion=([*member("katib"), service("katib", 443), definition("a.b", "katib")], "",
                {"katib": [443]}),
    no_conversion=([*member("katib"), service("katib", 443), definition("a.b", "katib", "None")],
                   "", {}),
    api=([*member("katib"), service("katib", 443), api_service("v1.k", "katib")], "",
         {"katib": [443]}),
    probe_by_number=(member("a", probed(8080)), "", {"a": [8080]}),
    probe_by_name=(member("a", probed("web")), "", {"a": [8080]}),
    probe_of_another_host=(member("a", probed(8080, host="10.0.0.1")), "", {}),
    probe_by_grpc=(member("a", {"name": "x", "livenessProbe": {"grpc": {"port": 9}}}), "",
                   {"a": [9]}),
    probe_at_the_start_and_hook_after_it=(
        member("a", {"name": "x", "startupProbe": {"httpGet": {"port": 8}},
                     "lifecycle": {"postStart": {"httpGet": {"port": 9}}}}), "", {"a": [8, 9]},
    ),
    probe_that_connects=(member("a", {"name": "x", "startupProbe": {"tcpSocket": {"port": 9}}}),
                         "", {}),
    hook_before_the_end=(
        member("a", {"name": "x", "lifecycle": {"preStop": {"httpGet": {"port": 9}}}}), "",
        {"a": [9]},
    ),
    probe_that_is_rewritten_for_the_next_pod=(to_come(probed(8080)), "", {}),
    probe_that_is_not_rewritten=(to_come(probed(8080), notes=AS_IT_IS), "", {"a": [8080]}),
    probe_of_the_next_pod_of_one_that_was_evicted=(
        [*to_come(probed(8080), notes=AS_IT_IS), pod("a", phase="Failed")], "", {"a": [8080]},
    ),
    probe_of_a_pod_with_a_template_of_another_kind=(
        to_come(probed(8080), notes={**AS_IT_IS, "inject.istio.io/templates": "x"}), "", {},
    ),
    probe_of_a_pod_whose_proxy_the_injector_has_not_filled_in=(
        [pod("a", probed(8080), {"name": "istio-proxy", "image": "auto"}, inside=False)], "", {},
    ),
    probe_of_a_pod_that_stays_out=(
        to_come(probed(8080), labels={"sidecar.istio.io/inject": "false"}, notes=AS_IT_IS), "",
        {},
    ),
    **{f"probe_of_a_pod_that_{what}": (
        to_come(probed(8080), notes=AS_IT_IS, **spec), "",
        {"a": [8080]} if "linux" in what else {},
    ) for what, spec in PLACES.items()},
    probe_of_a_pod_without_a_proxy=(
        [*to_come(probed(8080), notes=AS_IT_IS), pod("a", probed(8080), inside=False)], "", {},
    ),
    probe_of_a_pod_that_has_ended=([pod("a", probed(8080), phase="Succeeded")], "", {}),
    probe_of_a_gateway=([pod("a", probed(8080), ROUTER, inside=False)], "", {}),
    pod_of_no_workload=([pod("a", probed(8080), labels=RUNNER)], "", {"runner": [8080]}),
    scraped_at_a_port=(member("a", notes=SCRAPED_AT), "", {"a": [9100]}),
    scraped_at_its_ports=(member("a", listening(1), listening(2, "b"), notes=SCRAPED), "",
                          {"a": [1, 2]}),
    not_scraped=(member("a", notes={**SCRAPED_AT, "prometheus.io/scrape": "false"}), "", {}),
    scraped_at_no_port=(member("a", notes={**SCRAPED, "prometheus.io/port": "x, 99999999"}), "",
                        {}),
    scraped_at_many_ports=(
        member("a", notes={**SCRAPED, "prometheus.io/port": ",".join(map(str, range(1, 9999)))}),
        "", {},
    ),
    scraped_by_the_agent=(member("a", notes={**SCRAPED, "prometheus.io/port": "15020"}), "", {}),
    metrics_that_are_merged_in_the_next_pod=(to_come(notes=SCRAPED_AT), "", {}),
    metrics_that_are_not_merged=(
        to_come(notes={**SCRAPED_AT, "prometheus.istio.io/merge-metrics": "F"}), "", {"a": [9100]},
    ),
    port_that_the_proxy_does_not_get=(
        member("a", probed(8080), notes={OUTSIDE_PORTS: "15020,8080"}), "", {},
    ),
    ports_that_the_proxy_gets=(
        member("a", probed(8080), notes={INSIDE_PORTS: "9100", **SCRAPED_AT}),
        "", {"a": [9100]},
    ),
    every_port_of_the_proxy=(member("a", probed(8080), notes={INSIDE_PORTS: " *"}), "",
                             {"a": [8080]}),
    no_port_of_the_proxy=(member("a", probed(8080), notes={INSIDE_PORTS: ""}), "", {}),
    option_with_the_port_of_a_service=(
        [*member("db", listening(8, "x")), service("db", 80, "x"),
         pod("new", listening(9, "x"), labels={"app.kubernetes.io/name": "db"})],
        "db:80", {"db": [8, 9]},
    ),
    option_with_the_name_of_a_port=([*member("db"), service("db", 80, 9000)], "db:main",
                                    {"db": [9000]}),
    option_with_the_port_of_a_pod=([*member("db"), service("db", 80, 9000)], "db:9001",
                                   {"db": [9001]}),
    option_with_the_name_of_a_port_of_a_pod=(
        [*member("db", listening(1, "a"), listening(2, "b"))], "db:b", {"db": [2]},
    ),
    option_without_a_port=([*member("db", listening(1)), service("db", 80, 9000)], "db",
                           {"db": [1, 9000]}),
    option_with_a_port_that_the_service_has_not=(
        [*member("db-v2"), service("db", 80, selector={"app.kubernetes.io/name": "db-v2"})],
        "db:5432", {"db-v2": [5432]},
    ),
    option_with_a_service_without_pods=(
        [*member("db", listening(1)), service("ext", 443, selector={})], "ext:443", {},
    ),
    workloads_that_share_a_pod=(
        [*member("katib", listening(8443, "webhook")), *HOOK, WIDE,
         pod("wide", labels=TIER), pod("both", labels=SHARED)],
        "wide:1", {"katib": [1, 8443], "b,x": [1, 8443]},
    ),
    workloads_that_share_pods_in_a_chain=(
        [*member("katib", listening(8443, "webhook")), *HOOK, WIDE, FAR,
         pod("far", labels={"zone": "y"}), pod("a", labels={"zone": "y", **TIER}),
         pod("b", labels=SHARED)],
        "far:2, wide:1", {"katib": [1, 2, 8443], "b,x": [1, 2, 8443], "y": [1, 2, 8443]},
    ),
    odd_object=(
        [*member("a", probed(8080)),
         {**pod("odd"), "spec": {"containers": [members.PROXY, {"name": "x", "ports": [5]}]}}],
        "", {"a": [8080]},
    ),
)  # fmt: skip
def test_ports_that_are_called_in_plain_text_stay_open(ctx, empty, objects, option, want):
    for each in objects:
        empty.add(each)
    said = status(ctx, strict(mtls_exceptions=option))
    assert is_strict(empty)
    assert opened(empty) == want
    assert ("open to plain text" in said.message) is (bool(want) and said.name == "active")


FULL = f"minio.kf.svc.{DOMAIN}"
MINIO = {"app.kubernetes.io/name": "minio"}
BARE = pod("bare", probed(80), labels={})
EXCEPT = "or add minio:9000 to juju config mesh-2 mtls-exceptions"
HIDDEN = (
    "hides minio:9000 from proxies, which then call it in plain text; add its namespace to the "
    f"egress hosts there, {EXCEPT}"
)
NO_CERTIFICATE = (
    f"has clients call minio:9000 without the mesh's certificates; take its tls mode out, {EXCEPT}"
)


@cases(
    ("objects", "words"),
    # Another workload has an exception for a port of the same number.
    node_port=([service("minio-x", 8443, type="NodePort", selector=MINIO)],
               "Service minio-x (NodePort) leads to minio-x:8443 past the gateway"),
    node_port_past_the_proxy=(
        [*member("db", notes={OUTSIDE_PORTS: "5432"}), service("db", 5432, type="NodePort")], "",
    ),
    load_balancer=([service("minio", 9000, type="LoadBalancer")], "Service minio (LoadBalancer)"),
    external_addresses=([service("minio", 9000, externalIPs=["1.2.3.4"])], "(externalIPs)"),
    of_pods_outside=([service("other", 9000, type="NodePort")], ""),
    rule_by_name=([destination_rule("minio")], NO_CERTIFICATE),
    rule_by_name_and_namespace=([destination_rule("minio.kf.svc")], NO_CERTIFICATE),
    rule_by_host=([destination_rule(FULL, "SIMPLE")], NO_CERTIFICATE),
    rule_for_all=([destination_rule("*.example", "MUTUAL")], NO_CERTIFICATE),
    rule_for_the_port=([destination_rule("minio", "SIMPLE", port=9000)], NO_CERTIFICATE),
    rule_of_the_mesh=([destination_rule("*", namespace="istio-system")], NO_CERTIFICATE),
    rule_of_the_gateway=([destination_rule(FULL, namespace="istio-ingress")], NO_CERTIFICATE),
    rule_of_a_user=([destination_rule(FULL, namespace="kf-user")], ""),
    rule_of_a_user_who_is_not_served=([destination_rule(FULL, namespace="kf-user-2")], ""),
    rule_of_a_subset=([destination_rule("minio", is_of_subset=True)], NO_CERTIFICATE),
    rule_for_another_port=([destination_rule("minio", port=9001)], ""),
    rule_for_the_pods_port=(
        [service("db", 80, 9000, selector=MINIO), destination_rule("db", port=9000)], "",
    ),
    rule_for_another_namespace=([destination_rule(f"minio.other.svc.{DOMAIN}")], ""),
    rule_for_a_namesake=([destination_rule("minio", namespace="istio-ingress")], ""),
    rule_for_other_hosts=([destination_rule("*.example.com")], ""),
    rule_with_certificates=([destination_rule("minio", "ISTIO_MUTUAL")], ""),
    sidecar_of_the_model=([sidecar("istio-system/*")], HIDDEN),
    sidecar_of_some_pods=(
        [sidecar(f"./katib.kf.svc.{DOMAIN}", workloadSelector={"labels": KATIB})],
        HIDDEN,
    ),
    sidecar_of_the_model_that_shows_others=([sidecar("*/*.example.com")], HIDDEN),
    sidecar_of_the_mesh=([sidecar("istio-system/*", namespace=ROOT)], HIDDEN),
    sidecar_of_istiods_namespace=([sidecar("./*", namespace="istio-system")], ""),
    sidecar_of_the_mesh_with_each_own_namespace=(
        [sidecar("istio-system/*", "./*", namespace=ROOT)], "",
    ),
    sidecar_of_the_mesh_below_one_of_some_pods=(
        [sidecar("istio-system/*", namespace=ROOT),
         sidecar("*/*", workloadSelector={"labels": KATIB})], HIDDEN,
    ),
    sidecar_of_the_mesh_below_one_of_the_model=(
        [sidecar("istio-system/*", namespace=ROOT), sidecar("*/*.example")], "",
    ),
    sidecar_of_the_model_that_shows_the_service=([sidecar(f"kf/{FULL}")], ""),
    sidecar_without_hosts=([sidecar()], ""),
    sidecar_of_a_user=([sidecar("./*", namespace="kf-user")], ""),
    pods_without_labels=(
        [BARE], "the kubelet's probes calls bare-0:80, whose pods have no labels",
    ),
    older_policy_for_the_model=(
        [peers("theirs", mode="PERMISSIVE", labels={names.OWNER: "kf.other"})],
        ("PeerAuthentication kf/theirs, which this charm did not make, is older and decides about "
         "the whole model; kubectl -n kf delete peerauthentication theirs"),
    ),
    older_policy_for_an_excepted_pod=(
        [peers("theirs", selector=KATIB, ports={1: "PERMISSIVE"})],
        "kf/theirs, which this charm did not make, is older and decides about katib:8443",
    ),
    older_policy_for_a_pod_without_exceptions=([peers("theirs", selector=MINIO)], ""),
    older_policy_that_opens_the_port=(
        [peers("theirs", selector=KATIB, ports={8443: "PERMISSIVE"})], "",
    ),
)  # fmt: skip
def test_known_victim_keeps_strict_off(ctx, world, objects, words):
    world.add(members.profile("kf-user"))
    world.add(members.profile("kf-user-2", served="disabled"))
    world.add(service("minio", 9000))
    labels = {names.OWNER: "kf.mesh-2"}
    world.add(peers("forged", mode="PERMISSIVE", namespace=ROOT, labels=labels))
    for each in objects:
        world.add(each)
    said = status(ctx, strict())
    assert is_strict(world) is not bool(words)
    assert isinstance(said, ops.BlockedStatus) is bool(words)
    assert words in said.message


def test_victim_is_named_with_its_remedy_which_switches_strict_on(ctx, world):
    world.add(service("minio", 9000, type="LoadBalancer"))
    world.add(destination_rule("minio"))
    said = status(ctx, strict())
    assert "preview-security mtls=strict; DestinationRule kf/theirs has" in said.message
    assert "add minio:9000 to juju config mesh-2 mtls-exceptions" in said.message
    assert said.message.endswith("; and 1 more")
    said = status(ctx, strict(mtls_exceptions="minio:9000, minio:8443"))
    assert "strict mutual TLS, 3 ports open" in said.message
    assert is_strict(world)


def test_rules_of_users_are_told_of_a_few(ctx, world):
    world.add(service("minio", 9000))
    world.add(members.profile("kf-user"))
    for number in range(200):
        rule = destination_rule("*.example", namespace="kf-user")
        world.add({**rule, "metadata": {"name": f"r{number}", "namespace": "kf-user"}})
    params = {"mtls": "strict", "format": "json"}
    ctx.run(ctx.on.action("preview-security", params=params), state())
    rows = json.loads(ctx.action_results["report"])
    told = {each["seen"] for each in rows if "DestinationRule kf-user/" in each["seen"]}
    assert len(told) == 50


def test_by_default_nothing_is_written_and_nothing_more_is_read(ctx, world):
    ctx.run(ctx.on.config_changed(), state())
    assert policies(world) == {}
    read = {kind for verb, kind in world.asked if verb in ("get", "list")}
    assert not read & {"customresourcedefinitions", "apiservices"}


def test_what_is_excepted_is_there_first_and_goes_last(ctx, world):
    ctx.run(ctx.on.config_changed(), strict(leader=False))
    assert policies(world) == {}
    said = status(ctx, strict())
    assert "strict mutual TLS, 1 port open to plain text" in said.message
    first, second = (each for each in world.writes if "peerauthentications" in each)
    assert "mesh-2-plain-katib-" in first
    assert STRICT in second
    world.writes.clear()
    ctx.run(ctx.on.config_changed(), state())
    first, second = (each for each in world.writes if "peerauthentications" in each)
    assert STRICT in first
    assert "katib" in second
    assert policies(world) == {}


def test_nothing_is_written_again_and_removal_leaves_what_others_wrote(ctx, world):
    theirs = peers("theirs", selector={"app": "x"}, mode="DISABLE")
    world.add(theirs)
    ctx.run(ctx.on.config_changed(), strict())
    world.writes.clear()
    ctx.run(ctx.on.update_status(), strict())
    assert not [each for each in world.writes if "peerauthentications" in each]
    ctx.run(ctx.on.remove(), strict(units=0))
    assert policies(world) == {"theirs": theirs["spec"]}


def test_victim_that_comes_later_is_told_and_strict_stays(ctx, world):
    ctx.run(ctx.on.config_changed(), strict())
    world.add(service("minio", 9000, type="NodePort"))
    said = status(ctx, strict())
    assert isinstance(said, ops.BlockedStatus)
    assert said.message.startswith("mtls=strict cuts off callers; run: juju run mesh-2/")
    assert "; Service minio (NodePort)" in said.message
    assert is_strict(world)


def test_younger_policies_of_somebody_else_change_nothing(ctx, world):
    ctx.run(ctx.on.config_changed(), strict())
    world.add(peers("theirs", mode="PERMISSIVE"))
    world.add(peers("of-a-pod", selector=KATIB, mode="STRICT"))
    assert isinstance(status(ctx, strict()), ops.ActiveStatus)


def test_pods_that_lack_their_sidecar_keep_strict_off_until_it_is_on(ctx, world):
    missing = strict(container=workload(in_mesh=12))
    said = status(ctx, missing)
    assert policies(world) == {}
    assert isinstance(said, ops.BlockedStatus)
    assert "2 pods that should have a sidecar have none" in said.message
    ctx.run(ctx.on.config_changed(), strict(container=workload()))
    ctx.run(ctx.on.update_status(), strict(container=workload(in_mesh=12)))
    assert is_strict(world)


def test_exceptions_of_a_hook_that_broke_off_are_not_taken_for_strict(ctx, world):
    world.broken["patch", "peerauthentications", STRICT] = 500
    ctx.run(ctx.on.config_changed(), strict())
    assert opened(world) == {"katib": [8443]}
    world.broken.clear()
    ctx.run(ctx.on.update_status(), strict(container=workload(in_mesh=12)))
    assert not is_strict(world)


def test_strict_is_not_switched_on_while_the_workload_is_silent(ctx, world):
    """Only the workload knows how many pods lack their sidecar."""
    silent = strict(container=workload(code=502, text="no API"))
    said = status(ctx, silent)
    assert isinstance(said, ops.WaitingStatus)
    assert "the workload reports: no API" in said.message
    assert policies(world) == {}
    ctx.run(ctx.on.config_changed(), strict(container=workload()))
    ctx.run(ctx.on.update_status(), silent)
    assert is_strict(world)


CALLING = ("validatingwebhookconfigurations", "customresourcedefinitions", "apiservices")


@pytest.mark.parametrize("kind", [*CALLING, "destinationrules"])
def test_right_that_is_missing_is_named_and_nothing_is_switched_on(ctx, world, kind):
    world.forbidden.add(("list", kind))
    said = status(ctx, strict())
    assert isinstance(said, ops.BlockedStatus)
    assert f"missing permission: list {kind}" in said.message
    assert policies(world) == {}


def test_exception_stays_while_the_only_pod_is_replaced(ctx, world):
    rewritten = {"name": "new", "livenessProbe": {"httpGet": {"port": 1}}}
    world.add(stateful_set("odd", probed(8080), rewritten, notes=SCRAPED_AT))
    world.add(pod("odd", probed(8080), notes=SCRAPED_AT))
    ctx.run(ctx.on.config_changed(), strict())
    before = opened(world)
    assert before["odd"] == [8080, 9100]
    world.delete("Pod", "odd-0", "kf")
    ctx.run(ctx.on.update_status(), strict())
    assert opened(world) == before
    world.delete("StatefulSet", "odd", "kf")
    ctx.run(ctx.on.update_status(), strict())
    assert "odd" not in opened(world)


def test_withdrawn_exception_of_a_workload_without_pods_is_closed(ctx, world):
    world.add(stateful_set("idle", probed(1)))
    ctx.run(ctx.on.config_changed(), strict(mtls_exceptions="idle:9000"))
    assert opened(world)["idle"] == [9000]
    idle = {"app.kubernetes.io/name": "idle"}
    world.add(peers("theirs", selector=idle, ports={1: "PERMISSIVE"}))
    ctx.run(ctx.on.config_changed(), strict())
    assert not [each for each in policies(world) if "plain-idle" in each]


@pytest.mark.parametrize("entry", ["minoi", "minoi:9000", "katib:grpc"])
def test_name_of_the_option_that_is_not_there_is_waited_for(ctx, world, entry):
    said = status(ctx, strict(mtls_exceptions=entry))
    assert isinstance(said, ops.WaitingStatus)
    assert f"mtls-exceptions: waiting for a Service or workload {entry}" in said.message
    assert is_strict(world)


def test_without_an_istio_strict_stays_as_it_is(ctx, world):
    ctx.run(ctx.on.config_changed(), strict())
    fake_cluster.uninstall_istio(world)
    ctx.run(ctx.on.update_status(), strict())
    assert is_strict(world)
