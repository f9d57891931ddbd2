"""The webhook's objects: who is asked about which pods, and what its servers may and mount.

The model joins after the webhook works, and settings reach its servers by a mounted file.
"""

import base64
import dataclasses

import pytest
import yaml
from cryptography import x509
from ops import testing

from integrator_contract import names, namespaces, selectors
from tests.unit.cases import cases
from tests.unit.charm import charm_world, fake_cluster, ingress_world, istio_objects
from tests.unit.charm.charm_world import OWN_POD, context, state, told

NAME = "mesh-2-admission"
SERVER = {names.COMPONENT: names.WEBHOOK_COMPONENT, names.OWNER: "kf.mesh-2"}
"""The labels of the webhook's pods."""


@pytest.fixture
def fresh(fake, monkeypatch):
    """A model in which the charm has not run yet."""
    charm_world.search(monkeypatch)
    ingress_world.connect_without_gateway(fake, monkeypatch)
    return ingress_world.World(fake)


@pytest.fixture
def world(fresh):
    """A model with a webhook that the API server asks."""
    fresh.run()
    return fresh


def spec(world, kind):
    (found,) = [each for each in world.all(kind) if each["metadata"]["name"] == NAME]
    return found["spec"]


@pytest.mark.parametrize(
    ("model", "application"),
    [("a", "a"), ("zz", "istio-sidecar"), ("m" * 63, "0"), ("m" * 63, "x" * 63)],
)
def test_configuration_sorts_before_every_injector_and_names_are_dns_labels(
    fake, monkeypatch, model, application
):
    ingress_world.connect_without_gateway(fake, monkeypatch)
    fake.namespace(model)
    fake.may_change = {f"namespaces {model}"}
    spec = {"containers": [{"name": "lifecycle", "image": "workload:1"}]}
    fake.put("Pod", f"{application}-3", model, spec=spec)
    ctx = context(application)
    given = dataclasses.replace(state(), model=testing.Model(model, type="kubernetes"))
    ctx.run(ctx.on.config_changed(), given)
    ours = [obj for obj in fake.objects.values() if fake_cluster.is_charms(obj)]
    (configuration,) = [obj for obj in ours if obj["kind"] == "MutatingWebhookConfiguration"]
    name = configuration["metadata"]["name"]
    assert name < min("istio-revision-tag-default", "istio-sidecar-injector")
    assert len(name) < 250
    made = {obj["metadata"]["name"] for obj in ours if "namespace" in obj["metadata"]}
    assert {each.rpartition("-admission")[2] for each in made} >= {"", "-tls"}
    assert all(len(each) <= 63 and selectors.is_value(each) for each in made)


def test_webhook_is_asked_at_creation_only_before_and_after_injectors_and_fails_open(world):
    (found,) = world.all("MutatingWebhookConfiguration")
    (secret,) = [each for each in world.all("Secret") if "tls.crt" in each["data"]]
    (port,) = spec(world, "Service")["ports"]
    served = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
    hosts = served.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    kinds = [hook["name"].split(".")[0] for hook in found["webhooks"]]
    assert kinds == ["model", "profiles", "profiles-ours", "labelled", "labelled-ours"]
    for kind, hook in zip(kinds, found["webhooks"], strict=True):
        service = {"name": NAME, "namespace": "kf", "port": port["port"]}
        client = hook["clientConfig"]
        # The server has a path for each kind of namespace, whichever integrator serves it.
        (path,) = (
            f"/mutate/{each}" for each in namespaces.KINDS if kind in (each, f"{each}-ours")
        )
        assert client["service"] == {**service, "path": path}
        names_of = [f"{NAME}.kf.svc", f"{NAME}.kf.svc.{charm_world.DOMAIN}"]
        assert hosts.get_values_for_type(x509.DNSName) == names_of
        assert client["caBundle"] == secret["data"]["tls.crt"]
        of_istiod = {names.NAMESPACE_NAME: "istio-system", names.SERVED: "enabled"}
        of_istiod[names.PART_OF] = names.PROFILE
        assert not istio_objects.selects(hook["namespaceSelector"], of_istiod)
        everything = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
        assert hook["rules"] == [{**everything, "operations": ["CREATE"], "scope": "Namespaced"}]
        assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Ignore", 3)
        # A server changes nothing but the pod that it is shown, also at a dry run.
        assert (hook["sideEffects"], hook["admissionReviewVersions"]) == ("None", ["v1"])
        assert hook["reinvocationPolicy"] == "IfNeeded"
        # It is asked a second time only where it was asked before the injection, too.
        assert "matchConditions" not in hook


@cases(
    ("labels", "is_asked"),
    any=({"app": "any"}, True),
    probe_of_the_mesh=({names.MESH_PROBE: "true"}, False),
    server=({**SERVER, names.OWNER: "kf.x"}, False),
)
def test_webhook_is_not_asked_about_servers_and_probes_of_the_mesh(world, labels, is_asked):
    (found,) = world.all("MutatingWebhookConfiguration")
    asked = [istio_objects.selects(hook["objectSelector"], labels) for hook in found["webhooks"]]
    assert asked == [is_asked] * len(asked)


