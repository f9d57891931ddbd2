"""Mutual TLS between the pods of training jobs: where, to which networks, and what is said."""

import pytest
import yaml

from tests import asked
from tests.unit.cases import cases, row
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import OWN_POD, state
from tests.unit.charm.diagnosis.world import add_pod, diagnose
from tests.unit.charm.fake_cluster import ROOT
from tests.unit.charm.objects import make

NAME = "istio-integrator.kf.mesh-2.training"
OURS = "istio-integrator.charmhub.io/"
LABEL = {f"{OURS}pod-traffic": "mutual-tls"}
PROFILE = {"app.kubernetes.io/part-of": "kubeflow-profile"}
KUBEFLOW = {"app.kubernetes.io/part-of": "kubeflow"}
MEMBER = {"istio-injection": "enabled"}
USER = "kf-user"
JOB = "volcano.sh/job-name"
OWN = "10.1.7.9"
APART = [f"10.{n // 128}.{n % 128 * 2 + 1}.0/24" for n in range(1001)]
"""Networks of which no two are adjacent."""
CALICO, CILIUM = ("crd.projectcalico.org/v1", "IPPool"), ("cilium.io/v2", "CiliumNode")


@pytest.fixture(autouse=True)
def world(ctx, fake):
    fake_cluster.install_istio(fake)
    services(fake, "kubernetes", "10.96.0.0/12")
    fake.application()
    fake.namespace(USER, **PROFILE, **MEMBER)
    add_pod(fake, "of-no-job", USER)
    fake.find("Pod", OWN_POD, "kf")["status"] = {"podIPs": [{"ip": OWN}]}


def services(fake, name, network):
    api = {"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR"}
    fake.add({**api, "metadata": {"name": name}, "spec": {"cidrs": ["fd96::/112", network]}})


def nodes(fake, *networks):
    for number, each in enumerate(networks):
        spec = {"podCIDRs": each.split()} if each else {}
        fake.put("Node", "node" if number == 0 else f"node-{number}", "", spec=spec)


def job(fake, pods=2, namespace=USER, **fields):
    for number in range(pods):
        labels = {**LABEL, JOB: "bert"}
        fake.put("Pod", f"bert-{number}", namespace, labels=labels, **fields)


def run(ctx, **options):
    return ctx.run(ctx.on.config_changed(), state(**options)).unit_status


def networks(fake, namespace=USER):
    """The networks of a namespace's EnvoyFilter, in the order of its chains."""
    found = fake.find("EnvoyFilter", NAME, namespace)
    if found is None:
        return None
    assert found["spec"]["workloadSelector"] == {"labels": LABEL}
    patches = [
        each for each in found["spec"]["configPatches"] if each["applyTo"] == "FILTER_CHAIN"
    ]
    values = [each["patch"]["value"] for each in patches]
    assert len({each["name"] for each in values}) == len(values)
    ranges = [each["filter_chain_match"]["prefix_ranges"] for each in values]
    assert all(len(each) == 1 for each in ranges)
    return [f"{one['address_prefix']}/{one['prefix_len']}" for (one,) in ranges]


def uses(*allowed):
    return {"allowedUses": [*allowed]}


POOL, NEXT = "10.1.0.0/16", {"cidr": "10.2.0.0/16"}


