"""A real istiod and a real Envoy as its gateway, beside a control plane without a node."""

import contextlib
import functools
import json
import socket
import subprocess
import urllib.request
from pathlib import Path

import envoy
import httpx2
import yaml
from lightkube import generic_resource
from lightkube.models.authentication_v1 import TokenRequestSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.models.rbac_v1 import PolicyRule, RoleRef, Subject
from lightkube.resources import core_v1
from lightkube.resources import rbac_authorization_v1 as rbac

from testbed import loopback, programs
from tests import api, waiting
from tests.functional import loopback_istiod

GATEWAY_NAMESPACE = "istio-ingress"
ISTIO_VERSION = "1.31.1"
LABELS = {"istio": "ingressgateway"}
DEFINITIONS = generic_resource.create_global_resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"
)
ENVOY = Path(envoy.__file__).parent / "_bin" / "envoy"


@functools.cache
def install_definitions(client):
    """Have the API server serve Istio's kinds, from now on."""
    place = "share/manifests/charts/base/files/crd-all.gen.yaml"
    text = (programs.directory("istio") / place).read_text()
    apply_definitions(client, text)


def apply_definitions(client, text):
    """Apply the definitions of custom resources in YAML, and wait until they are served."""
    documents = yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    kept = [each for each in documents if each and each["kind"] == "CustomResourceDefinition"]
    for each in kept:
        client.apply(DEFINITIONS(each), field_manager="test", force=True)
    with api.Api(client.config) as admin:
        assert waiting.eventually(lambda: all(_is_served(admin, each["spec"]) for each in kept))


def _is_served(admin, spec):
    try:
        admin.list(f"{spec['names']['kind']}.{spec['group']}")
    except (LookupError, api.ApiError, httpx2.HTTPError):
        return False
    return True


def istioctl(folder, objects, *words):
    """Have Istio's own tool judge a file of objects."""
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    argv = [programs.binary("istioctl"), *words, file]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def own_address():
    """An address of this machine that is not loopback, which no EndpointSlice may have."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return probe.getsockname()[0]


@contextlib.contextmanager
def istiod(folder, kubeconfig, settings=None, environment=None, options=()):
    """istiod without certificates, webhooks and leader duties; its plain xDS port comes back."""
    xds, web, metrics = loopback.free_ports(3)
    (folder / "debug.port").write_text(str(metrics))
    mesh = folder / "mesh.yaml"
    # There is nobody to give out certificates.
    own = {"rootNamespace": "istio-system", "enableAutoMtls": False}
    mesh.write_text(yaml.safe_dump({**own, **(settings or {})}))
    argv = [
        programs.binary("pilot-discovery"),
        "discovery",
        f"--kubeconfig={kubeconfig}",
        f"--meshConfig={mesh}",
        f"--grpcAddr=127.0.0.1:{xds}",
        "--secureGRPCAddr=",
        "--httpsAddr=",
        f"--httpAddr=127.0.0.1:{web}",
        f"--monitoringAddr=127.0.0.1:{metrics}",
        "--ctrlz_port=0",
        "--keepaliveMaxServerConnectionAge=1h",
        *options,
    ]
    named = {
        "POD_NAME": "istiod",
        "POD_NAMESPACE": "istio-system",
        "ENABLE_CA_SERVER": "false",
        "INJECT_ENABLED": "false",
        "VALIDATION_ENABLED": "false",
        # A gateway is given the certificates of its Gateways if it says who it is.
        "XDS_AUTH_PLAINTEXT": "true",
        "PILOT_ENABLE_ALPN_FILTER": "false",
        "PILOT_ENABLE_METADATA_EXCHANGE": "false",
        "PILOT_ENABLE_GATEWAY_API": "false",
        **(environment or {}),
    }
    with loopback_istiod.process(argv, folder / "istiod.log", named, folder) as started:
        wait_for_port(xds, started, folder / "istiod.log")
        yield xds


def gateway_token(client, namespace=GATEWAY_NAMESPACE):
    """Create a token by which istiod gives a gateway the Secrets of its namespace."""
    metadata = ObjectMeta(name="gateway", namespace=namespace)
    client.apply(core_v1.ServiceAccount(metadata=metadata), field_manager="test")
    rule = PolicyRule(apiGroups=[""], resources=["secrets"], verbs=["get", "list", "watch"])
    client.apply(rbac.Role(metadata=metadata, rules=[rule]), field_manager="test")
    subject = Subject(kind="ServiceAccount", name="gateway", namespace=namespace)
    role = RoleRef(apiGroup="rbac.authorization.k8s.io", kind="Role", name="gateway")
    binding = rbac.RoleBinding(metadata=metadata, roleRef=role, subjects=[subject])
    client.apply(binding, field_manager="test")
    return token_of(client, "gateway", namespace)


def token_of(client, account, namespace):
    """A token for istiod."""
    spec = TokenRequestSpec(audiences=["istio-ca"])
    wanted = core_v1.ServiceAccountToken(metadata=ObjectMeta(), spec=spec)
    return client.create(wanted, account, namespace=namespace).status.token


@contextlib.contextmanager
def gateway(folder, xds, admin, token, *, namespace=GATEWAY_NAMESPACE, labels=LABELS):
    """Envoy as a gateway workload of that istiod."""
    node = proxy("router", "gateway", namespace, labels)
    with envoy_of(folder, xds, admin, node, token):
        yield


def proxy(kind, name, namespace, labels, **metadata):
    """The node metadata that a proxy sends to istiod."""
    domain = f"{namespace}.svc.cluster.local"
    return {
        "id": f"{kind}~{own_address()}~{name}.{namespace}~{domain}",
        "cluster": name,
        "metadata": {
            "NAMESPACE": namespace,
            "LABELS": labels,
            "ISTIO_VERSION": ISTIO_VERSION,
            "CLUSTER_ID": "Kubernetes",
            **metadata,
        },
    }


def static_cluster(name, port, *, is_http2=True):
    """A cluster with one endpoint on loopback."""
    found = {
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": on_loopback(port)}}]}],
        },
    }
    if is_http2:
        kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
        spoken = {"explicit_http_config": {"http2_protocol_options": {}}}
        options = {"@type": f"type.googleapis.com/{kind}", **spoken}
        found["typed_extension_protocol_options"] = {kind: options}
    return found


def administration(admin, path):
    """Read a path of an Envoy's administration."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/{path}", timeout=9) as answer:
        return answer.read().decode()


