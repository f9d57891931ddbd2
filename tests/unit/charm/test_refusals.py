"""Statuses for requests that other teams' webhooks, policies and quotas reject."""

import json
import re

import pytest
from ops import testing

from istio_integrator import messages
from tests.unit.cases import cases
from tests.unit.charm import charm_world, fake_cluster
from tests.unit.charm.charm_world import state, status
from tests.unit.charm.diagnosis.world import diagnose, diagnose_ingress
from tests.unit.charm.ingress_world import auth, route

PROXY = "registry.example/istio/proxyv2:1.31.1"


def policy(kind, name, words, is_refused):
    """A ValidatingAdmissionPolicy of another team."""

    def validate(obj):
        if obj["kind"] != kind or not is_refused(obj):
            return None
        return 403, (
            f'{kind.lower()}s "{obj["metadata"]["name"]}" is forbidden: '
            f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {words}"
        )

    return validate


def allowed_registries(*allowed):
    def is_refused(pod):
        spec = pod["spec"]
        containers = [*spec["containers"], *spec.get("initContainers", [])]
        return not all(each.get("image", PROXY).startswith(allowed) for each in containers)

    return policy("Pod", "allowed-registries", "an image is not allowed", is_refused)


def forbids(*keys):
    """A policy that forbids annotations of pods."""
    words = "annotations of Istio are not allowed on pods"
    return policy(
        "Pod",
        "no-istio-overrides",
        words,
        lambda pod: not set(keys).isdisjoint(pod["metadata"].get("annotations", {})),
    )


def no_bare_pods(obj):
    if obj["kind"] != "Pod" or obj["metadata"].get("ownerReferences"):
        return None
    return 400, 'admission webhook "validate.kyverno.svc-fail" denied the request: bare pod'


def no_fixed_user(obj):
    spec = obj.get("spec", {})
    if obj["kind"] != "Pod" or "runAsUser" not in spec.get("securityContext", {}):
        return None
    words = "unable to validate against any security context constraint: must be in the ranges"
    return 403, f'pods "a" is forbidden: {words}'


@cases(
    "validator",
    registries=allowed_registries("registry.example/"),
    bare_pods=no_bare_pods,
    openshift=no_fixed_user,
    hold=forbids("proxy.istio.io/config"),
    both=forbids("proxy.istio.io/config", "sidecar.istio.io/nativeSidecar"),
)
def test_model_joins_although_a_policy_is_strict_about_pods(ctx, fake, validator):
    fake_cluster.install_istio(fake, image=PROXY)
    fake.validators.append(validator)
    shown = status(ctx, state())
    assert isinstance(shown, testing.ActiveStatus)
    assert "sidecars, native in Jobs" in shown.message
    assert fake.labels("kf")["istio-injection"] == "enabled"


def test_native_sidecars_that_a_policy_forbids_are_said_to_be_refused_by_it(ctx, fake):
    fake_cluster.install_istio(fake)
    fake.validators.append(forbids("sidecar.istio.io/nativeSidecar"))
    assert status(ctx, state(job_sidecars="native")) == testing.BlockedStatus(
        "job-sidecars=native, but ValidatingAdmissionPolicy no-istio-overrides refuses pods that "
        "ask for one"
    )


QUOTA = 'pods "a" is forbidden: exceeded quota: team, requested: pods=1, used: pods=4'
IN_OUR_WORDS = 'admission webhook "a.b" denied the request: cannot use this resource of ours'