@cases(
    ("sources", "option", "wanted"),
    option=(([""], {}), " fd00:1::/48, 10.2.0.0/16,10.2.0.0/16 ", ["10.2.0.0/16", "fd00:1::/48"]),
    option_within_another=(([""], {}), "10.2.3.0/24,10.2.0.0/16", ["10.2.0.0/16"]),
    nodes=((["10.1.7.0/24", "10.1.9.0/24"], {}), "", ["10.1.7.0/24", "10.1.9.0/24"]),
    adjacent_nodes=((["10.1.7.0/24", "10.1.6.0/24"], {}), "", ["10.1.6.0/23"]),
    most=((APART[1:], {}), "", APART[1:]),
    too_many=((APART, {}), "", None),
    both_families=((["10.1.7.0/24 fd00:7::/64"], {}), "", ["10.1.7.0/24", "fd00:7::/64"]),
    a_node_without=((["10.1.7.0/24", ""], {}), "", None),
    nodes_of_another_plugin=((["10.8.7.0/24"], {}), "", None),
    calico=((["10.8.7.0/24"], {CALICO: ["10.1.0.0/16"]}), "", ["10.1.0.0/16"]),
    calico_disabled=(([""], {CALICO: [POOL, {**NEXT, "disabled": True}]}), "", [POOL]),
    calico_for_balancers=(([""], {CALICO: [{**NEXT, **uses("LoadBalancer")}, POOL]}), "", [POOL]),
    calico_for_tunnels=(([""], {CALICO: [{"cidr": POOL, **uses("Tunnel")}]}), "", None),
    calico_of_some_nodes=(
        ([""], {CALICO: [{**NEXT, "nodeSelector": "gpu == 'yes'"},
        {"cidr": POOL, **uses("Workload", "Tunnel"), "disabled": False}]}), "",
        [POOL, "10.2.0.0/16"],
    ),
    calico_of_no_pods=(([""], {CALICO: [{"cidr": "10.1.0.0/16", "disabled": True}]}), "", None),
    calico_beyond_the_nodes=((["10.1.7.0/24"], {CALICO: ["10.1.0.0/16"]}), "", ["10.1.0.0/16"]),
    calico_in_part=(([""], {CALICO: ["10.1.0.0/16", "much"]}), "", None),
    cilium=(([""], {CALICO: ["10.8.0.0/16"], CILIUM: ["10.1.7.0/24"]}), "", ["10.1.7.0/24"]),
    cilium_of_a_cloud=(([""], {CILIUM: [None]}), "", None),
    cilium_in_part=(([""], {CILIUM: ["10.1.7.0/24", None]}), "", None),
)  # fmt: skip
def test_networks_are_named_or_found_for_certain(ctx, fake, sources, option, wanted):
    of_nodes, others = sources
    nodes(fake, *of_nodes)
    for (api_version, kind), values in others.items():
        for number, value in enumerate(values):
            pool = value if isinstance(value, dict) else {"cidr": value}
            spec = pool if kind == "IPPool" else {"ipam": {"podCIDRs": value and [value]}}
            obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": f"a{number}"}}
            fake.add({**obj, "spec": spec})
    run(ctx, pod_networks=option)
    assert networks(fake) == wanted


PATCHES = """
- applyTo: CLUSTER
  match: {context: SIDECAR_OUTBOUND}
  patch:
    operation: ADD
    value:
      name: NAME
      type: ORIGINAL_DST
      lb_policy: CLUSTER_PROVIDED
      connect_timeout: 10s
      circuit_breakers:
        thresholds: [{max_connections: &max 4294967295, max_pending_requests: *max}]
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          common_tls_context:
            tls_params:
              {tls_minimum_protocol_version: TLSv1_2, tls_maximum_protocol_version: TLSv1_3}
            alpn_protocols: [istio]
            tls_certificate_sds_secret_configs:
            - name: default
              sds_config: &sds
                resource_api_version: V3
                initial_fetch_timeout: 0s
                api_config_source: {api_type: GRPC, transport_api_version: V3,
                  set_node_on_first_message_only: true,
                  grpc_services: [{envoy_grpc: {cluster_name: sds-grpc}}]}
            combined_validation_context:
              default_validation_context:
                match_typed_subject_alt_names:
                - {san_type: URI, matcher: {prefix: spiffe://td/ns/kf-user/sa/}}
                - {san_type: URI, matcher: {prefix: spiffe://alias/ns/kf-user/sa/}}
              validation_context_sds_secret_config: {name: ROOTCA, sds_config: *sds}
- applyTo: FILTER_CHAIN
  match: {context: SIDECAR_OUTBOUND, listener: {name: virtualOutbound}}
  patch:
    operation: ADD
    value:
      name: NAME.10.1.0.0/16
      filter_chain_match: {prefix_ranges: [{address_prefix: 10.1.0.0, prefix_len: 16}]}
      filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config: {stat_prefix: NAME, cluster: NAME, idle_timeout: 0s,
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy}
"""


