"""The policy that administrators may hold the application by, on a real kube-apiserver.

Each thing that it forbids is done in two models by an application that is trusted with the whole
cluster, as with `juju trust`: it succeeds in the one without the policy.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import kubernetes_objects
from tests.api import Api, ApiError
from tests.functional import istiod_world, limits_world
from tests.functional.limits_world import APP, World
from tests.kubernetes_objects import namespace_of, workload
from tests.unit.cases import cases

OURS = "istio-integrator.charmhub.io"


@pytest.fixture(scope="module")
def worlds(control_plane, client, admin) -> Iterator[tuple[World, World]]:
    """Two trusted applications; the policy holds the second one."""
    istiod_world.install_definitions(client)
    with contextlib.ExitStack() as stack:
        made: list[World] = []
        for _ in range(2):
            model = f"limits-{uuid.uuid4().hex[:6]}"
            admin.create(namespace_of(model))
            stack.callback(admin.delete, namespace_of(model))
            control_plane.kubectl("-n", model, "create", "serviceaccount", APP)
            stack.enter_context(limits_world.trusted(control_plane, model))
            app = stack.enter_context(limits_world.connected(control_plane, model))
            made.append(World(model, admin, app))
            populate(admin, model)
        stack.enter_context(limits_world.limited(control_plane, made[1]))
        yield made[0], made[1]


def populate(api: Api, model: str) -> None:
    """Create other teams' objects, and the StatefulSet that Juju makes of the application."""
    labels = {"app": "theirs"}
    api.create(workload("Deployment", "theirs", model, labels))
    api.create(workload("StatefulSet", APP, model, labels))
    api.create(made("v1/Service", model, spec={"ports": [{"port": 80}], "selector": labels}))
    api.create(limits_world.pod(model, "theirs", labels=labels))
    injected = limits_world.pod(model, "injected")
    injected["spec"]["containers"].append({"name": "istio-proxy", "image": "none"})
    api.create(injected)


def made(kind: str, namespace: str = "", name: str = "theirs", **content: Any) -> dict[str, Any]:
    """An object by `apiVersion/Kind`."""
    return kubernetes_objects.made(*kind.rsplit("/", 1), name, namespace, **content)


def tries(write: Callable[[World], dict]) -> Callable[[World], None]:
    """Create an object by dry run, which passes admission like the deed."""

    def act(world: World) -> None:
        world.app.create(write(world), dry_run=True)

    return act


def creates(
    kind: str, namespace: str = "MODEL", name: str = "theirs", **content: object
) -> Callable[[World], None]:
    """Create an object whose names are those of a world, by dry run."""

    def write(world: World) -> dict:
        where = namespace.replace("MODEL", world.model)
        return made(kind, where, name.replace("APP", APP).replace("OWNER", world.owner), **content)

    return tries(write)


def patches(kind: str, name: str, patch: dict) -> Callable[[World], None]:
    """Patch an object that the application does not own."""

    def act(world: World) -> None:
        namespace = "" if kind == "v1/Namespace" else world.model
        obj = made(kind, namespace, name or world.model)
        world.app.merge_patch(obj, patch)

    return act


def really(world: World) -> None:
    """Run a pod as the ServiceAccount of the application."""
    obj = limits_world.pod(world.model)
    world.app.create(obj)
    world.api.delete(obj)


def deletes(kind: str) -> Callable[[World], None]:
    """Delete an object that the application does not own; it is created first."""

    def act(world: World) -> None:
        content = {"spec": {"ports": [{"port": 80}]}} if kind.endswith("Service") else {}
        obj = limits_world.pod(world.model, "gone")
        obj = obj if kind == "v1/Pod" else made(kind, world.model, "gone", **content)
        if world.api.get(obj["kind"], "gone", world.model) is None:
            world.api.create(obj)
        world.app.delete(obj)

    return act


def hook(**changes: object) -> Callable[[World], None]:
    """Create our webhook configuration, with something about it changed."""

    def write(world: World) -> dict:
        service = {"name": f"{APP}-admission", "namespace": world.model}
        name = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [world.model]}
        entry = {
            "name": "model.admission.istio-integrator.charmhub.io",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "clientConfig": {"service": service},
            "namespaceSelector": {"matchExpressions": [name]},
            "rules": [rule("pods")],
            **changes,
        }
        called = str(entry.pop("called", f"0-istio-integrator.{world.owner}"))
        kind = "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration"
        return made(kind, "", called, webhooks=[entry])

    return tries(write)