@pytest.mark.parametrize("joined", [False, True], ids=["outside", "member"])
@cases(
    ("validator", "author", "command", "words"),
    policy=(
        allowed_registries("other/"),
        "ValidatingAdmissionPolicy allowed-registries",
        "juju run mesh-2/leader diagnose",
        "an image is not allowed",
    ),
    quota=(
        lambda obj: (403, QUOTA) if obj["kind"] == "Pod" else None,
        "ResourceQuota team",
        "kubectl describe namespace kf;",
        "requested: pods=1",
    ),
    webhook_in_the_authorizers_words=(
        lambda obj: (400, IN_OUR_WORDS) if obj["kind"] == "Pod" else None,
        'webhook "a.b"',
        "juju run mesh-2/leader diagnose",
        "cannot use this resource",
    ),
)
def test_refusal_of_the_dry_run_pod_is_no_answer_about_istiod(  # noqa: PLR0917 - a table
    ctx, fake, validator, author, command, words, joined
):
    fake_cluster.install_istio(fake)
    if joined:
        status(ctx, state())
    fake.validators.append(validator)
    shown = status(ctx, state())
    assert isinstance(shown, testing.BlockedStatus)
    visible = shown.message[: messages.VISIBLE]
    assert author in visible
    assert f"run: {command}" in visible
    assert words in shown.message
    assert "not known whether istio-system/istiod injects" in shown.message
    assert "new pods are refused" not in shown.message
    assert ("istio-injection" in fake.labels("kf")) is joined


AWAY = 'failed calling webhook "check.opa.sh": failed to call webhook: connection refused'
OWN = 'admission webhook "namespace.sidecar-injector.istio.io" denied the request: no template'


@cases(
    ("code", "message", "words", "is_of_istiod"),
    another_team_s_is_away=(
        *(500, f"Internal error occurred: {AWAY}"),
        *('webhook "check.opa.sh" does not answer', False),
    ),
    istiod_s_own_refuses=(400, OWN, "does not inject", True),
)
def test_only_the_answer_of_istiods_own_webhook_is_istiods(  # noqa: PLR0917 - a table
    ctx, fake, code, message, words, is_of_istiod
):
    fake_cluster.install_istio(fake)
    fake.deny("Pod", code, message)
    shown = status(ctx, state())
    assert isinstance(shown, testing.WaitingStatus)
    assert words in shown.message[: messages.VISIBLE]
    assert ("does not inject" in shown.message) is is_of_istiod
    (row,) = diagnose(ctx, "istiod")
    said = ("broken", "ISTIOD_AWAY") if is_of_istiod else ("doubtful", "WEBHOOK_SILENT")
    assert (row.level, row.message) == said


def test_envoyfilter_that_a_provider_refuses_is_named_and_nothing_is_opened(world):
    words = "EnvoyFilters are not supported by the managed mesh"
    message = f'admission webhook "gateways.azmk8s.io" denied the request: {words}'
    world.fake.deny("EnvoyFilter", 403, message)
    world.related = [route(), auth()]
    shown = world.status()
    assert isinstance(shown, testing.BlockedStatus)
    visible = shown.message[: messages.VISIBLE]
    assert 'webhook "gateways.azmk8s.io" refuses' in visible
    assert "run: juju run mesh-2/leader diagnose" in visible
    assert "EnvoyFilter" in shown.message
    assert words in shown.message
    assert world.gateway() is None
    assert world.routes() == []
    # A check reports the refused pod, and the status the other refusal.
    world.fake.deny("Pod", 403, QUOTA)
    rows = [row for row in diagnose_ingress(world, "status") if row.message == "OBJECT_REFUSED"]
    assert ["EnvoyFilter" in row.seen for row in rows] == [True]


def secrets_in(text):
    """The random values in a text, and the data of a Secret."""
    return re.findall(r"x-[0-9a-f]{32}|[A-Za-z0-9+/=]{90,}", text)


@pytest.mark.parametrize("before", [0, 380, 1980])
@pytest.mark.parametrize("kind", ["VirtualService", "EnvoyFilter", "Gateway", "Secret"])
def test_refusal_that_quotes_an_object_gives_no_secret_of_it_away(world, kind, before):
    """Whatever part of a value another team's webhook or the charm leaves out."""
    quoted = []

    def refuse(obj):
        if obj["kind"] != kind or obj["metadata"]["name"].endswith("-tls"):
            return None
        quoted.extend(secrets_in(json.dumps(obj)))
        cut = [each[:20] for each in quoted if each.startswith("x-")]
        words = "." * before + " ".join([*cut[:1], *quoted])
        return 400, f'admission webhook "a.b" denied the request: {words}'

    world.fake.validators.append(refuse)
    world.related = [route("mesh"), auth()]
    out = world.hook()
    with pytest.raises(testing.ActionFailed):
        world.run(lambda ctx: ctx.on.action("diagnose"))
    logged = [line.message for line in world.ctx.juju_log]
    told = "\n".join([out.unit_status.message, world.ctx.action_results["report"], *logged])
    assert 'webhook "a.b" refuses' in told
    assert quoted
    assert not [each for each in quoted if each[:16] in told]


