"""What of the mesh keeps Kubernetes from calling modeloperator's webhook."""

import pytest

from istio_integrator.istio import plaintext

LABELS = {"operator.juju.is/name": "modeloperator"}


def pod(*, annotations=None, init=(), containers=("juju-operator",), image="proxy:1"):
    return {
        "metadata": {
            "name": "modeloperator-x",
            "namespace": "kubeflow",
            "labels": LABELS,
            "annotations": annotations or {},
        },
        "spec": {
            "containers": [{"name": name} for name in containers],
            "initContainers": [{"name": name, "image": image} for name in init],
        },
    }


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(pod(), False, id="as it should be"),
        pytest.param(pod(containers=("juju-operator", "istio-proxy")), True, id="classic"),
        pytest.param(pod(init=("istio-proxy",)), True, id="native"),
        pytest.param(pod(init=("istio-proxy",), image="auto"), False, id="not injected yet"),
        pytest.param(
            pod(annotations={"ambient.istio.io/redirection": "enabled"}), True, id="ambient"
        ),
    ],
)
def test_it_is_in_the_mesh(given, want):
    assert plaintext.is_in_mesh(given) is want


def peers(mode, namespace="istio-system", **spec):
    return {
        "kind": "PeerAuthentication",
        "metadata": {"name": "default", "namespace": namespace},
        "spec": {"mtls": {"mode": mode}, **spec},
    }


def ports(mode):
    return {"17071": {"mode": mode}}


def policy(namespace="istio-system", **spec):
    return {
        "kind": "AuthorizationPolicy",
        "metadata": {"name": "all", "namespace": namespace},
        "spec": spec,
    }


ITS_OWN = {"selector": {"matchLabels": LABELS}}
ANOTHER = {"selector": {"matchLabels": {"app": "x"}}}
CLAIM = {"key": "request.auth.claims[iss]", "values": ["x"]}
SNI = {"key": "connection.sni", "values": ["x"]}
TRIED = {
    "name": "all",
    "namespace": "istio-system",
    "annotations": {"istio.io/dry-run": "true"},
}


def to(**operation):
    return [{"to": [{"operation": operation}]}]


def by(**source):
    return [{"from": [{"source": source}]}]


MESH_ONLY = by(principals=["*"])


@pytest.mark.parametrize(
    ("policies", "want"),
    [
        pytest.param([], "", id="none"),
        pytest.param([peers("STRICT")], "istio-system/default asks", id="strict mesh"),
        pytest.param([peers("STRICT", "kubeflow")], "kubeflow/default asks", id="strict model"),
        pytest.param([peers("STRICT", "other")], "", id="strict elsewhere"),
        pytest.param([peers("PERMISSIVE")], "", id="permissive"),
        pytest.param([peers("STRICT"), peers("PERMISSIVE", "kubeflow")], "", id="nearest wins"),
        pytest.param(
            [peers("STRICT", "kubeflow"), peers("DISABLE", "kubeflow", **ITS_OWN)],
            "",
            id="the pod's own wins",
        ),
        pytest.param([peers("STRICT", "kubeflow", **ANOTHER)], "", id="strict for others"),
        pytest.param(
            [peers("STRICT"), peers("UNSET", "kubeflow")], "istio-system/default", id="inherited"
        ),
        pytest.param(
            [peers("STRICT", "kubeflow", **ITS_OWN, portLevelMtls=ports("PERMISSIVE"))],
            "",
            id="the port's own wins",
        ),
        pytest.param(
            [peers("PERMISSIVE", "kubeflow", **ITS_OWN, portLevelMtls=ports("STRICT"))],
            "asks",
            id="the port alone",
        ),
        pytest.param([policy()], "istio-system/all denies", id="allow nothing"),
        pytest.param([policy("kubeflow", rules=MESH_ONLY)], "denies", id="allow only the mesh"),
        pytest.param([policy(rules=[{}])], "", id="allow everything"),
        pytest.param(
            [policy("kubeflow", rules=MESH_ONLY), policy(rules=[{}])], "", id="another allows"
        ),
        pytest.param([policy(**ANOTHER)], "", id="allow nothing for others"),
        pytest.param([policy(rules=to(ports=["17071"]))], "", id="allow its port"),
        pytest.param([policy(rules=to(ports=["80"]))], "denies", id="allow another port"),
        pytest.param([policy(rules=to(notPorts=["80"]))], "", id="allow but another port"),
        pytest.param([policy(rules=to(methods=["POST"]))], "denies", id="allow unseen requests"),
        pytest.param([policy(rules=by(notPrincipals=["*"]))], "", id="allow those outside"),
        pytest.param([policy(rules=by(ipBlocks=["10.0.0.0/8"]))], "", id="allow addresses"),
        pytest.param([policy(rules=[{"when": [CLAIM]}])], "denies", id="allow unseen tokens"),
        pytest.param([policy(rules=[{"when": [SNI]}])], "", id="allow names"),
        pytest.param([policy(targetRefs=[{"kind": "Gateway", "name": "x"}])], "", id="waypoint"),
        pytest.param([{**policy(), "metadata": TRIED}], "", id="dry run"),
        pytest.param(
            [
                {
                    **policy(),
                    "metadata": {**TRIED, "annotations": {"istio.io/dry-run": "True"}},
                }
            ],
            "",
            id="dry run as Go takes it",
        ),
        pytest.param([policy(action="DENY", rules=[{}])], "denies", id="deny everything"),
        pytest.param([policy(action="DENY", rules=to(ports=["17071"]))], "denies", id="deny port"),
        pytest.param([policy(action="DENY", rules=to(ports=["80"]))], "", id="deny another port"),
        pytest.param(
            [policy(action="DENY", rules=to(methods=["GET"]))], "denies", id="deny unseen requests"
        ),
        pytest.param(
            [policy(action="DENY", rules=by(notPrincipals=["*"]))], "denies", id="deny outside"
        ),
        pytest.param(
            [policy(action="DENY", rules=by(ipBlocks=["10.0.0.0/8"]))], "", id="deny addresses"
        ),
        pytest.param([policy(action="DENY", rules=MESH_ONLY)], "", id="deny the mesh"),
        pytest.param([policy(action="DENY")], "", id="deny without rules is nothing"),
        pytest.param([policy(action="AUDIT", rules=[{}])], "", id="audit"),
    ],
)
def test_policy_in_its_way_is_named(policies, want):
    found = plaintext.obstacle(pod(), policies, root_namespace="istio-system", port=17071)
    assert want in found
    assert bool(want) == bool(found)