def test_job_calls_without_limits_and_with_certificates_of_its_namespace_alone(ctx, fake):
    mesh = "trustDomain: td\ntrustDomainAliases: [alias]"
    fake.find("ConfigMap", "istio", "istio-system")["data"] = {"mesh": mesh}
    run(ctx, pod_networks="10.1.0.0/16")
    found = fake.find("EnvoyFilter", NAME, USER)
    assert found["metadata"]["annotations"]["galley.istio.io/analyze-suppress"] == "IST0133"
    assert found["spec"]["configPatches"] == yaml.safe_load(PATCHES.replace("NAME", NAME))
    fake.find("ConfigMap", "istio", "istio-system")["data"] = {"mesh": mesh.splitlines()[1]}
    run(ctx, pod_networks="10.1.0.0/16")
    patches = PATCHES.replace("NAME", NAME).replace("//td/", "//cluster.local/")
    found = fake.find("EnvoyFilter", NAME, USER)
    assert found["spec"]["configPatches"] == yaml.safe_load(patches)


@cases(
    ("labels", "wanted"),
    profile=({**PROFILE, **MEMBER}, True),
    profile_without_sidecars=(PROFILE, False),
    profile_of_another_integrator=({**PROFILE, **MEMBER, f"{OURS}served-by": "k.mesh"}, False),
    served_disabled=({**PROFILE, **MEMBER, f"{OURS}served": "disabled"}, False),
    labelled=({**MEMBER, **KUBEFLOW, f"{OURS}served": "enabled"}, False),
    other=(MEMBER, False),
)
def test_profiles_with_sidecars_get_one(ctx, fake, labels, wanted):
    fake.namespace("k")
    fake.application("mesh", "k")
    fake.namespace("team", **labels)
    run(ctx, pod_networks="10.1.0.0/16")
    assert (networks(fake, "team") is not None) is wanted


def policy(kind, namespace, name="a", **spec):
    return make(kind, name, namespace, spec=spec)


STRICT = {"mtls": {"mode": "STRICT"}}
OF_GET = {"to": [{"operation": {"methods": ["GET"]}}]}
OF_NAMESPACE = {"from": [{"source": {"principals": ["cluster.local/ns/team/sa/*"]}}]}


@cases(
    ("policies", "wanted"),
    strict=([("PeerAuthentication", "team", STRICT)], True),
    strict_for_jobs=(
        [("PeerAuthentication", "team", {**STRICT, "selector": {"matchLabels": LABEL}})], True,
    ),
    strict_mesh=([("PeerAuthentication", ROOT, STRICT)], True),
    strict_elsewhere=([("PeerAuthentication", "istio-system", STRICT)], False),
    allows_namespace=([("AuthorizationPolicy", "team", {"rules": [OF_NAMESPACE]})], True),
    allows_requests_of_its_namespace=(
        [("AuthorizationPolicy", "team", {"rules": [{**OF_NAMESPACE, **OF_GET}]})], False,
    ),
    allows_nobody=([("AuthorizationPolicy", "team", {})], False),
    allows_all=([("AuthorizationPolicy", "team", {"rules": [{}]})], False),
    of_an_application=(
        [("AuthorizationPolicy", "team",
        {"selector": {"matchLabels": {"app": "web"}}, "rules": [OF_NAMESPACE]})], False,
    ),
)  # fmt: skip
def test_other_served_namespaces_get_one_if_plain_text_is_denied(ctx, fake, policies, wanted):
    fake.namespace("team", **MEMBER, **{f"{OURS}served": "enabled"})
    for kind, namespace, spec in policies:
        fake.add(policy(kind, namespace, **spec))
    run(ctx, pod_networks="10.1.0.0/16")
    assert (networks(fake, "team") is not None) is wanted
    # The model is served without the right to list namespaces, and while it goes.
    fake.find("Namespace", "kf")["metadata"]["deletionTimestamp"] = "2026-11-25T14:39:26Z"
    fake.add(policy("PeerAuthentication", "kf", mtls={"mode": "STRICT"}))
    fake.forbidden.add(("list", "namespaces"))
    run(ctx, pod_networks="10.1.0.0/16")
    assert (networks(fake, "kf"), networks(fake, "team")) == (["10.1.0.0/16"], None)


