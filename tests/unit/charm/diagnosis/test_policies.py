"""Policies and mutual TLS that refuse the callers that they should admit, or admit too many."""

import json

import pytest
from ops import testing

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.charm import charm_world, fake_cluster
from tests.unit.charm.ambient_objects import into_ambient
from tests.unit.charm.charm_world import DOMAIN, state
from tests.unit.charm.diagnosis.world import add_pod, diagnose, diagnose_ingress
from tests.unit.charm.ingress_world import auth, pod_of, route
from tests.unit.charm.security import callers

MODEL, ROOT, GATEWAY = "kf", fake_cluster.ROOT, "istio-ingress"
NAME = "app.kubernetes.io/name"
PROXY = "istio-proxy"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def install(fake, more=""):
    """Install Istio with a root namespace that is not istiod's."""
    fake_cluster.install_istio(fake, mesh_config=f"{fake_cluster.MESH_CONFIG}{more}")


def account(name, namespace=MODEL, domain=fake_cluster.TRUST_DOMAIN):
    return f"{domain}/ns/{namespace}/sa/{name}"


def policy(fake, namespace=MODEL, name="theirs", rules=(), **fields):
    spec = {"rules": [*rules], **fields.pop("spec", {})}
    return fake.put("AuthorizationPolicy", name, namespace, spec=spec, **fields)


def theirs(labels, action="ALLOW", rules=({},), namespace=MODEL, **target):
    """Have a policy of another integrator for some pods."""
    spec = {"action": action, **(target or {"selector": {"matchLabels": labels}})}
    marks = {names.OWNER: "kf.mesh", names.COMPONENT: "authorization"}
    return lambda fake: policy(fake, namespace, rules=rules, spec=spec, labels=marks)


PORT = {"to": [{"operation": {"ports": ["1"]}}]}


@cases(
    ("namespace", "fields", "count"),
    allows_none=(MODEL, {}, 2),
    whole_mesh=(ROOT, {}, 2),
    of_istiod=("istio-system", {}, 0),
    elsewhere=("other", {}, 0),
    denies_all=(MODEL, {"spec": {"action": "DENY"}, "rules": [PORT, {}]}, 2),
    denies_some=(MODEL, {"spec": {"action": "DENY"}, "rules": [PORT]}, 0),
    allows_some=(MODEL, {"rules": [PORT]}, 0),
    audits=(MODEL, {"spec": {"action": "AUDIT"}}, 0),
    no_pod=(MODEL, {"spec": {"selector": {"matchLabels": {"app": "z"}}}}, 0),
    one_pod=(MODEL, {"spec": {"selector": {"matchLabels": {"job": "x"}}}}, 1),
    pod_without_a_sidecar=(MODEL, {"spec": {"selector": {"matchLabels": {"job": "y"}}}}, 0),
    pod_that_has_ended=(MODEL, {"spec": {"selector": {"matchLabels": {"job": "z"}}}}, 0),
    of_an_integrator=(MODEL, {"labels": {names.OWNER: "a.app"}}, 0),
    tried=(MODEL, {"annotations": {"istio.io/dry-run": "true"}}, 0),
)
def test_policy_of_another_team_that_denies_every_call_is_named(
    ctx, fake, namespace, fields, count
):
    install(fake)
    add_pod(fake, containers=["main", PROXY])
    add_pod(fake, "x", containers=["main", PROXY], labels={"job": "x"})
    add_pod(fake, "bare-0", containers=["main"], labels={"job": "y"})
    ended = {"labels": {"job": "z"}, "status": {"phase": "Succeeded"}}
    add_pod(fake, "z", containers=["main", PROXY], **ended)
    policy(fake, namespace, **fields)
    (found,) = diagnose(ctx, "others")
    assert found.message == ("CALLS_DENIED" if count else "CALLS_NOT_DENIED")
    said = f"AuthorizationPolicy {namespace}/theirs denies every caller of {count} pods"
    assert not count or said in found.seen


def test_policy_that_denies_every_call_to_the_gateway_is_named_with_the_pods_that_serve(world):
    world.related = [route()]
    pod_of(world.fake, name="gateway-1", status={})
    add_pod(world.fake, "shop-0", GATEWAY, containers=[PROXY], status=READY)
    policy(world.fake, GATEWAY)
    (found,) = diagnose_ingress(world, "others")
    assert "istio-ingress/theirs denies every caller of 1 pods" in found.seen


