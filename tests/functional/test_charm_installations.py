"""What the charm makes of each installation of docs/reference/istio-installations.md, as their own
installer writes it, with the real istiod on loopback."""

import contextlib
import dataclasses
import pathlib

import pytest
import yaml
from lightkube import Client
from ops import testing

from integrator_contract import names
from istio_integrator.config import config
from istio_integrator.istio import discovery
from istio_integrator.kube import cluster
from testbed import istio
from tests import charm_access, rights, waiting
from tests.api import Api
from tests.functional import charm_runs, loopback_istiod
from tests.functional.test_charm_removal import COLLECTED, everything
from tests.kubernetes_objects import namespace_of

TABLE = yaml.safe_load((pathlib.Path(__file__).parent / "installations.yaml").read_text())
URL = "URL"
"""What stands in a row for the address of an injector."""
SHORT = ("default", "helm-revision", "aks")
"""Those that are tried at each change; the others are as long together as all else here."""
ROWS = [
    pytest.param(name, id=name, marks=() if name in SHORT else pytest.mark.long) for name in TABLE
]


@dataclasses.dataclass
class World:
    """An API server into which installations are written."""

    api: Api
    client: Client
    """By which the charm connects."""
    kubeconfig: pathlib.Path
    folder: pathlib.Path

    @contextlib.contextmanager
    def installed(self, row):
        """Have the installations of a row while the block runs; the injector's URL comes back."""
        with contextlib.ExitStack() as stack:
            url = ""
            for index, one in enumerate(row["installs"]):
                folder = self.folder / str(index)
                way = self._outside if "webhook" in one else self._inside
                url = stack.enter_context(way(one, folder, row.get("objects", ())))
            yield url

    @contextlib.contextmanager
    def _inside(self, one, folder, objects):
        place = one.get("namespace", istio.SYSTEM)
        loopback_istiod.create_namespace(self.api, place)
        about = {"revision": one.get("revision", ""), "place": place}
        installed = loopback_istiod.installed(
            self.api, self.kubeconfig, folder, *one["settings"], **about
        )
        with self.there(*objects), installed as found:
            yield found.url

    @contextlib.contextmanager
    def _outside(self, one, folder, objects):
        """Have no object of istiod but its webhook configurations, which name a URL."""
        written = loopback_istiod.render()
        running = loopback_istiod.running(self.api, self.kubeconfig, folder, written)
        with running as (address, bundle):
            url = f"{address}/inject"
            tag = [f"values.revisionTags[0]={one['tag']}"] if "tag" in one else []
            remote = loopback_istiod.render(
                *one["settings"],
                *tag,
                f"revision={one['revision']}",
                f"values.istiodRemote.injectionURL={url}",
                f"values.istiodRemote.injectionCABundle={bundle}",
            )
            configurations = [
                item for (kind, _), item in remote.items() if kind.startswith("Mutating")
            ]
            for item in configurations:
                if "istio.io/tag" not in item["metadata"]["labels"]:
                    item["metadata"]["name"] = one["webhook"]
                for hook in item["webhooks"]:
                    hook["clientConfig"]["caBundle"] = bundle
            with self.there(*objects, *configurations):
                yield url

    def mesh(self, model, **options):
        """Look for an Istio as the charm does; what it finds."""
        wish = config.Config.model_validate(options)
        api, application = cluster.Cluster(self.client), charm_runs.APPLICATION
        search = discovery.Discovery(api, wish, model=model, application=application)
        search.reconcile()
        return search.mesh

    @contextlib.contextmanager
    def there(self, *objects):
        """Have objects while the block runs."""
        applied = [self.api.apply(item) for item in objects]
        try:
            yield
        finally:
            for item in applied:
                self.api.delete(item)


@pytest.fixture
def world(connected, client, namespace, kubeconfig, tmp_path):
    """The API server, to which the charm connects."""
    connected.create(charm_runs.unit(namespace))
    return World(connected, client, kubeconfig, tmp_path)


def joined(world, namespace):
    """The labels by which a namespace has joined."""
    return charm_runs.mesh_labels(world.api, namespace)[0]


def profile(model):
    """A user's namespace, as Kubeflow labels it."""
    labels = {names.PART_OF: names.PROFILE, names.INJECTION: "enabled"}
    return namespace_of(f"{model}-alice", **labels)


def facts(mesh, fields):
    """Return fields of a mesh, or of the part that has them."""
    parts = (mesh, mesh.injector, mesh.settings, mesh.proxy)
    return {
        field: next(getattr(each, field) for each in parts if hasattr(each, field))
        for field in fields
    }