def test_network_of_a_running_job_stays_until_the_job_ends(ctx, fake):
    fake.namespace("a-team", **PROFILE, **MEMBER)
    nodes(fake, "10.1.7.0/24 fd00:7::/64")
    run(ctx)
    for namespace in ("a-team", USER):
        job(fake, namespace=namespace)
    nodes(fake, "10.1.7.0/24", "10.1.6.0/24")
    run(ctx)
    assert networks(fake) == ["10.1.7.0/24", "fd00:7::/64", "10.1.6.0/23"]
    # istiod no longer injects into the namespace, and the networks are not known any more.
    for namespace in ("a-team", USER):
        fake.find("Namespace", namespace)["metadata"]["labels"].pop("istio-injection")
    nodes(fake, "10.1.7.0/24", "")
    run(ctx)
    assert networks(fake) == ["10.1.7.0/24", "fd00:7::/64", "10.1.6.0/23"]
    job(fake, status={"phase": "Succeeded"})
    run(ctx)
    assert networks(fake) is None


def test_application_that_is_removed_or_told_none_deletes_them(ctx, fake):
    job(fake)
    run(ctx, pod_networks="10.1.0.0/16", leader=False)
    assert networks(fake) is None
    run(ctx, pod_networks="10.1.0.0/16")
    assert networks(fake)
    run(ctx, pod_networks="none")
    assert networks(fake) is None
    run(ctx, pod_networks="10.1.0.0/16")
    labels = fake.find("EnvoyFilter", NAME, USER)["metadata"]["labels"]
    forged = fake.put("EnvoyFilter", "forged", USER, labels=labels, spec={})
    ctx.run(ctx.on.remove(), state(units=0))
    assert networks(fake) is None
    assert fake.find("EnvoyFilter", "forged", USER) is forged


@cases(
    ("pods", "options", "wanted"),
    none=(0, {}, False),
    one_pod=(1, {}, False),
    two_pods=(2, {}, True),
    known=(2, {"pod_networks": "10.1.0.0/16"}, False),
    declined=(2, {"pod_networks": "none"}, False),
)
def test_jobs_of_several_pods_in_unknown_networks_are_named(ctx, fake, pods, options, wanted):
    job(fake, pods)
    job(fake, 3, namespace="default")
    for name, other, phase in (("gpt-0", "gpt", "Running"), ("bert-9", "bert", "Succeeded")):
        labels = {**LABEL, JOB: other}
        fake.put("Pod", name, USER, labels=labels, status={"phase": phase})
    status = run(ctx, **options)
    text = f"fail in {USER}: set pod-networks"
    assert (text in status.message) is wanted
    assert status.name == "active"


def test_option_that_overlaps_the_services_is_refused_by_name(ctx, fake):
    services(fake, "more", "10.1.128.0/20")
    status = run(ctx, pod_networks="10.1.0.0/16")
    assert status.name == "blocked"
    assert status.message.startswith("pod-networks has Services (10.1.128.0/20); run: juju config")
    assert networks(fake) is None


def deny_filters(fake, namespace):
    """Have another team's policy deny EnvoyFilters in a namespace."""
    text = f"envoyfilters \"{NAME}\" is forbidden: ValidatingAdmissionPolicy 'no-filters' with "
    denied = 403, f"{text}binding 'b' denied request: none here"
    rules = {("EnvoyFilter", namespace): denied}
    fake.validators.append(lambda obj: rules.get((obj["kind"], obj["metadata"].get("namespace"))))


def test_networks_in_use_stay_where_a_change_of_them_is_refused(ctx, fake):
    job(fake)
    run(ctx, pod_networks="10.1.7.0/24")
    deny_filters(fake, USER)
    status = run(ctx, pod_networks="10.1.7.0/24,10.2.0.0/16")
    assert (status.name, networks(fake)) == ("blocked", ["10.1.7.0/24"])
    assert "no-filters" in status.message[:100]


def test_namespaces_that_refuse_the_envoyfilter_are_left_out_and_the_author_named_once(ctx, fake):
    for name in ("other", "team"):
        fake.namespace(name, **PROFILE, **MEMBER)
        deny_filters(fake, name)
    status, found = run(ctx, pod_networks="10.1.0.0/16"), ["10.1.0.0/16"]
    assert [networks(fake, name) for name in ("other", "team", USER)] == [None, None, found]
    assert (status.name, "more" in status.message) == ("blocked", False)
    assert "no-filters" in status.message[:100]


