"""How the model's namespace joins a mesh and leaves it, and what is left of it afterwards."""

import json

import pytest
from ops import testing

from integrator_contract import names
from tests.unit.cases import cases
from tests.unit.charm import ambient_objects, fake_cluster
from tests.unit.charm.ambient_objects import install_ambient
from tests.unit.charm.charm_world import OWN_POD, context, state, told

MODE = "istio.io/dataplane-mode"
AMBIENT, OUT = {MODE: "ambient"}, {MODE: "none"}
ENABLED, DISABLED = {"istio-injection": "enabled"}, {"istio-injection": "disabled"}
OTHER, CANARY = {"istio.io/rev": "other"}, {"istio.io/rev": "canary"}
IN_AMBIENT, IN_SIDECARS = {"mesh_mode": "ambient"}, {"mesh_mode": "sidecar"}
OFF, SELECTED = {"mesh_mode": "none"}, {"included_pods": "a=b"}
MODELOPERATOR = {"operator.juju.is/name": "modeloperator"}


@pytest.fixture
def fake(fake):
    """A cluster with an Istio that has ambient mode, too."""
    fake_cluster.install_istio(fake)
    install_ambient(fake)
    return fake


def mesh_labels(fake):
    return {key: value for key, value in fake.labels("kf").items() if "istio" in key}


def record(fake):
    annotations = fake.find("Namespace", "kf")["metadata"].get("annotations", {})
    return json.loads(annotations[names.MEMBERSHIP]) if names.MEMBERSHIP in annotations else None


def run(ctx, *, leader=True, **options):
    return ctx.run(ctx.on.config_changed(), state(leader=leader, **options))


def remove(ctx):
    ctx.run(ctx.on.remove(), state(units=0))


def labels(changes):
    """Return a change by which another client labels the namespace."""
    return lambda fake: fake.labels("kf").update(changes)


def unlabel(fake):
    del fake.labels("kf")["istio-injection"]


def kill(fake):
    fake_cluster.set_istiod(fake, alive=False)


def lose_ztunnel(fake):
    fake.delete("DaemonSet", "ztunnel", "istio-system")


def hide_daemons(fake):
    fake.forbidden.add(("list", "daemonsets"))


def serve(selectors):
    """Return a change by which istiod serves some namespaces alone."""
    settings = {"mesh": f"discoverySelectors: {selectors}"}
    return lambda fake: fake.find("ConfigMap", "istio", "istio-system").update(data=settings)


ignore_model = serve("[{matchLabels: {team: ml}}]")


def install_canary(fake):
    fake_cluster.install_istio(fake, revision="canary")