@pytest.mark.parametrize("name", ROWS)
def test_installation_is_joined_as_its_row_says(world, namespace, name):
    row = TABLE[name]
    options = row.get("options", {})
    with world.installed(row) as url:
        if "blocked" in row:
            out = charm_runs.run("start", namespace)
            assert isinstance(out.unit_status, testing.BlockedStatus)
            assert row["blocked"] in out.unit_status.message
            for option, value in options.items():
                hint = f"juju config istio-integrator {option}="
                assert hint in out.unit_status.message, value
            assert joined(world, namespace) == {}
        out = charm_runs.serve(world.api, "start", namespace, **options)
        begins = row["status"].replace(URL, url)
        assert isinstance(out.unit_status, testing.ActiveStatus), out.unit_status
        assert out.unit_status.message.split(" · ")[0] == begins
        assert joined(world, namespace) == row["joins"]
        found = world.mesh(
            namespace, **{key.replace("-", "_"): value for key, value in options.items()}
        )
        assert (found.alive, found.proxy.probed) == (True, True)
        assert facts(found, row["finds"]) == row["finds"]
        if "profiles" in row:
            with world.there(profile(namespace)):
                out = charm_runs.run("update_status", namespace, **options)
            assert isinstance(out.unit_status, testing.BlockedStatus)
            # A command that is longer than what Juju shows is named by diagnose.
            diagnose = "juju run istio-integrator/leader diagnose"
            command = row["profiles"] if len(row["profiles"]) < len(diagnose) else diagnose
            assert f"run: {command}" in out.unit_status.message
        charm_runs.run("remove", namespace, units=0)
        assert joined(world, namespace) == {}


PROXY_DEFAULTS = "meshConfig.defaultConfig"
INJECTED = "values.sidecarInjectorWebhook.injectedAnnotations"
INBOUND_ONLY = r"traffic\.sidecar\.istio\.io/excludeOutboundIPRanges=0.0.0.0/0"
CNI = "components.cni.enabled=true"

