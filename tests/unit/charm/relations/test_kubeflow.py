"""The other side is the library that Kubeflow's charms are written with."""

import pathlib

import ops
import pytest
import serialized_data_interface as sdi
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ops import testing

from istio_integrator.relations import endpoints, kubeflow

ROOT = pathlib.Path(__file__).parents[4]
METADATA = yaml.safe_load((ROOT / "metadata.yaml").read_text())
KUBEFLOW_DASHBOARD = {
    "service": "kubeflow-dashboard",
    "port": 8082,
    "prefix": "/",
    "rewrite": "/",
    "namespace": "kubeflow",
}
OIDC_GATEKEEPER = {
    "service": "oidc-gatekeeper",
    "port": 8080,
    "allowed-request-headers": ["cookie", "X-Auth-Token"],
    "allowed-response-headers": ["kubeflow-userid"],
}


class Consumer(ops.CharmBase):
    """A charm as Kubeflow has them: it sends its data as soon as a version is agreed."""

    sends: dict | None = None
    received: dict | None = None

    def __init__(self, framework):
        super().__init__(framework)
        framework.observe(self.on["endpoint"].relation_changed, self._on_changed)

    def _on_changed(self, _):
        interface = sdi.get_interface(self, "endpoint")
        assert interface is not None
        if self.sends is not None:
            interface.send_data(self.sends)
        Consumer.received = interface.get_data()


def consume(tmp_path, monkeypatch, endpoint, bag, *, versions, sends=None):
    """Run a charm on the other side of an endpoint; what it wrote comes back."""
    ours = METADATA["provides"][endpoint]
    meta = {
        "name": "consumer",
        "requires": {
            "endpoint": {
                "interface": ours["interface"],
                "schema": {version: ours["schema"][version] for version in versions},
                "versions": list(versions),
            }
        },
    }
    (tmp_path / "metadata.yaml").write_text(yaml.safe_dump(meta))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Consumer, "sends", sends)
    ctx = testing.Context(Consumer, meta=meta)
    relation = testing.Relation("endpoint", interface=ours["interface"], remote_app_data=bag)
    out = ctx.run(
        ctx.on.relation_changed(relation), testing.State(leader=True, relations={relation})
    )
    return out.get_relation(relation.id).local_app_data


class Provider(ops.CharmBase):
    """Holds our relations."""


def provide(*given_relations, act=lambda _: None, leader=True):
    meta = {key: METADATA[key] for key in ("name", "provides", "requires")}
    ctx = testing.Context(Provider, meta=meta)
    state = testing.State(leader=leader, relations=set(given_relations))
    with ctx(ctx.on.start(), state) as manager:
        charm = manager.charm
        answer = act(endpoints.Relations(charm.model, charm.app, leader=leader))
        return answer, manager.run()


def remote(endpoint, application="other", **bag):
    return testing.Relation(endpoint, remote_app_name=application, remote_app_data=bag)


def announced(endpoint):
    relation = remote(endpoint)
    _, out = provide(relation, act=kubeflow.announce_versions)
    return out.get_relation(relation.id).local_app_data


@pytest.mark.parametrize("versions", [("v1",), ("v2",), ("v1", "v2")])
def test_ingress_is_agreed_with_the_library(tmp_path, monkeypatch, versions):
    bag = consume(
        tmp_path,
        monkeypatch,
        "ingress",
        announced("ingress"),
        versions=versions,
        sends=KUBEFLOW_DASHBOARD,
    )
    (received,), _ = provide(
        remote("ingress", "kubeflow-dashboard", **bag),
        act=kubeflow.ingress,
    )
    assert received.application == "kubeflow-dashboard"
    assert received.problem == ""
    assert received.message == kubeflow.IngressRequest(
        service="kubeflow-dashboard", port=8082, prefix="/", rewrite="/", namespace="kubeflow"
    ) or isinstance(received.message, kubeflow.NamespacedIngressRequest)
    assert received.message.namespace == "kubeflow"