@cases(
    ("before", "steps", "after", "plane", "words"),
    joins=({}, [{}], ENABLED, "sidecar", "istiod"),
    joins_ambient=({}, [IN_AMBIENT], AMBIENT, "ambient", "ambient mode"),
    stays_in_ambient=({}, [IN_AMBIENT, {}], AMBIENT, "ambient", "ambient mode"),
    comes_back=({}, [IN_SIDECARS, IN_AMBIENT, {}, IN_SIDECARS], ENABLED, "sidecar", ""),
    follows_the_revision=({}, [{}, install_canary, {"revision": "canary"}], CANARY, "sidecar", ""),
    comes_again=({}, [{}, unlabel, {}], ENABLED, "sidecar", ""),
    waits_outside=({}, [kill, {}], {}, None, "does not inject"),
    stays_without_istiod=({}, [{}, kill, {}], ENABLED, "sidecar", "does not inject"),
    stays_without_istio=(
        {}, [{}, fake_cluster.uninstall_istio, {}], ENABLED, None, "no sidecar injector",
    ),
    labelled=(ENABLED, [{}], ENABLED, "sidecar", ""),
    labelled_ambient=(AMBIENT, [{}], AMBIENT, "ambient", "ambient mode"),
    labelled_ambient_later=({}, [{}, labels(AMBIENT), {}], AMBIENT, "ambient", "ambient mode"),
    labelled_ambient_later_and_back=(
        {}, [{}, labels(AMBIENT), {}, IN_SIDECARS], ENABLED, "sidecar", "",
    ),
    switched_off_in_ambient=(DISABLED, [IN_AMBIENT], {**AMBIENT, **DISABLED}, "ambient", ""),
    selected=({}, [{}, SELECTED], {}, "sidecar", ""),
    selected_after_ambient=({}, [IN_AMBIENT, SELECTED, SELECTED], {}, "sidecar", ""),
    selected_in_ambient=({}, [{**IN_AMBIENT, **SELECTED}], {}, "ambient", ""),
    selected_while_ignored=({}, [{}, ignore_model, SELECTED], ENABLED, None, "team=ml"),
    selected_while_the_label_is_needed=(
        {}, [serve("[{matchLabels: {istio-injection: enabled}}]"), SELECTED], {}, None,
        "leave this namespace out",
    ),
    off=({}, [{}, OFF], {}, None, ""),
    off_after_ambient=({}, [IN_AMBIENT, OFF], {}, None, ""),
    waits_for_istiod=({}, [{}, kill, IN_AMBIENT], ENABLED, None, "does not inject"),
    ambient_of_others=(
        AMBIENT, [IN_SIDECARS], AMBIENT, None,
        f"namespace kf is in ambient mode; run: kubectl label ns kf {MODE}-;",
    ),
    off_in_ambient_of_others=(AMBIENT, [OFF], AMBIENT, None, "ambient mode"),
    in_ambient_while_daemons_are_hidden=(
        {}, [IN_AMBIENT, hide_daemons, {}], AMBIENT, "ambient", "ambient mode",
    ),
    sidecars_of_others=(
        ENABLED, [IN_AMBIENT], ENABLED, None, f"kf istio-injection-; this charm would set {MODE}=",
    ),
    revision_of_another_istiod=(CANARY, [install_canary, {}], CANARY, None, "kf istio.io/rev-"),
    revision_of_others=(
        OTHER, [{}], OTHER, None,
        "rev-; or set revision to match; this charm would set istio-injection=enabled",
    ),
    labels_of_others=(
        {**OTHER, **ENABLED}, [install_canary, {"revision": "canary"}], {**ENABLED, **OTHER}, None,
        "namespace kf has istio-injection=enabled and istio.io/rev=other;",
    ),
    opted_out=(
        {**OUT, **OTHER}, [IN_AMBIENT], {**OUT, **OTHER}, None,
        f"kf opts out of ambient; run: kubectl label ns kf {MODE}-; or set mesh-mode=sidecar; it",
    ),
    disabled=(
        DISABLED, [{}], DISABLED, None,
        "namespace kf has istio-injection=disabled; run: kubectl label ns kf istio-injection-;",
    ),
    disabled_later=({}, [{}, labels(DISABLED), {}], DISABLED, None, "istio-injection=disabled"),
    selected_of_all=(
        ENABLED, [{}, SELECTED], ENABLED, None,
        "kf has istio-injection=enabled; run: kubectl label ns kf istio-injection-; or unset incl",
    ),
    selected_of_all_while_ignored=(
        ENABLED, [ignore_model, SELECTED], ENABLED, None, "or unset included-pods",
    ),
    selected_of_a_revision=(OTHER, [SELECTED], OTHER, None, "label ns kf istio.io/rev-"),
    selected_of_none=(DISABLED, [SELECTED], DISABLED, None, "istio-injection=disabled"),
    selected_of_ambient=(AMBIENT, [SELECTED], AMBIENT, None, "included-pods"),
    no_ztunnel=({}, [lose_ztunnel, IN_AMBIENT], {}, None, "the cluster has no ztunnel"),
    no_ztunnel_while_ignored=(
        {}, [lose_ztunnel, ignore_model, IN_AMBIENT], {}, None, "the cluster has no ztunnel",
    ),
    of_others_without_ztunnel=(OTHER, [lose_ztunnel, IN_AMBIENT], OTHER, None, "no ztunnel"),
    member_without_ztunnel=({}, [{}, lose_ztunnel, IN_AMBIENT], ENABLED, "sidecar", "no ztunnel"),
    ztunnel_went=(
        {}, [IN_AMBIENT, lose_ztunnel, {}], AMBIENT, "ambient",
        ("juju config mesh-2 mesh-mode=sidecar; namespace kf needs ambient mode, and the cluster "
         "has no ztunnel; or install Istio with profile=ambient (mesh-mode=auto)"),
    ),
    ztunnel_was_never_there=(AMBIENT, [lose_ztunnel, {}], AMBIENT, "ambient", "no ztunnel"),
    ztunnel_is_not_seen=({}, [{}, hide_daemons, IN_AMBIENT], ENABLED, "sidecar", "juju trust"),
)  # fmt: skip
def test_namespace_becomes_and_is_given_back_as_it_was(  # noqa: PLR0917 - a table
    ctx, fake, before, steps, after, plane, words
):
    fake.labels("kf").update(before)
    by_hand = dict(before)
    for step in steps:
        if callable(step):
            was = mesh_labels(fake)
            step(fake)
            by_hand |= {k: v for k, v in mesh_labels(fake).items() if was.get(k) != v}
        else:
            out = run(ctx, **step)
    assert words in out.unit_status.message
    assert mesh_labels(fake) == after
    heard = told(ctx, out)
    assert heard.joined is (plane is not None)
    assert heard.joined or "pods in mesh" not in out.unit_status.message
    assert plane is None or heard.data_plane == plane
    fake.writes.clear()
    run(ctx, **step)
    assert "patch namespaces kf" not in fake.writes
    remove(ctx)
    assert mesh_labels(fake) == by_hand
    assert record(fake) is None