def on_loopback(port):
    """An address of Envoy's."""
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


@contextlib.contextmanager
def envoy_with(folder, name, admin, bootstrap, *options):
    """Run Envoy with a bootstrap and a port for its administration."""
    path, log = folder / f"{name}.json", folder / f"{name}.log"
    path.write_text(json.dumps({**bootstrap, "admin": {"address": on_loopback(admin)}}))
    argv = [ENVOY, "-c", path, "--concurrency", "1", "--use-dynamic-base-id", *options]
    with loopback_istiod.process(argv, log) as started:
        wait_for_port(admin, started, log)
        yield


@contextlib.contextmanager
def envoy_of(folder, xds, admin, node, token, *, more=()):
    """Envoy that has its configuration from that istiod, which speaks of `more` clusters."""
    ads = {"ads": {}, "resource_api_version": "V3"}
    clusters = [static_cluster("xds-grpc", xds), *more]
    bootstrap = {
        "node": node,
        "dynamic_resources": {
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "grpc_services": [
                    {
                        "envoy_grpc": {"cluster_name": "xds-grpc"},
                        "initial_metadata": [{"key": "authorization", "value": f"Bearer {token}"}],
                    }
                ],
            },
            "lds_config": {**ads, "initial_fetch_timeout": "0s"},
            "cds_config": {**ads, "initial_fetch_timeout": "0s"},
        },
        "static_resources": {"clusters": clusters},
        # As Istio's bootstrap has it; Envoy's own is 100, which routes with expressions exceed.
        "layered_runtime": {
            "layers": [
                {"name": "static", "static_layer": {"re2.max_program_size.error_level": 32768}},
                {"name": "admin", "admin_layer": {}},
            ]
        },
    }
    # As pilot-agent starts it, but for the log.
    options = ("--drain-time-s", "45", "--drain-strategy", "immediate")
    with envoy_with(folder, "envoy", admin, bootstrap, *options):
        yield


def wait_for_port(port, started, log):
    """Wait until a process listens at a port."""

    def listens():
        assert started.poll() is None, log.read_text()[-4000:]
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True

    assert waiting.eventually(listens, 60), log.read_text()[-4000:]