def rule(resource: str) -> dict:
    """Ask a webhook about new objects of a built-in kind."""
    what = {"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
    return {**what, "operations": ["CREATE"]}


def servers(**pod_spec: object) -> Callable[[World], None]:
    """Create the webhook's servers, with something about their pods changed."""
    labels = {"a": "b"}
    containers = [{"name": "a", "image": "none"}]
    spec = {"automountServiceAccountToken": False, "containers": containers, **pod_spec}
    template = {"metadata": {"labels": labels}, "spec": spec}
    deployment = {"selector": {"matchLabels": labels}, "template": template}
    return creates("apps/v1/Deployment", name="APP-admission", spec=deployment)


RBAC = "rbac.authorization.k8s.io/v1"
SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}
IMAGE = {"spec": {"containers": [{"name": "main", "image": "evil"}]}}
ALLOW = {"action": "ALLOW", "rules": [{}]}
POLICY = "security.istio.io/v1/AuthorizationPolicy"
FILTER = "networking.istio.io/v1alpha3/EnvoyFilter"
JOBS = "istio-integrator.OWNER.training"
ANYBODY = [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]


def role(kind: str, name: str) -> dict:
    """Write what a binding refers to."""
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}


FORBIDDEN: dict[str, Callable[[World], None]] = {
    "a pod that is kept": really,
    "a dry-run pod in another namespace": tries(
        lambda _: limits_world.pod("default", account="default")
    ),
    "another image in a pod": patches("v1/Pod", "theirs", IMAGE),
    "a label on a pod": patches("v1/Pod", "theirs", {"metadata": {"labels": {"x": "y"}}}),
    "the end of a pod without a proxy": deletes("v1/Pod"),
    "a Secret of others' names": creates("v1/Secret"),
    "a Secret in another namespace": creates("v1/Secret", "default", "APP-admission-tls"),
    "the end of somebody's Secret": deletes("v1/Secret"),
    "a ConfigMap of others' names": creates("v1/ConfigMap"),
    "the end of somebody's Service": deletes("v1/Service"),
    "where somebody's Service leads": patches(
        "v1/Service", "theirs", {"spec": {"selector": {"app": "mine"}}}
    ),
    "what istiod's Deployment runs": patches(
        "apps/v1/Deployment", "theirs", {"spec": {"template": IMAGE}}
    ),
    "what its own pods run": patches("apps/v1/StatefulSet", APP, {"spec": {"template": IMAGE}}),
    "what its own pods have of the host": patches(
        "apps/v1/StatefulSet", APP, {"spec": {"template": {"spec": {"hostNetwork": True}}}}
    ),
    "a ClusterRoleBinding": creates(
        f"{RBAC}/ClusterRoleBinding",
        "",
        roleRef=role("ClusterRole", "cluster-admin"),
        subjects=ANYBODY,
    ),
    "a Role of its gateway that lets it read": creates(
        f"{RBAC}/Role", name="APP-gateway", rules=[SECRETS]
    ),
    "its gateway's Role for somebody else": creates(
        f"{RBAC}/RoleBinding",
        name="APP-gateway",
        roleRef=role("Role", f"{APP}-gateway"),
        subjects=ANYBODY,
    ),
    "a webhook of another name": hook(called="0-mine"),
    "a webhook that leads out of the model": hook(
        clientConfig={"service": {"name": f"{APP}-admission", "namespace": "default"}}
    ),
    "a webhook at a URL": hook(clientConfig={"url": "https://evil.example"}),
    "a webhook that is asked everywhere": hook(namespaceSelector={}),
    "a webhook without which no pod is created": hook(failurePolicy="Fail"),
    "a webhook that is asked about Secrets": hook(rules=[rule("secrets")]),
    "servers with a token": servers(automountServiceAccountToken=True),
    "servers of another ServiceAccount": servers(serviceAccountName=APP),
    "servers with somebody's Secret": servers(
        volumes=[{"name": "a", "secret": {"secretName": "theirs"}}]
    ),
    "servers with the host's files": servers(volumes=[{"name": "a", "hostPath": {"path": "/"}}]),
    "an EnvoyFilter of another name": creates(FILTER, spec={}),
    "an EnvoyFilter for all pods": creates(
        FILTER, "default", "istio-integrator.OWNER", spec={"configPatches": []}
    ),
    "an EnvoyFilter for jobs that selects other pods": creates(
        FILTER, "default", JOBS, spec={"workloadSelector": {"labels": {"app": "web"}}}
    ),
    "an EnvoyFilter for jobs that changes filters": creates(
        FILTER,
        "default",
        JOBS,
        spec={
            "workloadSelector": {
                "labels": {"istio-integrator.charmhub.io/pod-traffic": "mutual-tls"}
            },
            "configPatches": [{"applyTo": "HTTP_FILTER", "patch": {"operation": "ADD"}}],
        },
    ),
    "an AuthorizationPolicy": creates(POLICY, name="istio-integrator.OWNER"),
    "an AuthorizationPolicy of somebody else's name": creates(POLICY, spec=ALLOW),
    "an AuthorizationPolicy that denies": creates(
        POLICY, name="APP-kfp-api", spec={"action": "DENY", "rules": [{}]}
    ),
    "who may call in another namespace": creates(POLICY, "default", "APP-kfp-api", spec=ALLOW),
    "a route in another namespace": creates(
        "networking.istio.io/v1/VirtualService", "default", spec={"hosts": ["a"]}
    ),
    "a Gateway of another name": creates("networking.istio.io/v1/Gateway", spec={}),
    "a label of others on a namespace": patches(
        "v1/Namespace", "", {"metadata": {"labels": {"istio.io/dataplane-mode": "ambient"}}}
    ),
    "somebody else's claim on a namespace": patches(
        "v1/Namespace", "", {"metadata": {"labels": {f"{OURS}/served-by": "another.one"}}}
    ),
    "an annotation of others on a namespace": patches(
        "v1/Namespace", "", {"metadata": {"annotations": {"controller.juju.is/id": "x"}}}
    ),
}