# A server that never gets ready must not block a drain, and one on a busy node has a minute to
# answer. It has no token and no rights, and reads its key as a member of the group.
POD = yaml.safe_load("""
automountServiceAccountToken: false
enableServiceLinks: false
imagePullSecrets: [{name: ours}, {name: mirror}]
securityContext:
  runAsNonRoot: true
  runAsUser: 584792
  runAsGroup: 584792
  fsGroup: 584792
  seccompProfile: {type: RuntimeDefault}
containers:
- name: admission
  image: workload:1
  imagePullPolicy: IfNotPresent
  command:
  - /usr/bin/sidecar-lifecycle
  - admission
  - --settings=/etc/sidecar-lifecycle/settings/settings.json
  - --tls-dir=/etc/sidecar-lifecycle/tls
  - --listen=:8443
  - --health=:8080
  - --log-level-file=/etc/sidecar-lifecycle/settings/log-level
  ports:
  - {name: https, containerPort: 8443, protocol: TCP}
  - {name: health, containerPort: 8080, protocol: TCP}
  startupProbe: {httpGet: &live {path: /livez, port: health}, periodSeconds: 1,
    timeoutSeconds: 9, failureThreshold: 120}
  livenessProbe: {httpGet: *live, periodSeconds: 10, timeoutSeconds: 9, failureThreshold: 6}
  readinessProbe: {httpGet: {path: /readyz, port: health}, periodSeconds: 2, timeoutSeconds: 2}
  resources: {requests: {cpu: 20m, memory: 64Mi}, limits: {memory: 128Mi}}
  securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true,
    capabilities: {drop: [ALL]}}
  volumeMounts:
  - {name: settings, mountPath: /etc/sidecar-lifecycle/settings, readOnly: true}
  - {name: tls, mountPath: /etc/sidecar-lifecycle/tls, readOnly: true}
volumes:
- {name: settings, configMap: {name: mesh-2-admission}}
- name: tls
  secret: {secretName: mesh-2-admission-tls, defaultMode: 288,
    items: [{key: tls.crt, path: tls.crt}, {key: tls.key, path: tls.key}]}
""")


def test_servers_have_no_token_and_no_more_rights_than_they_need(world):
    own = world.fake.find("Pod", OWN_POD, "kf")["spec"]
    own["imagePullSecrets"] = POD["imagePullSecrets"]
    world.run()
    ours = {"matchLabels": SERVER}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "labelSelector": ours}
    spread |= {"whenUnsatisfiable": "ScheduleAnyway"}
    rolling = {"maxSurge": 1, "maxUnavailable": 0}
    assert spec(world, "Deployment") == {
        "replicas": 2,
        "revisionHistoryLimit": 1,
        "selector": ours,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "template": {
            "metadata": {"labels": {**SERVER, names.INJECT: "false"}},
            "spec": {**POD, "topologySpreadConstraints": [spread]},
        },
    }
    budget = {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow", "selector": ours}
    assert spec(world, "PodDisruptionBudget") == budget


def test_servers_are_reached_at_their_own_ports_and_no_others(world):
    port = {"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"}
    assert spec(world, "Service") == {"selector": SERVER, "ports": [port]}
    ports = [{"port": each["name"], "protocol": "TCP"} for each in POD["containers"][0]["ports"]]
    assert spec(world, "NetworkPolicy") == {
        "podSelector": {"matchLabels": SERVER},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": ports}],
    }


@pytest.fixture
def server(fake):
    """A pod of the webhook."""
    return fake.put("Pod", "server", labels=SERVER, spec={})


def template(world):
    return spec(world, "Deployment")["template"]


def refreshed(fake):
    pod = fake.find("Pod", "server", "kf")
    return pod["metadata"]["annotations"][names.REFRESH]


@cases(
    "change",
    log_level={"log_level": "debug"},
    hold_application={"hold_application": False},
    excluded_outbound_ports={"excluded_outbound_ports": "3306"},
    certificate={},
)
def test_change_reaches_the_servers_without_their_replacement(fake, world, server, change):
    world.run()
    before = template(world), refreshed(fake)
    world.config |= change
    if not change:
        fake.delete("Secret", f"{NAME}-tls", "kf")

    world.run()

    assert template(world) == before[0]
    assert refreshed(fake) != before[1]
    level = fake.find("ConfigMap", NAME, "kf")["data"]["log-level"]
    assert level == change.get("log_level", "info")


def test_pods_of_others_are_left_alone(fake, world, server):
    others = ({names.OWNER: "kf.mesh-2"}, {**SERVER, names.OWNER: "kf.mesh"})
    for number, labels in enumerate(others):
        fake.put("Pod", f"other-{number}", labels=labels, spec={})
    world.run()
    assert refreshed(fake)
    for number in range(2):
        assert "annotations" not in fake.find("Pod", f"other-{number}", "kf")["metadata"]


def joined(fake):
    return fake.labels("kf").get("istio-injection") == "enabled"


@cases(
    ("is_ready", "answers", "joins"),
    starting=(False, True, False),
    silent=(True, False, False),
    works=(True, True, True),
)
def test_model_joins_after_a_dry_run_pod_was_prepared(fake, fresh, is_ready, answers, joins):
    fake.webhook_is_ready, fake.webhook_answers = is_ready, answers

    out = fresh.run()

    assert joined(fake) is joins
    assert (out.unit_status.name == "active") is joins
    fake.webhook_answers = True
    fresh.get_ready(NAME)
    assert joined(fake)


def test_model_is_not_labelled_without_the_right_to_try_a_pod(fake, fresh):
    fake.forbidden.add(("create", "pods"))
    assert fresh.run().unit_status.name == "blocked"
    assert not joined(fake)


def test_model_that_another_team_labelled_is_not_held_up(fake, fresh):
    fake.labels("kf")["istio-injection"] = "enabled"
    fake.webhook_answers = False

    out = fresh.run()

    assert told(fresh.ctx, out).joined


def test_member_stays_one_while_the_webhook_is_silent(fake, fresh):
    fresh.run()
    fake.webhook_is_ready, fake.find("Deployment", NAME, "kf")["status"] = False, {}
    assert fresh.run().unit_status.name == "active"
    fake.webhook_answers = False
    fresh.run()
    assert joined(fake)