ISSUER = {"key": "request.auth.claims[iss]", "values": ["a"]}


def of_user(*principals, header="kubeflow-userid"):
    when = [ISSUER, {"key": f"request.headers[{header}]", "values": ["alice@example.com"]}]
    return {"when": when, "from": [{"source": {"principals": list(principals)}}]}


CLAIM = {"when": of_user()["when"]}


def by(**source):
    return {**CLAIM, "from": [{"source": source}]}


def profile(fake):
    labels = {"app.kubernetes.io/part-of": "kubeflow-profile"}
    for name in ("kf-user", "kf-user-2"):
        fake.put("Namespace", name, "", labels=labels)


REAL = account("gateway", GATEWAY)
OTHER = account("istio-ingressgateway-service-account", ROOT)
UI = account("ml-pipeline-ui")


@cases(
    ("rules", "action", "is_fine"),
    the_real_one=([of_user(REAL, UI)], "ALLOW", True),
    another=([of_user(OTHER, UI)], "ALLOW", False),
    another_namespace=([of_user(account("gateway", ROOT))], "ALLOW", False),
    another_account=([of_user(account("gatewa", GATEWAY))], "ALLOW", False),
    one_of_two=([of_user(OTHER), of_user(REAL)], "ALLOW", False),
    anybody=([of_user("*")], "ALLOW", True),
    a_wildcard=([of_user("td.example/ns/istio-ingress/*")], "ALLOW", True),
    another_wildcard=([of_user("td.example/ns/istio-system/*")], "ALLOW", False),
    another_header=([of_user(OTHER, header="x-goog-authenticated-user-email")], "ALLOW", False),
    from_some_addresses=([by(principals=[REAL], ipBlocks=["10.0.0.0/8"])], "ALLOW", False),
    another_domain=([of_user(account("gateway", GATEWAY, "td2"))], "ALLOW", False),
    alias_by_a_wildcard=([of_user(account("gateway", GATEWAY, "old*"))], "ALLOW", True),
    not_of_users=([{"from": [{"source": {"principals": [OTHER]}}]}], "ALLOW", True),
    of_another_attribute=([{**of_user(OTHER), "when": [ISSUER]}], "ALLOW", True),
    no_principal=([of_user()], "ALLOW", True),
    denies=([of_user(OTHER)], "DENY", True),
)
def test_policy_of_a_profile_must_admit_the_real_gateway(world, rules, action, is_fine):
    profile(world.fake)
    world.related = [route()]
    install(world.fake, "trustDomainAliases: [old.example]")
    for place in (["kf-user-2"], ["kf-user", "first"], ["kf-user", "second"]):
        policy(world.fake, *place, rules=rules, spec={"action": action})
    policy(world.fake, "default", rules=[of_user(OTHER)], spec={"action": "ALLOW"})
    (found,) = diagnose_ingress(world, "profiles")
    assert found.message == ("PROFILES_ADMIT_GATEWAY" if is_fine else "PROFILES_REJECT_GATEWAY")
    assert is_fine or found.seen.startswith("the policies of kf-user, kf-user-2 admit ")
    said = ", and the gateway is istio-ingress/gateway: every page there answers 403"
    assert is_fine or found.seen.endswith(said)
    settings = "istio-gateway-namespace=istio-ingress istio-gateway-service-account=gateway"
    assert is_fine or found.next.endswith(settings)


def test_policy_of_a_profile_must_admit_the_account_of_each_workload_of_the_gateway(world):
    profile(world.fake)
    world.related = [route(), auth()]
    policy(world.fake, "kf-user", rules=[of_user(REAL)])
    policy(world.fake, "kf-user-2", rules=[of_user(REAL, UI)])
    proxy = {"name": "istio-proxy", "args": ["proxy", "router"]}
    spec = {"serviceAccountName": "canary", "containers": [proxy]}
    pod_of(world.fake, name="canary-0", of="canary-5", spec=spec)
    found = diagnose_ingress(world, "profiles")
    admitted = {"kf-user": REAL, "kf-user-2": f"{REAL}, {UI}"}
    assert [row.seen.partition(", and the ")[0] for row in found] == [
        f"the policies of {name} admit {each}" for name, each in admitted.items()
    ]
    assert all(row.next.endswith("istio-gateway-service-account=canary") for row in found)
    assert "; the policies of kf-user admit " in world.status().message


