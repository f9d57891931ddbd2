"""The wire format of service_mesh, with the library that charms use on the other side."""

import json

import ops
import pytest
from charmlibs.interfaces import service_mesh as library
from hypothesis import given
from hypothesis import strategies as st
from ops import testing

from istio_integrator.relations import endpoints, service_mesh

META = {
    "name": "kfp-api",
    "requires": {
        "service-mesh": {"interface": "service_mesh", "limit": 1},
        "require-cmr-mesh": {"interface": "cross_model_mesh"},
    },
    "provides": {
        "kfp-api": {"interface": "k8s-service"},
        "metrics-endpoint": {"interface": "prometheus_scrape"},
        "provide-cmr-mesh": {"interface": "cross_model_mesh"},
    },
}
STATED = {
    "source_namespace": "kubeflow",
    "source_app_name": "kfp-ui",
    "target_namespace": "kubeflow",
    "target_app_name": "kfp-api",
    "target_type": "app",
    "endpoints": [],
}


class Consumer(ops.CharmBase):
    """An application that says who may call it, by the library."""

    heard = None

    def __init__(self, framework):
        super().__init__(framework)
        self.mesh = library.ServiceMeshConsumer(
            self,
            policies=[
                library.AppPolicy(
                    relation="kfp-api",
                    endpoints=[
                        library.Endpoint(
                            ports=[8888],
                            methods=[library.Method.get],
                            paths=["/apis/*"],
                            hosts=["ml-pipeline.kubeflow.svc.cluster.local"],
                        )
                    ],
                    service="ml-pipeline",
                ),
                library.UnitPolicy(relation="metrics-endpoint", ports=[9090]),
            ],
            auto_join=False,
        )
        Consumer.heard = (self.mesh.labels(), self.mesh.mesh_type())


def consume(model="kubeflow", **bag):
    """What a consumer with two clients writes, and what it hears of our data bag."""
    mesh = testing.Relation("service-mesh", remote_app_data=bag)
    clients = [
        testing.Relation("kfp-api", remote_app_name="kfp-ui"),
        testing.Relation("kfp-api", remote_app_name="kfp-persistence"),
        testing.Relation("metrics-endpoint", remote_app_name="prometheus"),
    ]
    ctx = testing.Context(Consumer, META)
    state = testing.State(
        leader=True,
        relations=[mesh, *clients],
        model=testing.Model(model, type="kubernetes"),
    )
    out = ctx.run(ctx.on.relation_created(mesh), state)
    return out.get_relation(mesh.id).local_app_data, Consumer.heard


def read(policies, application="kfp-api"):
    text = policies if isinstance(policies, str) else json.dumps(policies)
    bag = endpoints.Bag(3, application, {"policies": text})
    return service_mesh.read(bag, model="kubeflow")


def test_what_the_library_writes_is_read_whole():
    bag, _ = consume()
    one = service_mesh.read(endpoints.Bag(3, "kfp-api", bag), model="kubeflow")
    assert not one.problems
    assert {(each.source_app_name, each.target_type) for each in one.policies} == {
        ("kfp-ui", "app"),
        ("kfp-persistence", "app"),
        ("prometheus", "unit"),
    }
    (ui,) = (each for each in one.policies if each.source_app_name == "kfp-ui")
    assert ui.target_service == "ml-pipeline"
    assert ui.endpoints == (
        service_mesh.Endpoint(
            ports=(8888,),
            methods=("GET",),
            paths=("/apis/*",),
            hosts=("ml-pipeline.kubeflow.svc.cluster.local",),
        ),
    )


class Related:
    """Our side of the relation, which keeps what it is told to write."""

    def __init__(self):
        self.bag = {}

    def write(self, endpoint, bag):
        assert endpoint == "service-mesh"
        self.bag |= bag


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param({}, id="none"),
        pytest.param({"istio.io/rev": "1-31"}, id="of a revision"),
    ],
)
def test_answer_is_heard_by_the_library(labels):
    ours = Related()
    service_mesh.answer(ours, labels=labels)
    assert set(ours.bag) == {"labels", "mesh_type"}
    _, heard = consume(**ours.bag)
    assert heard == (labels, library.MeshType.istio)


def test_silent_application_states_nothing():
    one = service_mesh.read(endpoints.Bag(3, "kfp-api", {}), model="kubeflow")
    assert (one.policies, one.problems) == ((), ())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"target_namespace": "alice"}, "namespace alice", id="another namespace"),
    ],
)
def test_policy_for_another_namespace_is_refused_and_the_next_one_is_not(change, words):
    one = read([{**STATED, **change}, STATED])
    assert len(one.policies) == 1
    assert words in one.problems[0]