SETTINGS = {
    "registry-only": (
        ["meshConfig.outboundTrafficPolicy.mode=REGISTRY_ONLY"],
        {"registry_only": True, "cuts_off_controller": True},
    ),
    "dns": (
        [f"{PROXY_DEFAULTS}.proxyMetadata.ISTIO_META_DNS_CAPTURE=true"],
        {"captures_names": True, "cuts_off_names": False},
    ),
    "inbound-only": ([f"{INJECTED}.{INBOUND_ONLY}"], {"captures_outbound": False}),
    "inbound-only-cni": (
        [CNI, "values.global.proxy.excludeIPRanges=0.0.0.0/0"],
        {"cni": True, "captures_outbound": False},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", SETTINGS)
def test_what_the_installation_is_like_is_seen(world, namespace, tmp_path, case):
    settings, want = SETTINGS[case]

    def shown():
        found = world.mesh(namespace)
        return facts(found, want)

    with loopback_istiod.installed(world.api, world.kubeconfig, tmp_path) as default:
        assert shown() != want
        default.configure(*settings)
        assert waiting.eventually(lambda: shown() == want), shown()


def test_istiod_is_seen_to_inject_where_every_pod_is_excluded(world, namespace):
    with world.installed(TABLE["default"]):
        options = {"excluded-pods": "!team"}
        charm_runs.serve(world.api, "start", namespace, **options)
        said = charm_runs.run("update_status", namespace, **options).unit_status
        assert isinstance(said, testing.ActiveStatus), said
        assert charm_runs.mesh_labels(world.api, namespace) == ({names.INJECTION: "enabled"}, True)
        charm_runs.run("remove", namespace, units=0)


@pytest.mark.parametrize(
    ("level", "policy", "said"),
    [
        ("privileged", "Fail", 'object.sidecar-injector.istio.io: service "istiod" not found'),
        ("baseline", "Ignore", "the injector was not asked for the pod"),
        ("restricted", "Ignore", "the injector was not asked for the pod"),
    ],
)
def test_probe_of_an_injector_without_istiod_says_why(world, namespace, level, policy, said):
    enforce = {"pod-security.kubernetes.io/enforce": level}
    world.api.merge_patch(namespace_of(namespace), {"metadata": {"labels": enforce}})
    with loopback_istiod.unanswered(world.api, namespace, policy):
        mesh = world.mesh(namespace, istiod_namespace=f"istio-{namespace}")
    assert mesh.alive is False
    assert mesh.problem.endswith(said)
    pods = world.api.list("Pod", namespace)
    assert [each["metadata"]["name"] for each in pods] == ["istio-integrator-0"]


def test_model_goes_into_ambient_mode_and_back_and_everything_is_as_it_was(world, namespace):
    """There is no node, so no ztunnel takes a pod in: it is about what the API server sees."""
    enabled, ambient = {names.INJECTION: "enabled"}, {names.DATAPLANE_MODE: "ambient"}

    def of_model():
        return {each for each in everything(world.api) if namespace in each}

    def mode(value, labels, *, has_webhook, event="config_changed"):
        options = {"mesh-mode": value} if value else {}
        said = charm_runs.serve(world.api, event, namespace, **options).unit_status
        assert isinstance(said, testing.ActiveStatus), said
        assert ("admission: not needed · ambient mode" in said.message) is not has_webhook
        assert charm_runs.mesh_labels(world.api, namespace) == (labels, True)
        kinds = {each["kind"] for each in charm_runs.owned(world.api, namespace)}
        assert ("MutatingWebhookConfiguration" in kinds) is bool(kinds) is has_webhook

    with world.installed(TABLE["ambient"]):
        for each in ("istio-ca-root-cert", "kube-root-ca.crt"):
            wanted = "ConfigMap", each, namespace
            assert waiting.eventually(lambda wanted=wanted: world.api.get(*wanted)), each
        before = of_model()
        mode("", enabled, has_webhook=True, event="start")
        mode("ambient", ambient, has_webhook=False)
        # Without the option it stays there.
        mode("", ambient, has_webhook=False, event="update_status")
        mode("sidecar", enabled, has_webhook=True)
        charm_runs.run("remove", namespace, units=0)
        is_restored = waiting.eventually(lambda: of_model() == before, COLLECTED)
    assert is_restored, of_model() ^ before


OF_ISTIOD = ("configmaps", "endpointslices")
"""What the role about the mesh lets the charm read of istiod. It lists Deployments everywhere, for
those of gateways and of the model; reading istiod's own by its name is taken away as well."""
UNREAD = (
    f"{PROXY_DEFAULTS}.holdApplicationUntilProxyStarts=true",
    f"{PROXY_DEFAULTS}.statusPort=15099",
    "meshConfig.rootNamespace=istio-config",
    r"values.global.proxy.excludeOutboundPorts=3306\,5432",
)


@pytest.fixture
def unknowing(world, control_plane, namespace, untrusted, monkeypatch):
    """The charm's connection, with the shipped roles but for any right in istiod's namespace."""
    roles = list(yaml.safe_load_all(rights.roles(namespace)))
    (mesh,) = (
        role for role in roles if role["metadata"]["name"].endswith("-mesh") and "rules" in role
    )
    mesh["rules"] = [rule for rule in mesh["rules"] if rule["resources"][0] not in OF_ISTIOD]
    (deployments,) = (rule for rule in mesh["rules"] if rule["resources"] == ["deployments"])
    deployments["verbs"].remove("get")
    control_plane.kubectl("apply", "-f", "-", text=yaml.safe_dump_all(roles))
    account = f"--as=system:serviceaccount:{namespace}:istio-integrator"
    asked = ("auth", "can-i", "get", "configmaps/istio", "-n", "istio-system", account)
    assert waiting.eventually(
        lambda: control_plane.kubectl(*asked, check=False).stdout.strip() == "no", 20
    )
    with Client(config=untrusted) as client:
        charm_access.connect(monkeypatch, client)
        yield dataclasses.replace(world, client=client)


def test_model_joins_and_leaves_with_no_right_in_the_namespace_of_istiod(
    world, unknowing, namespace
):
    with world.installed({"installs": [{"settings": UNREAD}]}):
        out = charm_runs.serve(world.api, "start", namespace)
        assert isinstance(out.unit_status, testing.ActiveStatus), out.unit_status
        assert out.unit_status.message.startswith("istio-system/istiod 1.31 · admission: webhook")
        assert joined(world, namespace) == {names.INJECTION: "enabled"}
        found = unknowing.mesh(namespace)
        charm_runs.run("remove", namespace, units=0)
        assert joined(world, namespace) == {}
    # A dry-run pod shows these.
    assert (found.alive, found.proxy.probed, found.proxy.version) == (True, True, "1.31.1")
    assert (found.hold_by_default, found.status_port) == (True, 15099)
    assert found.proxy.excluded_outbound_ports == (3306, 5432)
    # And these are not known: the usual is taken for them.
    assert not found.settings.has_settings
    assert (found.settings.root_namespace, found.settings.registry_only) == ("istio-system", False)