@pytest.mark.parametrize("act", [pytest.param(act, id=name) for name, act in FORBIDDEN.items()])
def test_trusted_application_is_refused_what_it_is_not_for(worlds, act):
    free, held = worlds
    act(free)
    with pytest.raises(ApiError) as refused:
        act(held)
    assert refused.value.code in (403, 422), refused.value
    assert f"ValidatingAdmissionPolicy '{held.model}-{APP}-limits'" in refused.value.message
    assert APP in refused.value.message.partition("denied request: ")[2]


STOP = ["pilot-agent", "request", "POST", "quitquitquit"]
THEIRS = ["python3", "-c", "print()"]


@cases(
    ("is_ours", "container", "command", "is_let"),
    the_stop_of_a_proxy_anywhere=(False, "istio-proxy", STOP, True),
    a_shell_in_a_proxy=(False, "istio-proxy", ["sh"], False),
    more_than_the_stop=(False, "istio-proxy", [*STOP, "more"], False),
    the_stop_in_another_container=(False, "main", STOP, False),
    a_call_of_diagnose_in_the_model=(True, "main", THEIRS, True),
)
def test_commands_outside_of_the_model_are_those_that_stop_a_proxy(  # noqa: PLR0917 - a table
    worlds, control_plane, is_ours, container, command, is_let
):
    free, held = worlds
    namespace = (held if is_ours else free).model
    who = f"--as={limits_world.user(held.model)}", f"--namespace={namespace}"
    ran = control_plane.kubectl(
        "exec", "injected", *who, f"--container={container}", "--", *command, check=False
    )
    # Without a node every command fails, after admission has had its say.
    had_its_way, refused = "host assigned" in ran.stderr, "ValidatingAdmissionPolicy" in ran.stderr
    assert (had_its_way, refused) == (is_let, not is_let), ran.stderr


def test_others_are_not_asked_about(worlds):
    _, held = worlds
    for write in (lambda w: made("v1/ConfigMap", w.model), lambda w: limits_world.pod(w.model)):
        held.api.create(write(held), dry_run=True)


def test_only_roles_keep_an_application_from_the_policy_itself(worlds, untrusted):
    """Kubernetes lets no policy be about policies."""
    _, held = worlds
    kind = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding"
    binding = made(kind, "", f"{held.model}-{APP}-limits")
    harmless = {"metadata": {"labels": {"seen": "by-the-application"}}}
    held.app.merge_patch(binding, harmless)
    with Api(untrusted) as app, pytest.raises(ApiError) as refused:
        app.merge_patch(binding, harmless)
    assert refused.value.code == 403
