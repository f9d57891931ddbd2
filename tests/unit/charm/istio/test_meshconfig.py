import pytest

from istio_integrator.istio import meshconfig


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ('{"global": {"proxy": {"excludeOutboundPorts": "3306,5432"}}}', (3306, 5432)),
        ('{"global": {"proxy": {"excludeOutboundPorts": ""}}}', ()),
        ('{"global": {"proxy": {"excludeOutboundPorts": "*"}}}', ()),
        ('{"global": null}', ()),
        ("[]", ()),
        ("{", ()),
    ],
)
def test_ports_that_every_proxy_leaves_alone_are_read_as_far_as_they_can_be(values, want):
    assert meshconfig.excluded_ports({"data": {"values": values}}) == want


def sidecar(namespace, mode="", **spec):
    """A Sidecar, whose policy is the mesh's where the mode is empty."""
    outbound = {"outboundTrafficPolicy": {"mode": mode}} if mode else {}
    return {"metadata": {"namespace": namespace}, "spec": {**outbound, **spec}}


OF_PODS = {"workloadSelector": {"labels": {"app": "x"}}}
CLOSED = {"outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"}}


@pytest.mark.parametrize(
    ("settings", "sidecars", "want"),
    [
        pytest.param({}, [], False, id="nothing said"),
        pytest.param(CLOSED, [], True, id="the mesh"),
        pytest.param({}, [sidecar("istio-system", "REGISTRY_ONLY")], True, id="root"),
        pytest.param({}, [sidecar("m", "REGISTRY_ONLY")], True, id="model"),
        pytest.param(
            CLOSED,
            [sidecar("istio-system", "REGISTRY_ONLY"), sidecar("m", "ALLOW_ANY")],
            False,
            id="nearest wins",
        ),
        pytest.param(CLOSED, [sidecar("m")], True, id="model says nothing"),
        pytest.param({}, [sidecar("m", "REGISTRY_ONLY", **OF_PODS)], True, id="some pods"),
        pytest.param(CLOSED, [sidecar("m", "ALLOW_ANY", **OF_PODS)], True, id="all but some"),
        pytest.param(
            {}, [sidecar("istio-system", "REGISTRY_ONLY", **OF_PODS)], False, id="root's own pods"
        ),
    ],
)
def test_what_proxies_let_out_is_the_nearest_sidecars_word(settings, sidecars, want):
    assert meshconfig.is_registry_only(settings, sidecars, model="m") is want


def config_map(text):
    """A ConfigMap with a mesh configuration."""
    return {"data": {"mesh": text}}


@pytest.mark.parametrize(
    ("below", "own", "want"),
    [
        pytest.param(None, config_map("rootNamespace: a"), {"rootNamespace": "a"}, id="none"),
        pytest.param(config_map("x: 1"), None, {"x": 1}, id="alone"),
        pytest.param(config_map("x: 1\ny: 2"), config_map("x: 3"), {"x": 3, "y": 2}, id="before"),
        pytest.param(
            config_map("defaultConfig: {a: 1, b: {c: 2}}"),
            config_map("defaultConfig: {a: 3, b: {d: 4}}"),
            {"defaultConfig": {"a": 3, "b": {"c": 2, "d": 4}}},
            id="within",
        ),
        pytest.param(
            config_map("defaultConfig: text"),
            config_map("defaultConfig: {a: 1}"),
            {"defaultConfig": {"a": 1}},
            id="of another shape",
        ),
        pytest.param(config_map("a: [1"), config_map("b: 1"), {"b": 1}, id="unreadable"),
    ],
)
def test_shared_settings_lie_below_those_of_the_mesh(below, own, want):
    assert meshconfig.settings(below, own) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{}", ("cluster.local",)),
        ("trustDomain: td1", ("td1",)),
        ("{trustDomain: td1, trustDomainAliases: [td2, td3]}", ("td1", "td2", "td3")),
        ("{trustDomain: '', trustDomainAliases: 7}", ("cluster.local",)),
    ],
)
def test_trust_domain_comes_before_its_aliases(text, want):
    assert meshconfig.trust_domains(meshconfig.settings(config_map(text))) == want


@pytest.mark.parametrize(
    ("env", "want"),
    [
        ([{"name": "SHARED_MESH_CONFIG", "value": "istio-user"}], "istio-user"),
        ([{"name": "SHARED_MESH_CONFIG", "valueFrom": {}}], ""),
        ([{"name": "REVISION", "value": "x"}], ""),
        ("text", ""),
    ],
)
def test_shared_settings_are_named_by_the_environment_of_istiod(env, want):
    spec = {"template": {"spec": {"containers": [{"name": "discovery", "env": env}]}}}
    assert meshconfig.environment({"spec": spec}).get(meshconfig.SHARED, "") == want
    assert meshconfig.environment(None) == {}


def expression(operator, *values):
    return {"matchExpressions": [{"key": "tier", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "labels", "remedy"),
    [
        pytest.param({"matchLabels": {"a": "b"}}, {"a": "b"}, "", id="met"),
        pytest.param({"matchLabels": {"a": "b", "c": "d"}}, {"a": "x"}, "a=b c=d", id="labels"),
        pytest.param(expression("In", "x", "y"), {"tier": "y"}, "", id="in"),
        pytest.param(expression("In", "x", "y"), {}, "tier=x", id="not-in"),
        pytest.param(expression("Exists"), {}, "tier=true", id="absent"),
        pytest.param(expression("DoesNotExist"), {"tier": "x"}, "tier-", id="present"),
        pytest.param(expression("NotIn", "x"), {"tier": "x"}, "tier-", id="excluded"),
        pytest.param(expression("NotIn", "x"), {}, "", id="not-excluded"),
    ],
)
def test_namespace_is_served_whose_labels_meet_a_discovery_selector(selector, labels, remedy):
    assert meshconfig.unserved([selector], labels) == remedy
    both = [{"matchLabels": {"never": "met"}}, selector]
    named = meshconfig.unserved(both, labels)
    assert named == ("never=met" if remedy else "")