def test_networks_of_one_family_are_not_enough_for_pods_of_none_or_two(ctx, fake):
    api, kind = CALICO
    fake.add({"apiVersion": api, "kind": kind, "metadata": {"name": "a"}, "spec": {"cidr": POOL}})
    for found in ([], [OWN, "fd00:7::9"]):
        fake.find("Pod", OWN_POD, "kf")["status"]["podIPs"] = [{"ip": each} for each in found]
        run(ctx)
        assert networks(fake) is None


def test_networks_stay_without_the_right_to_list_pods_of_jobs_and_without_istio(ctx, fake):
    fake.forbidden.add(("list", "pods", ""))
    assert (run(ctx).name, networks(fake)) == ("active", None)
    run(ctx, pod_networks="10.1.0.0/16")
    run(ctx, pod_networks="10.2.0.0/16")
    assert networks(fake) == ["10.1.0.0/16", "10.2.0.0/16"]
    fake_cluster.uninstall_istio(fake)
    run(ctx, pod_networks="10.2.0.0/16")
    assert networks(fake) == ["10.1.0.0/16", "10.2.0.0/16"]


def test_tenants_object_of_the_name_is_left_alone_and_named(ctx, fake):
    fake.namespace("other", **PROFILE, **MEMBER)
    fake.put("EnvoyFilter", NAME, USER, spec={})
    status = run(ctx, pod_networks="10.1.0.0/16")
    assert fake.find("EnvoyFilter", NAME, USER)["spec"] == {}
    assert networks(fake, "other") == ["10.1.0.0/16"]
    assert f"EnvoyFilter {USER}/{NAME}: rename or delete it" in status.message


def test_namespace_waits_for_the_end_of_another_integrators_filter_chains(ctx, fake):
    labels = {f"{OURS}owner": "k.mesh", f"{OURS}component": "training"}
    name = "istio-integrator.k.mesh.training"
    fake.put("EnvoyFilter", name, USER, labels=labels, spec={})
    run(ctx, pod_networks="10.1.0.0/16")
    assert networks(fake) is None
    fake.delete("EnvoyFilter", name, USER)
    run(ctx, pod_networks="10.1.0.0/16")
    assert networks(fake) == ["10.1.0.0/16"]


def test_application_without_the_optional_role_goes_on(ctx, fake):
    fake.forbidden.add(("patch", "envoyfilters", NAME))
    assert run(ctx, pod_networks="10.1.0.0/16").name == "active"


PROXY = {"name": "istio-proxy", "image": "proxyv2", "ports": [{"containerPort": 15090}]}
SIDECAR = {"inits": [PROXY]}
OF_JOB = {"labels": {**LABEL, JOB: "bert"}}
WEB = {"containers": [{"name": "a"}, {"name": "b", "ports": [{"containerPort": 8080}]}]}
WEB["containers"][0]["ports"] = [{"containerPort": 9090}]


@cases(
    ("pod", "wanted"),
    whole=({**SIDECAR, **OF_JOB}, []),
    no_sidecar=({"labels": {JOB: "bert"}, **WEB}, ["has no sidecar"]),
    no_label=({**SIDECAR, "labels": {JOB: "bert"}}, ["lacks the label pod-traffic"]),
    declines=(
        {**SIDECAR, "labels": {JOB: "bert", next(iter(LABEL)): "unchanged"}},
        ["is labelled to stay unchanged"],
    ),
    of_another_job=({"labels": {JOB: "gpt"}}, []),
    ended=({**OF_JOB, "status": {"phase": "Succeeded"}}, []),
    http_ports=(
        {**SIDECAR, **OF_JOB, **WEB},
        [
            "has port 8080, as HTTP Service kf/web",
            "has port 9090, as HTTP Service kf-user/metrics",
        ],
    ),
    port_of_the_proxy=({**OF_JOB, "containers": [{"name": "a"}, PROXY]}, []),
    tcp_port=(
        {**SIDECAR, **OF_JOB, "containers": [{"name": "a", "ports": [{"containerPort": 9000}]}]},
        [],
    ),
)
def test_pod_that_the_others_of_its_job_can_not_call_is_named(ctx, fake, pod, wanted):
    ports = [{"name": "http-web", "port": 8080}, {"name": "tcp-db", "port": 9000}]
    ports.append({"name": "http-envoy-prom", "port": 15090})
    fake.put("Service", "web", "kf", spec={"ports": ports})
    fake.put("Service", "metrics", USER, spec={"ports": [{"name": "grpc", "port": 9090}]})
    add_pod(fake, "bert-0", USER, **SIDECAR, **OF_JOB)
    add_pod(fake, "bert-1", USER, **pod)
    for name in ("of-no-job-0", "of-no-job-1"):
        add_pod(fake, name, USER)
    found = diagnose(ctx, "training", state(pod_networks="10.1.0.0/16"))
    doubts = [row.seen for row in found if row.level == "doubtful"]
    start = f"Pod {USER}/bert-1 of a job "
    assert len(doubts) == len(wanted)
    assert all(map(str.startswith, doubts, [f"{start}{each}" for each in wanted]))


