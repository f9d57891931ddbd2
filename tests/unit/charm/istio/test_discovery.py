"""Which Istio the charm finds, in this cluster or outside of it, and what it can do."""

import dataclasses
import json

import pytest
import yaml
from ops import testing

from tests.unit.cases import cases
from tests.unit.charm import fake_cluster, istio_objects
from tests.unit.charm.charm_world import joins, state, status, told, workload
from tests.unit.charm.objects import make

URL = "https://istiod.example:15017/inject"
ABSENT = "waiting for istiod: the cluster has no sidecar injector"
NO_DEFAULT = "no default revision for 2 profile namespaces; "


def heard(ctx, **options):
    """Run a hook; what the workload is told."""
    return told(ctx, ctx.run(ctx.on.config_changed(), state(**options)))


def prepared(ctx, fake, **options):
    """Run a hook; the settings of the webhook."""
    ctx.run(ctx.on.config_changed(), state(**options))
    return fake.find("ConfigMap", "mesh-2-admission", "kf")["data"]["settings.json"]


def mesh_configuration(fake, text, *, namespace="istio-system", name="istio"):
    fake.put("ConfigMap", name, namespace, data={"mesh": text})


def istio(**installed):
    return lambda fake: fake_cluster.install_istio(fake, **installed)


def remote(**installed):
    return lambda fake: istio_objects.install_remote(fake, **installed)


def all_of(*changes):
    def change(fake):
        for each in changes:
            each(fake)

    return change


def deactivate(fake):
    (configuration,) = (
        each for each in fake.objects.values() if each["kind"] == "MutatingWebhookConfiguration"
    )
    for hook in configuration["webhooks"]:
        hook["namespaceSelector"] = {"matchLabels": {"istio.io/deactivated": "never-match"}}


def excluding(fake):
    """Have no injector serve namespaces of a revision."""
    label = {"key": "istio.io/rev", "operator": "NotIn", "values": ["canary"]}
    for each in fake.objects.values():
        for hook in each.get("webhooks", ()):
            hook["namespaceSelector"]["matchExpressions"].append(label)


def requiring(fake):
    """Have the injector serve namespaces with another label alone."""
    for each in fake.objects.values():
        for hook in each.get("webhooks", ()):
            hook["namespaceSelector"]["matchExpressions"].append(
                {"key": "team", "operator": "Exists"}
            )


def without_revisions(fake):
    """Have the injector serve namespaces by `istio-injection` alone."""
    for each in fake.objects.values():
        if hooks := each.get("webhooks", ()):
            each["metadata"]["labels"] = {}
            each["webhooks"] = [one for one in hooks if not one["name"].startswith("rev.")]


def profile(fake):
    labels = {"app.kubernetes.io/part-of": "kubeflow-profile", "istio-injection": "enabled"}
    for name in ("kf-user", "kf-user-2"):
        fake.namespace(name, **labels)