def test_ingress_auth_is_agreed_with_the_library(tmp_path, monkeypatch):
    bag = consume(
        tmp_path,
        monkeypatch,
        "ingress-auth",
        announced("ingress-auth"),
        versions=("v1",),
        sends=OIDC_GATEKEEPER,
    )
    (received,), _ = provide(remote("ingress-auth", **bag), act=kubeflow.ingress_auth)
    assert received.message == kubeflow.AuthRequest(
        service="oidc-gatekeeper",
        port=8080,
        allowed_request_headers=("cookie", "x-auth-token"),
        allowed_response_headers=("kubeflow-userid",),
    )


def test_istiod_is_told_as_the_library_reads_it(tmp_path, monkeypatch):
    relation = remote("istio-pilot")

    def act(related):
        kubeflow.announce_versions(related)
        kubeflow.publish_pilot(related, service="istiod.istio-system.svc", port=15012)

    _, out = provide(relation, act=act)
    bag = out.get_relation(relation.id).local_app_data
    # The requirer's library wants its own versions to be there as well, and answers with them.
    consume(tmp_path, monkeypatch, "istio-pilot", bag, versions=("v1",))
    (told,) = Consumer.received.values()
    assert told == {"service-name": "istiod.istio-system.svc", "service-port": "15012"}


def test_gateway_is_told_in_plain_words():
    relation = remote("gateway-info")
    _, out = provide(
        relation,
        act=lambda related: kubeflow.publish_gateway(
            related, name="kubeflow-gateway", namespace="ai", up=True
        ),
    )
    assert out.get_relation(relation.id).local_app_data == {
        "gateway_name": "kubeflow-gateway",
        "gateway_namespace": "ai",
        "gateway_up": "true",
    }


def test_unit_that_does_not_lead_writes_nothing():
    relation = remote("ingress")
    _, out = provide(relation, act=kubeflow.announce_versions, leader=False)
    assert out.get_relation(relation.id).local_app_data == {}


def test_leader_that_is_none_any_more_leaves_writing_to_the_next(monkeypatch):
    def refuse(*_):
        raise ops.RelationDataAccessError("kubeflow is not leader")

    monkeypatch.setattr(ops.RelationDataContent, "__setitem__", refuse)
    relation = remote("ingress")
    _, out = provide(relation, act=kubeflow.announce_versions)
    assert out.get_relation(relation.id).local_app_data == {}


@pytest.mark.parametrize("endpoint", ["ingress", "ingress-auth"])
@pytest.mark.parametrize(
    ("application", "namespace", "problem"),
    [
        ("remote-0123456789abcdef0123456789abcdef", {}, "sends no namespace"),
        ("remote-0123456789abcdef0123456789abcdef", {"namespace": "other"}, ""),
        ("remote-desktop", {}, ""),
    ],
)
def test_application_of_another_model_has_to_say_where_it_is(
    endpoint, application, namespace, problem
):
    data = {"service": "a", "port": 1, "prefix": "/a", **namespace}
    bag = {"_supported_versions": "[v1]", "data": yaml.safe_dump(data)}
    seen = []

    def look(related):
        seen.extend(
            kubeflow.ingress(related) if endpoint == "ingress" else kubeflow.ingress_auth(related)
        )

    provide(remote(endpoint, application, **bag), act=look)
    (received,) = seen
    assert received.problem.startswith(problem)
    assert bool(received.message) is not bool(problem)


def test_one_malformed_application_does_not_hide_another():
    good = {"_supported_versions": "[v1]", "data": "{service: a, port: 80, prefix: /a}"}
    bad = {"_supported_versions": "[v1]", "data": "{service: b, port: eighty, prefix: /b}"}
    received, _ = provide(
        remote("ingress", "a", **good),
        remote("ingress", "b", **bad),
        act=kubeflow.ingress,
    )
    by_name = {one.application: one for one in received}
    assert by_name["a"].message is not None
    assert by_name["b"].message is None
    assert by_name["b"].problem.startswith("port='eighty' ")