def test_pods_of_a_job_with_two_labels_are_listed_and_named_once(ctx, fake):
    labels = {**LABEL, JOB: "bert", "jobset.sigs.k8s.io/jobset-name": "bert-set"}
    add_pod(fake, "bert-0", USER, **SIDECAR, labels=labels)
    add_pod(fake, "bert-1", USER, labels=labels)
    found = diagnose(ctx, "training", state(pod_networks="10.1.0.0/16"))
    (doubt,) = (row.seen for row in found if row.level == "doubtful")
    assert "kf-user/bert-1" in doubt
    assert fake.requests.count("list pods kf-user") == 1


READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
FOLLOWED = ("JOBS_CHANGED", "namespaces: 3")
EARLY, WRITTEN, LATE = (f"2026-01-01T00:0{minute}:00Z" for minute in range(3))


@cases(
    ("pod", "answer", "said"),
    {"answer": (200, False), "said": FOLLOWED},
    followed=({"creationTimestamp": LATE}, (200, True), FOLLOWED),
    ignored=(
        *({"creationTimestamp": LATE}, (200, False)),
        ("JOB_FILTERS_IGNORED", f"Pod {USER}/mesh-2 has no filter chain of EnvoyFilter {NAME}"),
    ),
    not_seen=(
        *({"creationTimestamp": LATE}, (502, False)),
        ("CHECK_FAILED", "not known: the workload reports: port-forward ended"),
    ),
    earlier_pod=({"creationTimestamp": EARLY}, (200, False), FOLLOWED),
    pod_of_the_same_second=row(pod={"creationTimestamp": WRITTEN}),
    declining_pod=row(
        pod={"creationTimestamp": LATE, "labels": {next(iter(LABEL)): "unchanged", JOB: "gpt"}}
    ),
    pod_without_a_sidecar=row(pod={"creationTimestamp": LATE, "inits": []}),
    starting_pod=row(pod={"creationTimestamp": LATE, "status": {"phase": "Pending"}}),
)
def test_proxy_that_lacks_the_filter_chains_is_named(ctx, fake, pod, answer, said):
    fake.namespace("team", **PROFILE, **MEMBER)
    given = state(pod_networks="10.1.0.0/16")
    ctx.run(ctx.on.config_changed(), given)
    fake.find("EnvoyFilter", NAME, USER)["metadata"]["creationTimestamp"] = WRITTEN
    # Namespaces without an EnvoyFilter, whose pods have the same name.
    for namespace in ("a-team", "a-user"):
        fake.namespace(namespace, **MEMBER, **({} if namespace == "a-team" else PROFILE))
    refused = {"a-user": (400, "no")}
    fake.validators.append(lambda obj: refused.get(obj["metadata"].get("namespace")))
    for namespace in ("a-team", "a-user", USER):
        add_pod(fake, "mesh-2", namespace, **{**SIDECAR, **OF_JOB, **READY, **pod})
    labels = {**LABEL, **pod.get("labels", {}), JOB: "gpt-2"}
    add_pod(fake, "mesh-3", USER, **{**SIDECAR, **READY, **pod, "labels": labels})
    code, asked.SERVICE.has_chain = answer
    if code != 200:
        asked.SERVICE.fails(code, "port-forward ended")
    (row,) = diagnose(ctx, "training", given)
    assert (row.message, said[1] in row.seen) == (said[0], True)
    asked_for = {path for _, path, _ in asked.SERVICE.requests if path.startswith("/outbound")}
    assert asked_for <= {f"/outbound?namespace={USER}&pod=mesh-2&name={NAME}"}