def test_namespace_remembers_what_was_there(ctx, fake):
    fake.labels("kf")["team"] = "ml"
    run(ctx)
    before = {"istio-injection": None}
    assert record(fake) == {"owner": "kf.mesh-2", "set": ENABLED, "before": before}
    unlabel(fake)
    run(ctx)
    assert mesh_labels(fake) == ENABLED
    run(ctx, **IN_AMBIENT)
    found = record(fake)
    assert (found["set"], found["before"]) == (AMBIENT, {MODE: None})
    assert len(found["restored"]) == 1
    run(ctx, **OFF)
    assert record(fake) == {"owner": "kf.mesh-2", "set": {}, "before": {}}


def test_record_that_can_not_be_read_counts_as_none(ctx, fake):
    fake.find("Namespace", "kf")["metadata"]["annotations"] = {names.MEMBERSHIP: "["}
    run(ctx)
    assert mesh_labels(fake) == ENABLED
    # Other labels than those of the mesh stay, even if the record has them.
    forged = {"owner": "kf.mesh-2", "set": {"team": "ml"}, "before": {"team": None}}
    found = fake.namespace("kf", team="ml")["metadata"]
    found["annotations"] = {names.MEMBERSHIP: json.dumps(forged)}
    run(ctx, **OFF)
    assert fake.labels("kf")["team"] == "ml"


def test_follower_and_charm_without_the_right_write_nothing(ctx, fake):
    run(ctx, leader=False)
    assert mesh_labels(fake) == {}
    fake.forbidden.add(("patch", "namespaces"))
    out = run(ctx)
    assert "patch namespaces" in out.unit_status.message
    assert mesh_labels(fake) == {}


def test_model_of_a_controller_is_never_joined(ctx, fake):
    fake.labels("kf")[names.CONTROLLER_MODEL] = "x"
    words = "a controller model never joins a mesh: deploy into another model"
    assert run(ctx).unit_status == testing.BlockedStatus(words)
    assert (mesh_labels(fake), record(fake)) == ({}, None)


def test_removal_where_the_namespace_is_gone_is_done(ctx, fake):
    run(ctx)
    fake.delete("Namespace", "kf")
    remove(ctx)
    assert not [each for each in fake.objects.values() if fake_cluster.is_charms(each)]


