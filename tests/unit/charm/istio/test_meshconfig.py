import pytest

from istio_integrator.istio import meshconfig


def sidecar(namespace, mode="", **spec):
    """A Sidecar, whose policy is the mesh's where the mode is empty."""
    outbound = {"outboundTrafficPolicy": {"mode": mode}} if mode else {}
    return {"metadata": {"namespace": namespace}, "spec": {**outbound, **spec}}


OF_PODS = {"workloadSelector": {"labels": {"app": "x"}}}


@pytest.mark.parametrize(
    ("default", "sidecars", "want"),
    [
        pytest.param(False, [], False, id="nothing said"),
        pytest.param(True, [], True, id="the mesh"),
        pytest.param(False, [sidecar("istio-system", "REGISTRY_ONLY")], True, id="root"),
        pytest.param(False, [sidecar("m", "REGISTRY_ONLY")], True, id="model"),
        pytest.param(
            True,
            [sidecar("istio-system", "REGISTRY_ONLY"), sidecar("m", "ALLOW_ANY")],
            False,
            id="nearest wins",
        ),
        pytest.param(True, [sidecar("m")], True, id="model says nothing"),
        pytest.param(False, [sidecar("m", "REGISTRY_ONLY", **OF_PODS)], True, id="some pods"),
        pytest.param(True, [sidecar("m", "ALLOW_ANY", **OF_PODS)], True, id="all but some"),
        pytest.param(
            False,
            [sidecar("istio-system", "REGISTRY_ONLY", **OF_PODS)],
            False,
            id="root's own pods",
        ),
    ],
)
def test_what_proxies_let_out_is_the_nearest_sidecars_word(default, sidecars, want):
    assert meshconfig.is_registry_only(sidecars, model="m", default=default) is want


def config_map(text):
    """A ConfigMap with a mesh configuration."""
    return {"data": {"mesh": text}}


@pytest.mark.parametrize(
    ("below", "own", "want"),
    [
        pytest.param(None, "rootNamespace: a", {"root_namespace": "a"}, id="none"),
        pytest.param("rootNamespace: a", None, {"root_namespace": "a"}, id="alone"),
        pytest.param(None, "rootNamespace: 7", {"root_namespace": "home"}, id="none-that-is-one"),
        pytest.param(
            "{rootNamespace: a, trustDomain: t}",
            "rootNamespace: b",
            {"root_namespace": "b", "trust_domains": ("t",)},
            id="before",
        ),
        pytest.param(
            "defaultConfig: {statusPort: 1, holdApplicationUntilProxyStarts: true}",
            "defaultConfig: {statusPort: 2}",
            {"status_port": 2, "hold_by_default": True},
            id="within",
        ),
        pytest.param(
            "defaultConfig: text",
            "defaultConfig: {statusPort: 2}",
            {"status_port": 2},
            id="of another shape",
        ),
        pytest.param("a: [1", "rootNamespace: b", {"root_namespace": "b"}, id="unreadable"),
        pytest.param(
            None,
            "outboundTrafficPolicy: {mode: REGISTRY_ONLY}",
            {"registry_only": True},
            id="registry only",
        ),
    ],
)
def test_shared_settings_lie_below_those_of_the_mesh(below, own, want):
    maps = [None if text is None else config_map(text) for text in (own, below)]
    found = meshconfig.IstiodSettings.read(*maps, installed_in="home")
    defaults = {"root_namespace": "home", "has_settings": own is not None}
    assert found == meshconfig.IstiodSettings(**{**defaults, **want})


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
    assert meshconfig.IstiodSettings.read(config_map(text), None).trust_domains == want


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