USER = "request.headers[kubeflow-userid]"
OF_GATEWAY = by(principals=[account("gateway")])


@cases(
    ("rules", "action", "is_named"),
    anybody=([CLAIM], "ALLOW", True),
    no_source=([{**CLAIM, "from": []}], "ALLOW", True),
    any_certificate=([by(principals=["*"])], "ALLOW", True),
    any_of_the_mesh=([by(principals=["td.example/*"])], "ALLOW", True),
    some_addresses=([by(ipBlocks=["10.0.0.0/8"])], "ALLOW", False),
    one_of_two=([OF_GATEWAY, CLAIM], "ALLOW", True),
    all_but_one=([by(notNamespaces=["bob"])], "ALLOW", True),
    the_gateway=([OF_GATEWAY], "ALLOW", False),
    the_model=([by(namespaces=[MODEL])], "ALLOW", False),
    no_claim=([{"from": [{"source": {"namespaces": ["kf-user"]}}]}], "ALLOW", False),
    all_but_a_user=([{"when": [{"key": USER, "notValues": ["x"]}]}], "ALLOW", False),
    claims_nothing=([{"when": [{"key": USER, "values": []}]}], "ALLOW", False),
    other_header=([of_user("*", header="x")], "ALLOW", False),
    of_two_rules=([OF_GATEWAY, {"from": [{"source": {}}]}], "ALLOW", False),
    no_rule=([5], "ALLOW", False),
    denies=([CLAIM], "DENY", False),
)
def test_policy_that_trusts_the_users_header_from_any_pod_is_named(
    ctx, fake, rules, action, is_named
):
    fake_cluster.install_istio(fake)
    profile(fake)
    policy(fake, "kf-user", rules=rules, spec={"action": action})
    policy(fake, "default", "of-no-profile", rules=[CLAIM], spec={"action": "ALLOW"})
    found = diagnose(ctx, "users apart")[0]
    assert found.message == ("HEADER_TRUSTED" if is_named else "HEADER_NOT_TRUSTED")
    assert ("policy kf-user/theirs trusts" in found.seen) is is_named
    integrate = "juju integrate kfp-profile-controller:service-mesh mesh-2:service-mesh"
    assert found.next == (integrate if is_named else "")
    written = fake.find("AuthorizationPolicy", "theirs", "kf-user")["metadata"]
    written["annotations"] = {"istio.io/dry-run": "true"}
    assert diagnose(ctx, "users apart")[0].message == "HEADER_NOT_TRUSTED"


def stated(application="kfp-api", *endpoints):
    """The relation of an application that lets kfp-ui and kfp-schedwf call it."""
    listed = (callers.policy(each, application, *endpoints) for each in ("kfp-ui", "kfp-schedwf"))
    bag = {"policies": json.dumps([*listed])}
    return testing.Relation("service-mesh", remote_app_name=application, remote_app_data=bag)


RELATED = {"authorization": "related"}
RELATE = "juju integrate {}:service-mesh mesh-2:service-mesh"
API = {NAME: "kfp-api"}


@cases(
    ("related", "options", "labels", "command"),
    covered=([stated(), stated("minio")], RELATED, API, None),
    another=([stated("minio")], RELATED, {NAME: "api"}, RELATE.format("api")),
    none=([], {"authorization": "closed"}, {}, RELATE.format("kfp-api")),
    option_is_off=([stated()], {}, API, "juju config mesh-2 authorization=related"),
)
def test_service_that_trusts_the_users_header_of_any_pod_is_named(
    world, related, options, labels, command
):
    profile(world.fake)
    for name, marks in (("kfp-api", labels), ("minio", {NAME: "minio"})):
        spec = {"selector": {NAME: name, "tier": "x"}, "ports": [{"name": "http", "port": 8888}]}
        world.fake.put("Service", name, spec=spec, labels=marks)
    narrower = {NAME: "kfp-api", "tier": "x", "zone": "a"}
    spec = {"selector": narrower, "ports": [{"port": 1}]}
    world.fake.put("Service", "jupyter-ui", spec=spec, labels=API)
    world.fake.put("Service", "katib-ui", spec={"ports": [{"port": 80}]})
    world.related, world.config = related, options
    other = {names.OWNER: "k.mesh", names.COMPONENT: "authorization"}
    policy(world.fake, labels=other, spec={"selector": {"matchLabels": API}})
    rows = {each.message: each for each in diagnose_ingress(world, "users apart")}
    if command is None:
        assert "USERS_HAVE_CALLERS" in rows
        return
    found = rows["USERS_FROM_ANY_POD"]
    assert found.next == command
    assert found.seen.endswith(" from any pod by jupyter-ui, kfp-api")


