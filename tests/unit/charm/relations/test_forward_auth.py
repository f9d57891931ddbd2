"""The other side is the library that authorization services' charms are written with."""

import json
import pathlib

import ops
import pytest
import yaml
from charmlibs.interfaces import forward_auth as library
from ops import testing

from istio_integrator.relations import endpoints, kubeflow

ROOT = pathlib.Path(__file__).parents[4]
METADATA = yaml.safe_load((ROOT / "metadata.yaml").read_text())
OIDC_GATEKEEPER = library.ForwardAuthConfig(
    decisions_address="http://oidc-gatekeeper.kubeflow.svc.cluster.local:8080",
    app_names=[],
    headers=["kubeflow-userid"],
)
OATHKEEPER = library.ForwardAuthConfig(
    decisions_address="http://oathkeeper.iam.svc.cluster.local:4456/decisions",
    app_names=["kfp-ui"],
    headers=["X-User"],
)
OAUTH2_PROXY = library.ForwardAuthConfig(
    decisions_address="http://oauth2-proxy-k8s.iam.svc.cluster.local:4180", app_names=["other"]
)


class Provider(ops.CharmBase):
    """An authorization service as the library makes it."""

    config_: library.ForwardAuthConfig | None = None
    told: list = []  # noqa: RUF012

    def __init__(self, framework):
        super().__init__(framework)
        self.auth = library.ForwardAuthProvider(self, forward_auth_config=Provider.config_)
        framework.observe(self.auth.on.forward_auth_proxy_set, self._on_set)
        framework.observe(self.auth.on.invalid_forward_auth_config, self._on_invalid)

    def _on_set(self, _):
        Provider.told.append("protected")

    def _on_invalid(self, event):
        Provider.told.append(event.error)


def provide(monkeypatch, config, event, **bags):
    """Run the other side; its relation comes back."""
    monkeypatch.setattr(Provider, "config_", config)
    monkeypatch.setattr(Provider, "told", [])
    interface = {"interface": METADATA["requires"]["forward-auth"]["interface"]}
    ctx = testing.Context(
        Provider, meta={"name": "provider", "provides": {"forward-auth": interface}}
    )
    relation = testing.Relation("forward-auth", **interface, **bags)
    state = testing.State(leader=True, relations={relation})
    out = ctx.run(getattr(ctx.on, event)(relation), state)
    return out.get_relation(relation.id)


class Requirer(ops.CharmBase):
    """Holds our relations."""


def act(given, *relations):
    """Do something with our relations; its answer and the state after it come back."""
    meta = {key: METADATA[key] for key in ("name", "provides", "requires")}
    ctx = testing.Context(Requirer, meta=meta)
    state = testing.State(leader=True, relations=set(relations))
    with ctx(ctx.on.start(), state) as manager:
        charm = manager.charm
        answer = given(endpoints.Relations(charm.model, charm.app, leader=True))
        return answer, manager.run()


def asking(bag, application="oauth2-proxy"):
    return testing.Relation("forward-auth", remote_app_name=application, remote_app_data=bag)


@pytest.mark.parametrize(
    ("config", "address", "headers"),
    [
        pytest.param(
            OIDC_GATEKEEPER,
            ("oidc-gatekeeper.kubeflow.svc.cluster.local", 8080, ""),
            ("kubeflow-userid",),
            id="oidc-gatekeeper",
        ),
        pytest.param(
            OATHKEEPER,
            ("oathkeeper.iam.svc.cluster.local", 4456, "/decisions"),
            ("x-user",),
            id="oathkeeper",
        ),
        pytest.param(
            OAUTH2_PROXY,
            ("oauth2-proxy-k8s.iam.svc.cluster.local", 4180, ""),
            (),
            id="oauth2-proxy",
        ),
    ],
)
def test_forward_auth_is_agreed_with_the_library(monkeypatch, config, address, headers):
    bag = provide(monkeypatch, config, "relation_created").local_app_data
    (found,), _ = act(kubeflow.forward_auth, asking(bag, "service"))
    assert (found.application, found.problem) == ("service", "")
    assert found.message.decisions_address == kubeflow.Address(*address)
    assert found.message.headers == headers
    assert found.message.app_names == tuple(config.app_names)