DENIED = (
    "namespaces \"kf\" is forbidden: ValidatingAdmissionPolicy '{0}' with binding '{0}' "
    "denied request: the platform team labels namespaces"
)
SHORT, LONG = "labels-of-namespaces", "labels-of-namespaces2"
"""Names of policies: with their kind, of 46 and of 47 characters."""
LOOK = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"
DIAGNOSE = "run: juju run mesh-2/leader diagnose"
TRUST = "run: juju trust mesh-2 --scope=cluster"
ELSEWHERE = 'namespaces "kf" is forbidden: User "u" cannot patch resource "a" in API group "b.c"'
OF_NAMESPACES = 'namespaces "kf" is forbidden: User "u" cannot patch resource "namespaces" in'


@cases(
    ("error", "visible", "command"),
    policy=(
        (422, DENIED.format(SHORT)),
        f"blocked: {DIAGNOSE}; ValidatingAdmissionPolicy {SHORT} refuses",
        f"kubectl get validatingadmissionpolicy {SHORT} -o yaml",
    ),
    policy_of_a_long_name=(
        (422, DENIED.format(LONG)),
        f"blocked: {DIAGNOSE}; {LONG} refuses",
        f"kubectl get validatingadmissionpolicy {LONG} -o yaml",
    ),
    mutating_policy=(
        (422, DENIED.format("labels").replace("Validating", "Mutating")),
        f"blocked: {DIAGNOSE}; MutatingAdmissionPolicy labels refuses Namespace kf",
        "kubectl get mutatingadmissionpolicy labels -o yaml",
    ),
    webhook=(
        (400, 'admission webhook "a.b" denied the request: no labels here'),
        f'blocked: {DIAGNOSE}; webhook "a.b" refuses Namespace kf',
        LOOK,
    ),
    webhook_that_is_away=(
        (500, f"Internal error occurred: {AWAY}"),
        f'waiting: {DIAGNOSE}; webhook "check.opa.sh" does not answer',
        LOOK,
    ),
    right_to_one=(
        (403, f'{OF_NAMESPACES} API group ""'),
        f"blocked: missing permission: patch namespaces kf; {TRUST}",
        TRUST[5:],
    ),
    right_of_a_group=(
        (403, ELSEWHERE),
        f"blocked: missing permission: patch a.b.c; {TRUST}",
        TRUST[5:],
    ),
    no_right_at_all=(
        (401, "Unauthorized"),
        f"blocked: missing permission: Unauthorized; {TRUST}",
        TRUST[5:],
    ),
)
def test_who_keeps_the_namespace_from_being_labelled_is_named(ctx, fake, error, visible, command):
    fake_cluster.install_istio(fake)
    fake.deny("Namespace", *error, having="istio-injection")
    shown = status(ctx, state())
    assert f"{shown.name}: {shown.message[: messages.VISIBLE]}".startswith(visible)
    with pytest.raises(testing.ActionFailed):
        ctx.run(ctx.on.action("diagnose"), state())
    assert f"→ {command}" in ctx.action_results["report"]


def test_dry_run_pods_are_like_the_units_own_pod(ctx, fake):
    fake_cluster.install_istio(fake)
    seen = []
    fake.validators.append(lambda obj: seen.append(obj) if obj["kind"] == "Pod" else None)
    status(ctx, state())
    assert seen
    for each in seen:
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("StatefulSet", "mesh-2")
        assert not owner["blockOwnerDeletion"]
        (container,) = (one for one in each["spec"]["containers"] if one["name"] == "dry-run")
        assert container["image"] == charm_world.IMAGE
        assert "runAsUser" not in each["spec"]["securityContext"]