def test_label_that_another_writes_in_between_is_not_overwritten(ctx, fake):
    run(ctx, **OFF)
    fake.interference.append(lambda: fake.namespace("kf", istio__injection="disabled"))
    out = run(ctx)
    assert "istio-injection=disabled" in out.unit_status.message
    assert mesh_labels(fake) == DISABLED


@pytest.fixture
def second():
    """Another application of the charm in the same model."""
    return context("mesh")


@pytest.mark.parametrize("options", [{}, SELECTED, OFF], ids=["joins", "selects", "is-off"])
@pytest.mark.parametrize("before", [{}, ENABLED], ids=["", "labelled"])
def test_first_integrator_serves_the_model_whatever_it_does_there(
    ctx, second, fake, options, before
):
    fake.application()
    fake.labels("kf").update(before)
    run(ctx, **options)
    fake.writes.clear()
    out = run(second)
    assert out.unit_status == testing.BlockedStatus(
        "kf.mesh-2 manages namespace kf; "
        "run: juju remove-application mesh; or remove the other integrator"
    )
    assert not out.get_container("lifecycle").plan.services
    assert fake.writes == []
    remove(second)
    assert record(fake)["owner"] == "kf.mesh-2"
    remove(ctx)
    assert mesh_labels(fake) == before
    assert record(fake) is None


@pytest.mark.parametrize("options", [{}, OFF], ids=["joins", "is-off"])
def test_record_of_an_application_that_is_no_more_is_inherited(ctx, second, fake, options):
    run(ctx)
    run(second, leader=False)
    assert record(fake)["owner"] == "kf.mesh-2"
    run(second, **options)
    assert record(fake)["owner"] == "kf.mesh"
    assert mesh_labels(fake) == ({} if options else ENABLED)
    remove(second)
    assert mesh_labels(fake) == {}
    assert record(fake) is None


def expression(operator, values=""):
    return f"[{{matchExpressions: [{{key: tier, operator: {operator}, values: [{values}]}}]}}]"


TIERS = {"tier": "x"}


@cases(
    ("before", "selectors", "label"),
    all=({}, "[{}]", ""),
    another_label=({}, "[{matchLabels: {team: ml}}]", "team=ml"),
    labels=({"a": "x"}, "[{matchLabels: {a: b, team: ml}}]", "a=b team=ml"),
    one_of_several=(
        {},
        "[{matchLabels: {team: ml}}, {matchLabels: {istio-injection: enabled}}]",
        "",
    ),
    first_of_several=({}, "[{matchLabels: {team: ml}}, {matchLabels: {b: c}}]", "team=ml"),
    the_label_that_joins=({}, "[{matchLabels: {istio-injection: enabled}}]", ""),
    among=(TIERS, expression("In", "w, x"), ""),
    not_among=({}, expression("In", "x, y"), "tier=x"),
    absent=({}, expression("Exists"), "tier=true"),
    present=(TIERS, expression("DoesNotExist"), "tier-"),
    excluded=(TIERS, expression("NotIn", "x"), "tier-"),
    not_excluded=({}, expression("NotIn", "x"), ""),
)
def test_model_that_istiod_does_not_serve_is_not_labelled(ctx, fake, before, selectors, label):
    fake.labels("kf").update(before)
    serve(selectors)(fake)
    out = run(ctx)
    assert mesh_labels(fake) == ({} if label else ENABLED)
    if label:
        assert f"kubectl label namespace kf {label}" in out.unit_status.message
        assert "ignores" not in run(ctx, **OFF).unit_status.message
        fake.labels("kf").pop("tier", "")
        fake.labels("kf").update(
            each.split("=") for each in label.split() if not each.endswith("-")
        )
        run(ctx)
        assert mesh_labels(fake) == ENABLED


def daemon(name, **status):
    return lambda fake: next(
        obj for obj in fake.objects.values() if obj["metadata"]["name"] == name
    ).update(status=status)