GOOD = "service: a\nport: 80\nprefix: /a\n"
TRAEFIK = {
    # As charms.traefik_k8s.v2.ingress writes them, and v1, whose values are plain words.
    "v2": {
        "model": '"cos"',
        "name": '"prometheus"',
        "port": "9090",
        "scheme": '"http"',
        "strip-prefix": "true",
        "redirect-https": "true",
        "healthcheck-params": "null",
    },
    "v2, the least": {"model": '"cos"', "name": '"prometheus"', "port": "9090"},
    "v1": {"model": "cos", "name": "prometheus", "host": "prometheus.cos", "port": "9090"},
}


@pytest.mark.parametrize("bag", TRAEFIK.values(), ids=TRAEFIK)
def test_application_that_speaks_traefiks_ingress_is_told_apart_by_its_keys(bag):
    good = {"_supported_versions": "[v1]", "data": GOOD}
    received, _ = provide(
        remote("ingress", "prometheus", **bag),
        remote("ingress", "a", **good),
        act=kubeflow.ingress,
    )
    by_name = {one.application: one for one in received}
    assert by_name["a"].message is not None
    assert by_name["prometheus"].message is None
    assert "Traefik's ingress" in by_name["prometheus"].problem
    assert "remove this relation" in by_name["prometheus"].problem


@given(
    st.dictionaries(st.sampled_from(sorted(TRAEFIK["v2"])), st.text(max_size=20)),
    st.dictionaries(st.sampled_from(["_supported_versions", "data"]), st.text(max_size=20)),
)
def test_keys_of_traefik_matter_only_where_there_are_none_of_ours(theirs, ours):
    said = kubeflow.read_request({**theirs, **ours}, kubeflow.INGRESS_MODELS)
    if ours:
        assert said == kubeflow.read_request(ours, kubeflow.INGRESS_MODELS)
    else:
        is_complete = {"model", "name", "port"} <= theirs.keys()
        assert said[0] is None
        assert ("Traefik" in said[1]) == is_complete
        # What they say is repeated nowhere.
        assert (
            len({said, kubeflow.read_request(dict.fromkeys(theirs, ""), kubeflow.INGRESS_MODELS)})
            == 1
        )


@pytest.mark.parametrize(
    ("bag", "problem"),
    [
        pytest.param({}, "", id="nothing yet"),
        pytest.param({"_supported_versions": "[v1]"}, "", id="versions only"),
        pytest.param({"data": GOOD}, "", id="no versions"),
        pytest.param({"_supported_versions": "[v1]", "data": "{}"}, "", id="empty data"),
        pytest.param(
            {"_supported_versions": "[v3]", "data": GOOD}, "none of the versions", id="v3"
        ),
        pytest.param({"_supported_versions": "v1", "data": GOOD}, "none of the", id="no list"),
        pytest.param({"_supported_versions": "[", "data": GOOD}, "is no YAML", id="bad versions"),
        pytest.param({"_supported_versions": "[v1]", "data": "{"}, "is no YAML", id="bad data"),
        pytest.param({"_supported_versions": "[v1]", "data": "[1]"}, "data", id="a list"),
        pytest.param(
            {"_supported_versions": "[v1]", "data": GOOD.replace("80", "true")}, "port", id="bool"
        ),
        pytest.param(
            {"_supported_versions": "[v1]", "data": GOOD.replace("80", "0")}, "port=0", id="port 0"
        ),
        pytest.param(
            {"_supported_versions": "[v1]", "data": GOOD.replace("/a", "a")},
            "prefix='a'",
            id="path",
        ),
        pytest.param(
            {"_supported_versions": "[v1]", "data": GOOD.replace("/a", '"/a b"')},
            "prefix",
            id="sp",
        ),
        pytest.param(
            {"_supported_versions": "[v1]", "data": GOOD.replace(" a\n", " a.b\n")},
            "service='a.b'",
            id="service is a host",
        ),
        pytest.param(
            {"_supported_versions": "[v2]", "data": GOOD}, "namespace field required", id="v2"
        ),
    ],
)
def test_what_can_not_be_understood_is_named(bag, problem):
    message, said = kubeflow.read_request(bag, kubeflow.INGRESS_MODELS)
    assert message is None
    assert problem in said
    assert bool(said) == bool(problem)