def katib(fake, labels, port, kind):
    """A webhook in the mesh, whose pod listens elsewhere than its Service."""
    main = {"name": "main", "ports": [{"name": "hook", "containerPort": port}]}
    selector = {**labels, "part": "hook"}
    add_pod(fake, containers=[main, PROXY], labels=selector)
    add_pod(fake, "bare-0", containers=[main], labels=selector)
    add_pod(fake, "other-0", containers=[main, PROXY], labels=labels)
    ports = [{"port": 80, "targetPort": 8080}, {"port": 443, "targetPort": "hook"}]
    for name, chosen in (("katib", selector), ("not-called", selector), ("of-no-pods", {})):
        fake.put("Service", name, spec={"selector": chosen, "ports": ports})
    elsewhere = {"matchExpressions": [{"key": "x", "operator": "Exists"}]}
    hooks = [
        {
            "name": f"v.{name}",
            "clientConfig": {"service": {"name": name, "namespace": MODEL}},
            "namespaceSelector": elsewhere,
        }
        for name in ("katib", "of-no-pods")
    ]
    fake.put(kind, "katib.kubeflow.org", "", webhooks=hooks)


def strict(fake):
    fake.put("PeerAuthentication", "default", ROOT, spec={"mtls": {"mode": "STRICT"}})


def allowing(**operation):
    return lambda fake: policy(fake, rules=[{"to": [{"operation": operation}]}])


def strict_but_for(port):
    def write(fake):
        strict(fake)
        modes = {"mtls": {"mode": "STRICT"}, "portLevelMtls": {port: {"mode": "PERMISSIVE"}}}
        chosen = {"selector": {"matchLabels": {"part": "hook"}}}
        fake.put("PeerAuthentication", "hook", MODEL, spec={**chosen, **modes})

    return write


DELETE = "kubectl -n kf delete pod web-0"
EXCLUDE = f"juju config mesh-2 excluded-pods=app=web && {DELETE}"


@cases(
    ("labels", "obstacle", "command"),
    nothing_in_the_way=({"app": "web"}, lambda _: None, ""),
    strict_mesh=({"app": "web"}, strict, EXCLUDE),
    strict_but_for_its_port=({"app": "web"}, strict_but_for("8443"), ""),
    nothing_allowed=({"app": "web"}, policy, EXCLUDE),
    its_port=({"app": "web"}, allowing(ports=["8443"]), ""),
    port_of_the_service=({"app": "web"}, allowing(ports=["443"]), EXCLUDE),
    denied=({"app": "web"}, theirs({}, "DENY"), EXCLUDE),
    unseen_requests=({"app": "web"}, allowing(methods=["POST"]), EXCLUDE),
    of_the_mesh=({"app": "web"}, lambda fake: policy(fake, ROOT), EXCLUDE),
    of_istiod=({"app": "web"}, lambda fake: policy(fake, "istio-system"), ""),
    two_names=({"app": "x", NAME: "web"}, strict, EXCLUDE.replace("=app=", f"={NAME}=")),
    no_name=({"tier": "x"}, strict, DELETE),
    modeloperator=({"operator.juju.is/name": "modeloperator", "app": "web"}, strict, DELETE),
)
@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
def test_webhook_that_api_servers_can_not_call_is_named(  # noqa: PLR0917 - a table
    ctx, fake, labels, obstacle, command, kind
):
    install(fake)
    katib(fake, labels, 8443, f"{kind}WebhookConfiguration")
    obstacle(fake)
    (found,) = diagnose(ctx, "webhooks")
    assert found.message == ("WEBHOOK_NOT_REACHED" if command else "WEBHOOKS_REACHED")
    why = (
        f"{ROOT}/default requires mutual TLS" if obstacle is strict else "/theirs denies the call"
    )
    assert not command or found.seen.startswith("Pod kf/web-0 is in the mesh and ")
    assert not command or found.seen.endswith(
        f"{why}, so webhook katib.kubeflow.org cannot be called"
    )
    assert found.next == command