def has_environment(**variable):
    def change(fake):
        spec = fake.find("Deployment", "istiod", "istio-system")["spec"]["template"]["spec"]
        spec["containers"][0]["env"] = [{"name": "PILOT_ENABLE_AMBIENT", **variable}]

    return change


NONE = {"desiredNumberScheduled": 2, "numberReady": 0}
NO_NODES = {"desiredNumberScheduled": 0, "numberReady": 0}


@cases(
    ("change", "words"),
    no_node_agent=(
        lambda fake: fake.delete("DaemonSet", "istio-cni-node", "kube-system"),
        "has no Istio's node agent istio-cni-node",
    ),
    none_ready=(daemon("ztunnel", **NONE), "no pod of ztunnel is ready"),
    one_of_two_ready=(
        lambda fake: fake.add(ambient_objects.daemon("z", {"app": "ztunnel"}, ready=0)), "",
    ),
    some_ready=(daemon("ztunnel", desiredNumberScheduled=2, numberReady=1), ""),
    no_nodes=(daemon("ztunnel", **NO_NODES), ""),
    istiod_has_it_not=(has_environment(name="x"), "istiod has no PILOT_ENABLE_AMBIENT=true"),
    istiod_has_it_as_go_takes_it=(has_environment(value="1"), ""),
    istiod_has_it_from_elsewhere=(has_environment(valueFrom={}), ""),
    istiod_is_not_seen=(
        lambda fake: fake.delete("Deployment", "istiod", "istio-system"), "",
    ),
)  # fmt: skip
def test_what_ambient_mode_lacks_is_named(ctx, fake, change, words):
    change(fake)
    out = run(ctx, **IN_AMBIENT)
    assert words in out.unit_status.message
    assert mesh_labels(fake) == ({} if words else AMBIENT)


def add_pod(fake, name, **marks):
    fake.put("Pod", name, labels=marks, spec={})


def pod_labels(fake, name):
    return fake.find("Pod", name, "kf")["metadata"]["labels"]


def test_running_pods_stay_outside_before_the_namespace_joins_ambient_mode(ctx, fake):
    add_pod(fake, "modeloperator-x", **MODELOPERATOR)
    add_pod(fake, "theirs", **OUT)
    add_pod(fake, "inside", **MODELOPERATOR, **AMBIENT)
    add_pod(fake, "minio-0", app="minio")
    add_pod(fake, "kfp-0", app="kfp")
    add_pod(fake, "kfp-1", app="kfp", **AMBIENT)
    add_pod(fake, "bare")
    for phase in ("Succeeded", "Failed"):
        fake.put("Pod", phase.lower(), labels=MODELOPERATOR, spec={}, status={"phase": phase})
    fake.may_change = {f"pods kf {name}" for name in ("modeloperator-x", "minio-0", "bare")}
    options = {**IN_AMBIENT, "excluded_pods": "app notin (kfp)"}
    run(ctx, **OFF)
    fake.writes.clear()
    run(ctx, **options)
    patched = [each.split()[-1] for each in fake.writes if each.startswith("patch")]
    outside = {"minio-0", "modeloperator-x", "mesh-2-0", OWN_POD, "bare"}
    assert set(patched[: patched.index("kf")]) >= outside
    assert pod_labels(fake, "minio-0") == {"app": "minio", **OUT}
    assert pod_labels(fake, "kfp-0") == {"app": "kfp"}
    assert pod_labels(fake, "inside") == {**MODELOPERATOR, **AMBIENT}
    fake.writes.clear()
    run(ctx, **options)
    assert not [each for each in fake.writes if "pods" in each]
    # Another tool took the label off a pod, or changed it; another integrator labelled one.
    note = {**fake.find("Pod", "minio-0", "kf")["metadata"]["annotations"]}
    other = {key: text.replace("mesh-2", "mesh") for key, text in note.items()}
    for name, notes in {"kfp-0": note, "kfp-1": note, "theirs": other}.items():
        fake.find("Pod", name, "kf")["metadata"]["annotations"] = notes
    run(ctx, **IN_AMBIENT)
    assert (pod_labels(fake, "minio-0"), pod_labels(fake, "bare")) == ({"app": "minio"}, {})
    assert pod_labels(fake, "modeloperator-x") == {**MODELOPERATOR, **OUT}
    remove(ctx)
    assert pod_labels(fake, "modeloperator-x") == MODELOPERATOR
    assert pod_labels(fake, "theirs") == OUT
    assert pod_labels(fake, "kfp-1") == {"app": "kfp", **AMBIENT}
    found = [each["metadata"] for each in fake.objects.values()]
    noted = [each["name"] for each in found if names.MEMBERSHIP in (each.get("annotations") or ())]
    assert noted == ["theirs", "kfp-0", "kfp-1"]