def profile_that_goes(fake):
    profile(fake)
    for name in ("kf-user", "kf-user-2"):
        fake.find("Namespace", name)["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def refuse(fake):
    """Have istiod refuse a pod that it cannot inject."""
    words = (
        'admission webhook "object.sidecar-injector.istio.io" denied the request: no template x'
    )
    fake.deny("Pod", 400, words, having="mesh-probe")


MANAGED = remote(name="istiod-asm-managed", revision="asm-managed")
UNTRUSTED = 'x509: certificate signed: by an unknown (possibly because of "rsa: error" of: "ca")'
BOTH = all_of(istio(namespace="mesh-a", name="istio-sidecar-injector-istio-system"), remote())
TWICE = all_of(*(remote(name=name, url=f"https://{name}/inject") for name in ("m-a", "m-b")))
BESIDE = all_of(istio(), istio(revision="canary"))
TAG_ALONE = all_of(
    istio(revision="1-31", tags=("default",)),
    lambda fake: fake.delete("MutatingWebhookConfiguration", "istio-sidecar-injector-1-31"),
)
ONE_OF_TWO = all_of(istio(revision="1-30"), istio(revision="1-31", tags=("prod",)))


@cases(
    ("installed", "options", "name", "words"),
    default=(BESIDE, {}, "active", "istio-system/istiod 1.31 · "),
    image_by_digest=(istio(image="proxy@sha256:1"), {}, "active", "istio-system/istiod · "),
    tag_without_its_revision=(
        TAG_ALONE, {"revision": "1-31"}, "active", "istio-system/istiod-1-31 default 1.31 · ",
    ),
    no_such_revision=(
        all_of(ONE_OF_TWO, istio(namespace="mesh-a")),
        {"revision": "1-32", "istiod_namespace": "istio-system"}, "blocked",
        "revision 1-32 does not exist; there is 1-30, 1-31, prod",
    ),
    default_by_name=(BESIDE, {"revision": "default"}, "active", "istio-system/istiod 1.31 · "),
    revision=(istio(revision="canary"), {}, "active", "istio-system/istiod-canary canary 1.31 · "),
    outside=(remote(), {}, "active", f"{URL} 1.31 · "),
    several=(
        ONE_OF_TWO, {}, "blocked",
        ("several Istios; run: juju config mesh-2 revision=1-30; or choose another "
         "of 1-30 (istio-system), 1-31 (istio-system), prod (istio-system)"),
    ),
    one_outside=(
        BOTH, {}, "blocked",
        ("several Istios; run: juju config mesh-2 istiod-namespace=istio-system; "
         f"or choose another of default ({URL}), default (mesh-a)"),
    ),
    one_of_no_known_namespace=(
        all_of(istio(), remote(name="m-a")), {}, "blocked",
        ("several Istios; run: juju config mesh-2 istiod-namespace=istio-system; "
         f"or choose another of default ({URL}), default (istio-system)"),
    ),
    that_outside=(BOTH, {"istiod_namespace": "istio-system"}, "active", URL),
    that_inside=(BOTH, {"istiod_namespace": "mesh-a"}, "active", "mesh-a/istiod"),
    two_for_the_same_pods=(
        TWICE, {}, "blocked",
        ("several Istios are asked for the same pods; "
         "run: kubectl delete mutatingwebhookconfiguration m-b; or delete another of "
         "default (https://m-a/inject), default (https://m-b/inject)"),
    ),
    elsewhere=(
        BOTH, {"istiod_namespace": "elsewhere"}, "waiting",
        "waiting for an istiod in elsewhere; there is one in istio-system, mesh-a",
    ),
    option_is_no_reason_to_join_another=(
        remote(), {"istiod_namespace": "elsewhere"}, "waiting",
        "waiting for an istiod in elsewhere; there is one in istio-system",
    ),
    deactivated=(all_of(istio(), deactivate), {}, "waiting", ABSENT),
    no_revision=(all_of(remote(), without_revisions), {}, "active", f"{URL} 1.31 · "),
    excluding_a_revision=(all_of(istio(), excluding), {}, "active", "istio-system/istiod 1.31 · "),
    dead=(
        istio(alive=False, problem=UNTRUSTED), {}, "waiting",
        "istio-system/istiod does not inject: object.sidecar-injector.istio.io: by an unknown;",
    ),
    never_answers=(
        all_of(istio(), lambda fake: fake.timeouts.add(("create", "pods"))), {}, "waiting",
        "ReadTimeout",
    ),
    refuses=(
        all_of(istio(), refuse), {}, "waiting",
        'does not inject: webhook "object.sidecar-injector.istio.io" refuses: no template x',
    ),
    not_to_be_asked=(
        all_of(istio(), lambda fake: fake.forbidden.add(("create", "pods"))), {}, "blocked",
        "missing permission: create pods",
    ),
    profile_without_a_default=(
        all_of(profile, istio(revision="1-31")), {}, "blocked",
        f"{NO_DEFAULT}run: istioctl tag set default --revision 1-31",
    ),
    no_hook=(all_of(istio(), requiring), {}, "waiting", "the injector was not asked for the pod"),
    profile_beside_an_istiod_of_no_known_namespace=(
        all_of(profile, MANAGED), {}, "blocked",
        f"{NO_DEFAULT}run: istioctl tag set default --revision asm-managed;",
    ),
    profile_that_goes=(all_of(profile_that_goes, istio(revision="1-31")), {}, "active", ""),
    profile_with_a_default=(
        all_of(profile, istio(revision="1-31", tags=("default",))), {"revision": "1-31"},
        "active", "istio-system/istiod-1-31 1-31 1.31",
    ),
)  # fmt: skip
def test_status_says_which_istio_it_is_or_what_is_missing(  # noqa: PLR0917 - a table
    ctx, fake, installed, options, name, words
):
    installed(fake)
    said = status(ctx, state(**options))
    assert (said.name, words in f"{said.message};") == (name, True), said


def test_command_for_an_installation_elsewhere_names_its_namespace(ctx, fake):
    all_of(profile, istio(revision="1-31", namespace="mesh-a"))(fake)
    with pytest.raises(testing.ActionFailed):
        ctx.run(ctx.on.action("diagnose"), state())
    report = " ".join(ctx.action_results["report"].split())
    assert "istioctl tag set default --revision 1-31 --istioNamespace mesh-a" in report


def test_workload_is_told_what_the_mesh_is(ctx, fake):
    text = "rootNamespace: root\ndefaultConfig: {statusPort: 15999}\n"
    fake_cluster.install_istio(fake, revision="canary", mesh_config=text)
    fake_cluster.set_istiod(fake, "istiod-canary", revision="canary-2")
    found = heard(ctx)
    assert (found.mesh_namespace, found.mesh_revision) == ("istio-system", "canary")
    assert (found.proxy_revision, found.proxy_version) == ("canary-2", "1.31.1")
    assert found.status_port == 15999
    found = heard(ctx, mesh_mode="none")
    assert (found.joined, found.mesh_namespace) == (False, "istio-system")
    assert (found.mesh_revision, found.membership) == ("", "none")


@cases(
    "text",
    no_yaml="]",
    text="text",
    list="[5]",
    deep="[" * 1000 + "]" * 1000,
    alias="a: &a [b]\nb: *a",
    root_namespace="rootNamespace: [a]",
    port_that_is_text="defaultConfig: {statusPort: x}",
    ports="defaultConfig: {statusPort: [1]}",
    port_beyond_all="defaultConfig: {statusPort: 99999999}",
    providers="extensionProviders: [5, {name: [a]}]",
    providers_by_name="extensionProviders: {a: b}",
)
def test_mesh_configuration_that_is_none_is_as_by_default(ctx, fake, text):
    fake_cluster.install_istio(fake, mesh_config=text)
    assert heard(ctx).status_port == 15020


UNREADABLE = "a: [1"


@cases(
    ("below", "own", "want"),
    alone=("defaultConfig: {statusPort: 1}", None, 1),
    within=("defaultConfig: {statusPort: 1, x: y}", "defaultConfig: {statusPort: 2}", 2),
    beside=("defaultConfig: {statusPort: 1}", "defaultConfig: {x: y}", 1),
    of_another_shape=("defaultConfig: text", "defaultConfig: {statusPort: 2}", 2),
    unreadable=(UNREADABLE, "defaultConfig: {statusPort: 2}", 2),
)
def test_shared_settings_lie_below_those_of_the_mesh(  # noqa: PLR0917 - a table
    ctx, fake, caplog, below, own, want
):
    """The add-on of AKS has istiod merge a second ConfigMap."""
    fake_cluster.install_istio(fake, revision="asm", mesh_config=own or "{}")
    fake_cluster.set_environment(fake, "SHARED_MESH_CONFIG", "shared", "istiod-asm")
    mesh_configuration(fake, below, name="shared")
    assert heard(ctx).status_port == want
    words = "ConfigMap istio-system/shared is ignored: its mesh "
    assert (words in caplog.text) is (below == UNREADABLE)


def sidecar(namespace, mode="", **spec):
    """A Sidecar, whose policy is the mesh's where the mode is empty."""
    outbound = {"outboundTrafficPolicy": {"mode": mode}} if mode else {}
    name = "s" + "-".join([*spec, mode.lower().replace("_", "-")])
    return make("Sidecar", name, namespace, spec={**outbound, **spec})


OF_PODS = {"workloadSelector": {"labels": {"app": "x"}}}
ROOT, CLOSED, OPEN = "mesh-root", "REGISTRY_ONLY", "ALLOW_ANY"


@cases(
    ("default", "sidecars", "is_cut_off"),
    mesh=(CLOSED, [], True),
    root=(OPEN, [sidecar(ROOT, CLOSED)], True),
    model=(OPEN, [sidecar("kf", CLOSED)], True),
    nearest_wins=(CLOSED, [sidecar(ROOT, CLOSED), sidecar("kf", OPEN)], False),
    model_says_nothing=(CLOSED, [sidecar("kf")], True),
    some_pods=(OPEN, [sidecar("kf", each, **OF_PODS) for each in (OPEN, CLOSED, "")], True),
    all_but_some=(CLOSED, [sidecar("kf", OPEN, **OF_PODS)], True),
    pods_of_the_root=(OPEN, [sidecar(ROOT, CLOSED, **OF_PODS)], False),
    of_another=(OPEN, [sidecar("default", CLOSED)], False),
    of_istiod=(OPEN, [sidecar("istio-system", CLOSED)], False),
)
def test_what_proxies_let_out_is_the_nearest_sidecars_word(
    ctx, fake, default, sidecars, is_cut_off
):
    text = f"rootNamespace: {ROOT}\noutboundTrafficPolicy: {{mode: {default}}}\n"
    fake_cluster.install_istio(fake, mesh_config=text)
    for each in sidecars:
        fake.add(each)
    assert ("17070" in prepared(ctx, fake)) is is_cut_off


def test_namespace_of_istiod_is_the_root_where_no_other_is_set(ctx, fake):
    fake_cluster.install_istio(fake, namespace="mesh-a", mesh_config="rootNamespace: ''")
    fake.add(sidecar("mesh-a", CLOSED))
    assert "17070" in prepared(ctx, fake)


def test_a_tag_that_moves_is_followed(ctx, fake):
    fake_cluster.install_istio(fake, revision="1-30", tags=("prod",))
    assert "istiod-1-30 prod 1.31" in status(ctx, state(revision="prod")).message
    fake.delete("MutatingWebhookConfiguration", "istio-revision-tag-prod")
    fake_cluster.install_istio(fake, revision="1-31", tags=("prod",), image="proxyv2:1.32.0")
    assert "istiod-1-31 prod 1.32" in status(ctx, state(revision="prod")).message
    assert fake.labels("kf")["istio.io/rev"] == "prod"


@pytest.mark.parametrize("ready", [True, False])
def test_istiod_that_may_be_asked_only_in_the_model_is_judged_by_its_endpoints(ctx, fake, ready):
    fake.labels("kf")["istio.io/rev"] = "other"
    fake_cluster.install_istio(fake, revision="canary", namespace="mesh-a")
    if not ready:
        fake.labels("mesh-a")["istio-injection"] = "disabled"
    fake.forbidden.add(("create", "pods", "mesh-a" if ready else "default"))
    labels = {"kubernetes.io/service-name": "istiod-canary"}
    others = {"kubernetes.io/service-name": "istiod"}
    up = [{"conditions": {"ready": True}}]
    fake.put("EndpointSlice", "other-x", "mesh-a", labels=others, endpoints=up)
    for name, each in (("istiod-x", ready), ("istiod-y", False)):
        listed = [{"conditions": {"ready": False}}, {"conditions": {"ready": each}}]
        fake.put("EndpointSlice", name, "mesh-a", labels=labels, endpoints=listed)
    fake.put("EndpointSlice", "istiod-x", "kf", labels=labels, endpoints=up)
    ctx.run(ctx.on.config_changed(), state())
    name, trust = "mesh-a/istiod-canary canary", "run: juju trust mesh-2 --scope=cluster"
    words = f"{trust}; {name} can't be asked while kf has other labels"
    assert (status(ctx, state(mesh_mode="none")).message == words) is not ready


def test_member_by_another_name_of_the_revision_is_probed_in_the_model(ctx, fake):
    fake.labels("kf")["istio.io/rev"] = "1-31"
    fake_cluster.install_istio(fake, revision="1-31", tags=("prod",))
    fake.forbidden.add(("create", "pods", "istio-system"))
    assert heard(ctx, revision="prod").proxy_version == "1.31.1"


BY_DEFAULT, CLASSIC = {"native_by_default": True}, {"native": False}
UNKNOWN = "not every node tells its kubelet's version"
JOBS, NATIVE = "classic sidecars, native in Jobs", "native sidecars"
NEW, OLD = ["v1.36.3"], ["v1.28.9"]


@cases(
    ("behaviour", "kubelets", "mode", "words"),
    auto_on_1_33=({}, ["v1.33.0"], "auto", JOBS),
    auto_with_an_older_node=({}, ["v1.33.0", "v1.32.9"], "auto", "· classic sidecars ·"),
    auto_on_a_version_of_a_provider=({}, ["v1.33.4-eks-1"], "auto", JOBS),
    auto_on_no_version=({}, ["unknown"], "auto", "· classic sidecars ·"),
    auto_without_nodes=({}, [], "auto", "· classic sidecars ·"),
    auto_by_default_on_an_old_node=(BY_DEFAULT, ["v1.28.0"], "auto", f"· {NATIVE} ·"),
    auto_but_not_injected=(CLASSIC, NEW, "auto", "· classic sidecars ·"),
    native_on_1_29=({}, ["v1.29.1"], "native", JOBS),
    native_on_1_28=({}, OLD, "native", "a node's kubelet 1.28 has none"),
    native_by_default_on_1_28=(BY_DEFAULT, OLD, "native", "a node's kubelet 1.28 has none"),
    native_on_no_version=({}, ["v1.36.3", ""], "native", UNKNOWN),
    native_without_nodes=({}, [], "native", UNKNOWN),
    native_but_not_injected=(CLASSIC, NEW, "native", "istiod injects classic sidecars"),
    classic=({}, NEW, "classic", "· classic sidecars ·"),
    classic_by_default_native=(BY_DEFAULT, NEW, "classic", f"· {NATIVE} ·"),
)
def test_jobs_get_native_sidecars_where_injector_kubelets_and_option_agree(  # noqa: PLR0917 - a table
    ctx, fake, behaviour, kubelets, mode, words
):
    fake_cluster.install_istio(fake, **behaviour)
    fake.delete("Node", "node")
    for number, kubelet in enumerate(kubelets):
        fake.node(f"node-{number}", kubelet)
    said = status(ctx, state(job_sidecars=mode))
    assert words in said.message
    assert said.name == ("active" if "sidecars" in words and "istiod" not in words else "blocked")


@pytest.mark.parametrize(
    ("name", "revision", "tag", "want"),
    [
        ("istio-sidecar-injector", "", "", "istio-system"),
        ("istio-sidecar-injector-external-istiod", "", "", "external-istiod"),
        ("istio-sidecar-injector-1-31", "1-31", "", "istio-system"),
        ("istio-sidecar-injector-1-31-external-istiod", "1-31", "", "external-istiod"),
        ("istio-revision-tag-prod", "1-31", "prod", "istio-system"),
        ("istio-revision-tag-prod-external-istiod", "1-31", "prod", "external-istiod"),
        ("istiod-asm-managed", "asm-managed", "", ""),
        ("istio-sidecar-injectors", "", "", ""),
    ],
)
def test_namespace_of_a_remote_installation_is_in_its_configurations_name(  # noqa: PLR0917 - a table
    ctx, fake, name, revision, tag, want
):
    istio_objects.install_remote(fake, name=name, revision=revision, tag=tag)
    assert heard(ctx).mesh_namespace == want


def test_option_tells_the_namespace_that_a_configuration_does_not(ctx, fake):
    MANAGED(fake)
    text = "defaultConfig: {statusPort: 15098}"
    mesh_configuration(fake, text, namespace="managed", name="istio-asm-managed")
    fake.add(sidecar("default", CLOSED))
    assert "17070" not in prepared(ctx, fake)
    unknown, known = heard(ctx), heard(ctx, istiod_namespace="managed")
    assert (unknown.mesh_namespace, unknown.status_port) == ("", 15020)
    assert (known.mesh_namespace, known.status_port) == ("managed", 15098)
    ours = fake.find("MutatingWebhookConfiguration", "0-istio-integrator.kf.mesh-2")
    assert '"managed"' in json.dumps(ours)


def test_what_a_charmed_istio_says_is_not_believed_of_another(ctx, fake):
    MANAGED(fake)
    hint = {"root_namespace": "istio-k8s"}
    relation = testing.Relation("istio-metadata", remote_app_data=hint)
    said = status(ctx, dataclasses.replace(state(), relations={relation}))
    assert f"waiting for an istiod in istio-k8s; there is one in {URL}" in said.message
    fake_cluster.install_istio(fake)
    given = dataclasses.replace(state(istiod_namespace="istio-system"), relations={relation})
    assert status(ctx, given).message.startswith("istio-system/istiod 1.31")


def test_hold_that_our_own_admission_gave_the_dry_run_pod_is_not_the_meshs(ctx, fake):
    istio_objects.install_remote(fake, proxy_config={"holdApplicationUntilProxyStarts": True})
    config = {"proxy.istio.io/config": '{"holdApplicationUntilProxyStarts": true}'}
    prepare = fake._prepare
    assert '"mesh-holds": true' in prepared(ctx, fake)
    next(iter(fake.remote.values()))["alive"] = False
    assert '"mesh-holds": true' in prepared(ctx, fake)
    istio_objects.install_remote(fake)

    def hold(pod):
        prepare(pod)
        pod["metadata"].setdefault("annotations", {}).update(config)

    fake._prepare = hold
    assert '"mesh-holds": false' in prepared(ctx, fake)


@cases(
    ("config", "host", "port"),
    named=({"discoveryAddress": "198.51.100.7:15013"}, "198.51.100.7", "15013"),
    by_default=({}, "istiod.istio-system.svc", "15012"),
)
def test_relations_are_told_of_an_istiod_outside_the_cluster_what_is_known(
    ctx, fake, config, host, port
):
    istio_objects.install_remote(fake, proxy_config=config)
    pilot = testing.Relation("istio-pilot", remote_app_name="gateway")
    given = dataclasses.replace(state(), relations={pilot})

    out = ctx.run(ctx.on.config_changed(), given)

    data = yaml.safe_load(out.get_relation(pilot.id).local_app_data["data"])
    assert data == {"service-name": host, "service-port": port}
    for one in fake.remote.values():
        one["alive"] = False
    later = ctx.run(ctx.on.update_status(), out).get_relation(pilot.id).local_app_data
    assert yaml.safe_load(later["data"]) == data


def test_model_stays_joined_while_an_istiod_outside_the_cluster_is_away(ctx, fake, tmp_path):
    istio_objects.install_remote(fake, proxy_config={"statusPort": 15099})
    before = ctx.run(ctx.on.config_changed(), state(workload(files=tmp_path)))
    was = joins(ctx, before)
    assert told(ctx, before).status_port == 15099
    (istiod,) = fake.remote.values()
    istiod["alive"] = False

    out = ctx.run(ctx.on.update_status(), before)

    assert joins(ctx, out) == was
    assert told(ctx, out).status_port == 15099
    assert out.unit_status.name == "waiting"
    assert "new pods are refused: namespace.sidecar-injector" in out.unit_status.message
    mesh_configuration(fake, "defaultConfig: {statusPort: 15098}")
    out = ctx.run(ctx.on.update_status(), out)
    assert told(ctx, out).status_port == 15098
    fake.delete("ConfigMap", "istio", "istio-system")
    istiod["alive"] = True
    out = ctx.run(ctx.on.update_status(), out)
    assert (out.unit_status, told(ctx, out).status_port) == (before.unit_status, 15099)
    requiring(fake)
    out = ctx.run(ctx.on.update_status(), out)
    assert "does not inject: the injector was not asked for the pod" in out.unit_status.message
    fake.delete("MutatingWebhookConfiguration", "istio-sidecar-injector")
    assert told(ctx, ctx.run(ctx.on.update_status(), out)).status_port == 15099