def add_application(fake, name, *proxies, number=0, phase="Running", labels=None):
    fields = {"labels": labels or {NAME: name}, "spec": {"serviceAccountName": name}}
    fields["status"] = {"phase": phase}
    add_pod(fake, f"{name}-{number}", containers=["main", *proxies], **fields)


def without(*applications, number=0, **fields):
    def change(fake):
        for name in applications:
            add_application(fake, name, number=number, **fields)

    return change


TARGETS = [{"kind": "Service", "name": "a"}]
BARE, CLOSED = "CALLED_WITHOUT_SIDECAR", {"authorization": "closed"}


def add_database(fake):
    """Add a workload that no relation is about, a job without a sidecar, and a unit of ours."""
    add_application(fake, "kfp-db", PROXY)
    add_application(fake, "mesh-2", number=1)
    add_application(fake, "job", labels={"job": "x"})


def excluding(fake):
    """Have a policy for waypoints admit all callers but one, which has no sidecar."""
    add_application(fake, "kfp-old")
    source = {"principals": ["*"], "notPrincipals": [account("kfp-old")]}
    rules, service = [{"from": [{"source": source}]}], {"kind": "Service", "name": "kfp-api"}
    theirs({}, rules=rules, targetRefs=[service])(fake)


@cases(
    ("change", "options", "want", "words"),
    held=(lambda _: None, {}, "CALLERS_HELD", "1 policies "),
    callers_without_sidecar=(
        without("kfp-ui", "kfp-schedwf"),
        *({}, "CALLER_WITHOUT_SIDECAR", "kfp-schedwf, kfp-ui may"),
    ),
    caller_on_its_way=(without("kfp-ui", number=1), {}, "CALLERS_HELD", ""),
    called_without_sidecar=(without("kfp-api"), {}, BARE, "kfp-api-0"),
    **{
        f"called_without_sidecar_{name}": (without(name, labels=API), {}, BARE, f"{name}-0")
        for name in ("mesh-2-ui", "modeloperator-ui")
    },
    caller_that_has_failed=(without("kfp-ui", phase="Failed"), {}, "CALLERS_HELD", "1 pods"),
    called_ended=(without("kfp-api", number=1, phase="Succeeded"), {}, "CALLERS_HELD", "1 pods"),
    others_deny=(theirs(API, "DENY"), {}, "POLICY_INTERFERES", "denies some of their callers"),
    others_allow=(theirs(API), {}, "POLICY_INTERFERES", "admits callers beside them"),
    others_ask=(theirs(API, "CUSTOM"), {}, "POLICY_INTERFERES", "has another service decide"),
    others_for_all=(theirs({}), {}, "POLICY_INTERFERES", "kfp-api-0"),
    others_in_the_mesh=(theirs(API, namespace=ROOT), {}, "POLICY_INTERFERES", "kfp-api-0"),
    others_beside_istiod=(theirs(API, namespace="istio-system"), {}, "CALLERS_HELD", ""),
    others_elsewhere=(theirs(API, namespace="default"), {}, "CALLERS_HELD", ""),
    of_other_pods=(theirs({NAME: "x"}), {}, "CALLERS_HELD", ""),
    allows_none=(theirs(API, rules=()), {}, "CALLERS_HELD", ""),
    denies_none=(theirs(API, "DENY", rules=()), {}, "CALLERS_HELD", ""),
    asks_for_none=(theirs(API, "CUSTOM", rules=()), {}, "CALLERS_HELD", ""),
    audits=(theirs(API, "AUDIT"), {}, "CALLERS_HELD", ""),
    caller_that_is_excluded=(excluding, {}, "CALLERS_HELD", ""),
    of_a_waypoint=(theirs(API, targetRefs=TARGETS), {}, "CALLERS_HELD", ""),
    called_by_none=(add_database, CLOSED, "CALLED_BY_NONE", "of kfp-db-0, kfp-ui-0"),
)
def test_callers_are_held_to_what_relations_say(world, change, options, want, words):
    install(world.fake)
    for name in ("kfp-api", "kfp-ui"):
        add_application(world.fake, name, PROXY)
    spec = {"selector": API, "ports": [{"name": "http", "port": 8888}]}
    world.fake.put("Service", "kfp-api", spec=spec, labels=API)
    world.related, world.config = [stated()], {**RELATED, **options}
    of_no_pod = {"selector": {"matchLabels": {NAME: "x"}}}
    policy(world.fake, name="a-first", rules=[{}], spec=of_no_pod)
    change(world.fake)
    (found,) = diagnose_ingress(world, "callers")
    assert found.message == want
    assert words in found.seen
    if want == "POLICY_INTERFERES":
        namespace, _, name = found.seen.split()[1].partition("/")
        assert found.next == f"kubectl -n {namespace} get authorizationpolicy {name} -o yaml"
    assert found.level != "broken" or found.seen in world.status().message