UNIT = {"target_type": "unit"}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"source_app_name": "kfp-ui*"}, id="wildcard"),
        pytest.param({"source_app_name": "*"}, id="everybody"),
        pytest.param({"source_namespace": "kube/flow"}, id="path for a namespace"),
        pytest.param({"source_app_name": ""}, id="no name"),
        pytest.param({"source_app_name": None}, id="null for a name"),
        pytest.param({"target_app_name": "KFP"}, id="upper case"),
        pytest.param({"target_app_name": None}, id="no target"),
        pytest.param({"target_service": "a.b"}, id="host for a Service"),
        pytest.param({"target_selector_labels": {"a": "b"}}, id="labels for an application"),
        pytest.param({"target_type": "pod"}, id="unknown type"),
        pytest.param({**UNIT, "endpoints": [{"paths": ["/x"]}]}, id="paths for a unit"),
        pytest.param({**UNIT, "endpoints": [{"methods": ["GET"]}]}, id="methods for a unit"),
        pytest.param({**UNIT, "endpoints": [{"hosts": ["a"]}]}, id="hosts for a unit"),
        pytest.param({**UNIT, "target_service": "kfp-api"}, id="Service for a unit"),
        pytest.param(
            {**UNIT, "target_selector_labels": {"a": "b"}}, id="name and labels for a unit"
        ),
        pytest.param(
            {**UNIT, "target_app_name": None, "target_selector_labels": {"a": "b c"}},
            id="no label",
        ),
        pytest.param({"endpoints": [{"ports": [0]}]}, id="port 0"),
        pytest.param({"endpoints": [{"ports": ["8888"]}]}, id="text for a port"),
        pytest.param({"endpoints": [{"ports": [True]}]}, id="bool for a port"),
        pytest.param({"endpoints": [{"ports": list(range(1, 40))}]}, id="too many ports"),
        pytest.param({"endpoints": [{"paths": ["x"]}]}, id="no path"),
        pytest.param({"endpoints": [{"paths": ["/{a}"]}]}, id="template for a path"),
        pytest.param({"endpoints": [{"paths": ["/a*b"]}]}, id="asterisk within a path"),
        pytest.param({"endpoints": [{"paths": ["/" + "a" * 300]}]}, id="long path"),
        pytest.param({"endpoints": [{"methods": ["get"]}]}, id="no method"),
        pytest.param({"endpoints": [{"hosts": ["a b"]}]}, id="no host"),
        pytest.param({"endpoints": [{}] * 17}, id="too many endpoints"),
    ],
)
def test_policy_that_is_none_is_refused_by_its_number_and_costs_no_other(change):
    one = read([STATED, {**STATED, **change}])
    assert len(one.policies) == 1
    assert one.problems[0].startswith("policy 2: ")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{}", id="no list"),
        pytest.param("[", id="no JSON"),
        pytest.param("[" * 100 + "]" * 100, id="too deep"),
        pytest.param(json.dumps([STATED] * 513), id="too many"),
        pytest.param(json.dumps(["x" * service_mesh.LONGEST]), id="too long"),
        pytest.param("[1, 2, null]", id="no policies"),
    ],
)
def test_document_that_is_none_states_nothing_and_says_so(text):
    one = read(text)
    assert not one.policies
    assert one.problems


def test_most_that_an_application_may_say_is_read():
    many = [{**STATED, "source_app_name": f"client-{number}"} for number in range(512)]
    assert len(read(many).policies) == 512


def test_problems_of_many_policies_are_few_lines():
    assert len(read([5] * 100).problems) == 5


REMOTE = "remote-0123456789abcdef0123456789abcdef"


def test_application_of_another_model_is_refused_by_name_as_the_library_writes():
    bag, _ = consume(model="other")
    said = json.loads(bag["policies"])
    assert {each["target_namespace"] for each in said} == {"other"}
    for mine in ([], [{**each, "target_namespace": "kubeflow"} for each in said]):
        one = read(mine or bag["policies"], application=REMOTE)
        assert not one.policies
        assert one.problems == (
            "is of another model: relate it to an integrator of its own model",
        )
        assert REMOTE in one.reference


def test_application_of_another_model_that_is_consumed_speaks_of_its_own_namespace():
    bag, _ = consume(model="other")
    one = read(bag["policies"], application="kfp-api-of-theirs")
    assert not one.policies
    assert one.problems[0] == "policy 1 is for namespace other, which is not kubeflow"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(JSON | st.fixed_dictionaries(dict.fromkeys(STATED, JSON)), max_size=3))
def test_whatever_is_sent_another_policy_beside_it_stands(odd):
    policies = read([STATED, *odd]).policies
    assert policies[0].source_app_name == "kfp-ui"