@pytest.mark.parametrize("options", [IN_SIDECARS, SELECTED, OFF], ids=["sidecars", "some", "none"])
def test_pods_that_could_not_be_given_back_are_given_back_later(ctx, fake, options):
    add_pod(fake, "modeloperator-x", **MODELOPERATOR)
    fake.may_change = {"pods kf modeloperator-x"}
    run(ctx, **IN_AMBIENT)
    fake.forbidden.add(("patch", "pods"))
    run(ctx, **options)
    assert MODE not in mesh_labels(fake)
    assert pod_labels(fake, "modeloperator-x") == {**MODELOPERATOR, **OUT}
    fake.forbidden.clear()
    run(ctx, **options)
    assert pod_labels(fake, "modeloperator-x") == MODELOPERATOR
    # The namespace leaves first.
    run(ctx, **IN_AMBIENT)
    fake.writes.clear()
    run(ctx, **options)
    patched = [each for each in fake.writes if each.startswith("patch")]
    assert patched.index("patch namespaces kf") < patched.index("patch pods modeloperator-x")


def test_pod_that_can_not_be_labelled_keeps_no_other_from_it(ctx, fake):
    add_pod(fake, "modeloperator-x", **MODELOPERATOR)
    fake.broken["patch", "pods", "modeloperator-x"] = 422
    run(ctx, **IN_AMBIENT)
    assert pod_labels(fake, OWN_POD).items() >= OUT.items()
    assert mesh_labels(fake) == AMBIENT


def test_missing_right_to_label_pods_keeps_the_model_from_ambient_mode(ctx, fake):
    add_pod(fake, "modeloperator-x", **MODELOPERATOR)
    fake.forbidden.add(("patch", "pods"))
    out = run(ctx, **IN_AMBIENT)
    assert "patch pods" in out.unit_status.message
    assert mesh_labels(fake) == {}


@cases(
    ("options", "key", "seconds", "is_named"),
    label=({}, "istio-injection", 1799, True),
    ambient=(IN_AMBIENT, MODE, 1700, True),
    rarely=({}, "istio-injection", 1800, False),
)
def test_tool_that_removes_the_label_again_and_again_is_named(  # noqa: PLR0917 - a table
    ctx, fake, monkeypatch, options, key, seconds, is_named
):
    clock, named = [1_800_000_000.0], []
    monkeypatch.setattr("time.time", lambda: clock[0])
    run(ctx, **options)
    for _ in range(4):
        del fake.labels("kf")[key]
        clock[0] += seconds
        run(ctx, **options)
        fake.writes.clear()
        out = run(ctx, **options)
        assert key in mesh_labels(fake)
        assert fake.writes == []
        named.append("removes" in out.unit_status.message)
    assert named == [False, False, is_named, is_named]
    if is_named:
        assert out.unit_status.name == "blocked"
        said = f"another tool removes {key}="
        assert said in out.unit_status.message[:100]
        assert "run: " in out.unit_status.message[:100]
    clock[0] += 3600
    out = run(ctx, **options)
    assert out.unit_status.name == "active"
    remove(ctx)
    assert (mesh_labels(fake), record(fake)) == ({}, None)