def test_rules_about_requests_in_ambient_mode_are_named(world):
    """ztunnel sees connections, and no method or path in them."""
    into_ambient(world.fake)
    add_application(world.fake, "kfp-api")
    spec = {"selector": API, "ports": [{"name": "http", "port": 8888}]}
    world.fake.put("Service", "kfp-api", spec=spec, labels=API)
    world.config = RELATED
    for endpoint, is_named in (({"ports": [8888]}, False), ({"methods": ["GET"]}, True)):
        world.related = [stated("kfp-api", endpoint)]
        rows = {row.message: row for row in diagnose_ingress(world, "ambient")}
        assert ("HTTP_RULES_NEED_WAYPOINT" in rows) is is_named
    assert f"{NAME}=kfp-api" in rows["HTTP_RULES_NEED_WAYPOINT"].seen
    assert "waypoint" in rows["HTTP_RULES_NEED_WAYPOINT"].next


def expecting(host, mode="ISTIO_MUTUAL", **port):
    tls = {"tls": {"mode": mode}}
    return {"host": host, "trafficPolicy": {"portLevelSettings": [port | tls]} if port else tls}


@cases(
    ("namespace", "spec", "named"),
    of_the_mesh=(ROOT, expecting("*.example"), ["bare", "bare-2"]),
    of_a_tenant=("kf-user", expecting(f"bare.kf.svc.{DOMAIN}"), ["bare"]),
    of_one_port=(MODEL, expecting("bare-2", port={"number": 80}), ["bare-2"]),
    without_certificates=(MODEL, expecting("bare", "DISABLE"), []),
    for_pods_in_the_mesh=(MODEL, expecting("main"), []),
    for_another_namespace=(ROOT, expecting(f"*.kf-user.svc.{DOMAIN}"), []),
)
def test_rule_that_expects_a_certificate_of_a_pod_without_a_sidecar_is_named(  # noqa: PLR0917
    ctx, fake, monkeypatch, namespace, spec, named
):
    charm_world.search(monkeypatch)
    install(fake)
    apart = ["main"]
    for name, containers in (("main", ["main", PROXY]), ("bare", apart), ("bare-2", apart)):
        add_pod(fake, f"{name}-0", containers=containers, labels={NAME: name})
        fake.put("Service", name, MODEL, spec={"selector": {NAME: name}, "ports": [{"port": 80}]})
    fake.put("Service", "of-no-pods", MODEL, spec={"ports": [{"port": 80}]})
    for name in ("a", "b"):
        fake.put("DestinationRule", name, namespace, spec=spec)
    rule = f"DestinationRule {namespace}/{{}} has clients use mutual TLS with"
    assert [row.seen for row in diagnose(ctx, "client TLS")] == [
        f"{rule.format(each)} {name}, whose pod {name}-0 has no sidecar"
        for each in ("a", "b")
        for name in named
    ]
    into_ambient(fake)
    assert diagnose(ctx, "client TLS", state(mesh_mode="ambient")) == []