def test_application_that_has_said_nothing_yet_is_waited_for(monkeypatch):
    bag = provide(monkeypatch, None, "relation_created").local_app_data
    (found,), _ = act(kubeflow.forward_auth, asking(bag))
    assert (found.message, found.problem) == (None, "")


@pytest.mark.parametrize("given", [{"decisions_address": "http://a.b.svc"}, {"app_names": "[]"}])
def test_half_of_what_there_is_to_say_is_waited_for(given):
    assert kubeflow.read_forward_auth(given) == (None, "")


@pytest.mark.parametrize(
    ("routed", "words"),
    [(("kfp-ui", "dex-auth"), "protected"), (("dex-auth",), "kfp-ui is not related via ingress")],
)
def test_applications_that_we_route_to_are_those_that_the_library_lets_protect(
    monkeypatch, routed, words
):
    ours = asking({})
    routes = [testing.Relation("ingress", remote_app_name=name) for name in routed]
    _, out = act(kubeflow.publish_routed, ours, *routes)
    bag = out.get_relation(ours.id).local_app_data
    assert json.loads(bag["ingress_app_names"]) == sorted(routed)
    before = provide(monkeypatch, OATHKEEPER, "relation_created").local_app_data
    provide(
        monkeypatch,
        OATHKEEPER,
        "relation_changed",
        remote_app_data=dict(bag),
        local_app_data=dict(before),
    )
    assert Provider.told == [words]


def bag(address="http://oauth2-proxy.kubeflow.svc:4180", **more):
    return {"decisions_address": address, "app_names": "[]", **more}


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("http://a.b.svc.cluster.local", ("a.b.svc.cluster.local", 80, "")),
        ("http://a.b.svc:1/", ("a.b.svc", 1, "")),
        ("http://A.b.svc:1/auth/", ("a.b.svc", 1, "/auth")),
        ("http://[::1]:80/x", ("::1", 80, "/x")),
    ],
)
def test_address_is_read_with_its_path(address, want):
    message, problem = kubeflow.read_forward_auth(bag(address))
    assert problem == ""
    assert message.decisions_address == kubeflow.Address(*want)


DEEP = "[" * 2000 + "]" * 2000


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (bag("https://a.b.svc"), "does not begin with http://"),
        (bag("ftp://a.b.svc"), "does not begin with http://"),
        (bag("a.b.svc:80"), "does not begin with http://"),
        (bag("http://a.b.svc/x?y"), "has more than"),
        (bag("http://a.b.svc/x?"), "has more than"),
        (bag("http://a.b.svc/x#y"), "has more than"),
        (bag("http://u:p@a.b.svc/"), "has more than"),
        (bag("http://a.b.svc:99999"), "ort out of range"),
        (bag("http://a.b.svc:x"), "decisions_address"),
        (bag("http://a.b.svc:0"), "port 0"),
        (bag("http://[::1"), "decisions_address"),
        (bag("http:///x"), "has no host"),
        (bag("http://a.b.svc/\n"), "is not a URL"),
        (bag("http://a.b.svc/\x1b[2J"), "is not a URL"),
        (bag("http://a.b.svc/" + "x" * 5000), "is longer than"),
        (bag(app_names="5"), "app_names"),
        (bag(app_names="{"), "app_names='{' is no JSON"),
        (bag(app_names=DEEP), "nests more than"),
        (bag(app_names=json.dumps(["a"] * 300)), "app_names"),
        (bag(app_names=json.dumps([{"a": 1}])), "app_names"),
        (bag(headers="kubeflow-userid"), "headers='kubeflow-userid' is no JSON"),
        (bag(headers='["a b"]'), "is not the name of a header"),
        (bag(headers='["a\\nb"]'), "is not the name of a header"),
        (bag(headers=json.dumps(["a" * 200])), "is not the name of a header"),
        (bag(headers=json.dumps([f"a{n}" for n in range(99)])), "has more than 64 headers"),
        (bag(headers=json.dumps([5])), "headers"),
        (bag(headers='{"a": "b"}'), "headers"),
    ],
)
def test_what_nobody_should_read_is_a_problem_of_its_sender(given, problem):
    message, said = kubeflow.read_forward_auth(given)
    assert message is None
    assert problem in said
    assert said.isprintable()
    assert len(said) < 500
