import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import names
from istio_integrator.ingress import record
from istio_integrator.kube import cluster, errors, manifests

TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  text: {{ text | tojson }}
{% if extra %}
  extra: {{ extra | tojson }}
{% endif %}
{% if binding %}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ binding | tojson }}
rules: []
{% endif %}
"""


def values(extra="", binding="one"):
    return {"text": "hello", "extra": extra, "binding": binding}


@pytest.fixture
def own(fake, tmp_path, monkeypatch) -> manifests.Manifests:
    (tmp_path / "thing").mkdir()
    (tmp_path / "thing" / "all.yaml.j2").write_text(TEMPLATE)
    monkeypatch.setattr(manifests, "TEMPLATES", tmp_path)
    manifests.environment.cache_clear()
    yield manifests.Manifests(fake.api(), model="kubeflow", application="istio-integrator")
    manifests.environment.cache_clear()


def owners_of(obj):
    return [(each["kind"], each["uid"]) for each in obj["metadata"].get("ownerReferences", ())]


@pytest.mark.parametrize("is_deployed", [False, True])
def test_applied_objects_bear_the_marks_of_their_owner_and_go_with_it(fake, own, is_deployed):
    if is_deployed:
        fake.application()
    own.apply("thing", values())
    settings, one = fake.find("ConfigMap", "settings", "kubeflow"), fake.find("ClusterRole", "one")
    assert settings["data"] == {"text": "hello"}
    assert settings["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "istio-integrator",
        "istio-integrator.charmhub.io/owner": "kubeflow.istio-integrator",
        "istio-integrator.charmhub.io/component": "thing",
    }
    model = [("Namespace", fake.find("Namespace", "kubeflow")["metadata"]["uid"])]
    if not is_deployed:
        # The model takes with it what is in its namespace.
        assert (owners_of(settings), owners_of(one)) == ([], model)
    else:
        role = fake.find("ClusterRole", "kubeflow-istio-integrator")
        application = [("ClusterRole", role["metadata"]["uid"])]
        assert owners_of(settings) == owners_of(one) == application
        assert owners_of(role) == model
    assert not one["metadata"]["ownerReferences"][0]["blockOwnerDeletion"]


def test_apply_of_the_same_writes_nothing_and_leaves_what_others_added(fake, own):
    own.apply("thing", values())
    live = fake.find("ConfigMap", "settings", "kubeflow")
    live["metadata"]["labels"]["app.juju.is/created-by"] = "istio-integrator"
    fake.writes.clear()
    own.apply("thing", values())
    assert fake.writes == []


@pytest.mark.parametrize("before", [{"binding": "two"}, {"extra": "x"}])
def test_apply_repairs_what_changed_and_takes_away_what_is_wanted_no_more(fake, own, before):
    own.apply("thing", values(**before))
    fake.find("ConfigMap", "settings", "kubeflow")["data"]["text"] = "drifted"
    own.apply("thing", values())
    assert fake.find("ConfigMap", "settings", "kubeflow")["data"] == {"text": "hello"}
    assert fake.find("ClusterRole", "two") is None
    assert fake.find("ClusterRole", "one")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        pytest.param({}, "was not made by this charm", id="of nobody"),
        pytest.param({names.OWNER: "other.app"}, "belongs to other.app", id="of another"),
    ],
)
def test_apply_refuses_a_foreign_object_and_changes_nothing(fake, own, labels, words):
    fake.namespace("other")
    fake.application("app", "other")
    fake.add(role_one(labels))
    fake.writes.clear()
    with pytest.raises(errors.ForeignError, match=f"ClusterRole one exists and {words}"):
        own.apply("thing", values())
    assert fake.writes == []


def test_apply_takes_over_what_an_application_left_that_is_no_more(fake, own):
    fake.namespace("other")
    fake.add(role_one({names.OWNER: "other.app"}))
    own.apply("thing", values())
    labels = fake.find("ClusterRole", "one")["metadata"]["labels"]
    assert labels[names.OWNER] == "kubeflow.istio-integrator"


def role_one(labels):
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "one", "labels": labels},
    }


def test_what_the_workload_keeps_goes_with_the_application_too(fake, own):
    kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memory"}}
    kept["metadata"]["namespace"] = "kubeflow"
    fake.add(kept)
    own.tie(cluster.CONFIG_MAP, "memory")
    assert fake.writes == []
    fake.application()
    again = manifests.Manifests(fake.api(), model="kubeflow", application="istio-integrator")
    again.tie(cluster.CONFIG_MAP, "memory")
    (owner,) = fake.find("ConfigMap", "memory", "kubeflow")["metadata"]["ownerReferences"]
    assert owner["name"] == "kubeflow-istio-integrator"
    fake.writes.clear()
    again.tie(cluster.CONFIG_MAP, "memory")
    assert fake.writes == []


def test_remove_takes_everything_ours_and_nothing_else(fake, own):
    other = manifests.Manifests(fake.api(), model="kubeflow", application="other")
    other.apply("thing", values(binding="two"))
    fake.delete("ConfigMap", "settings", "kubeflow")
    own.apply("thing", values())
    own.remove("thing")
    own.remove("thing")
    assert fake.find("ConfigMap", "settings", "kubeflow") is None
    assert fake.find("ClusterRole", "one") is None
    assert fake.find("ClusterRole", "two")


def test_kind_that_is_not_served_is_said_when_applied_and_nothing_to_remove(fake, own):
    own.apply("thing", values())
    fake.absent.add("rbac.authorization.k8s.io/v1")
    with pytest.raises(errors.KindAbsentError):
        own.apply("thing", values())
    own.remove("thing")
    assert fake.find("ConfigMap", "settings", "kubeflow") is None


def test_removal_without_cluster_wide_rights_looks_in_the_model(fake, own):
    own.apply("thing", values(binding=""))
    fake.forbidden |= {("list", "clusterroles"), ("list", "configmaps", "")}
    again = manifests.Manifests(fake.api(), model="kubeflow", application="istio-integrator")
    again.remove("thing")
    assert fake.find("ConfigMap", "settings", "kubeflow") is None
    assert [*again.unseen] == ["clusterroles"]


@given(st.text())
def test_rendered_text_is_what_was_given(text):
    rendered = (
        manifests.environment(manifests.TEMPLATES)
        .from_string("x: {{ text | tojson }}")
        .render(text=text)
    )
    assert manifests.yaml.safe_load(rendered) == {"x": text}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=2), JSON, max_size=3)


@given(OBJECTS, OBJECTS)
def test_object_with_more_than_wanted_is_current(wanted, more):
    assert manifests.is_current({**more, **wanted}, wanted)


def test_every_template_names_its_kinds_where_prune_looks():
    for folder in sorted(manifests.TEMPLATES.iterdir()):
        sources = "".join(path.read_text() for path in folder.glob("*.yaml.j2"))
        assert sources.count("\nkind: ") == len(manifests._KIND_LINES.findall(sources)), folder


@pytest.fixture
def shipped(fake) -> manifests.Manifests:
    return manifests.Manifests(fake.api(), model="kubeflow", application="istio-integrator")


def test_secrets_are_found_and_removed_by_name_and_never_listed(fake, shipped):
    fake.forbidden.add(("list", "secrets"))
    name = shipped.secrets[record.FOLDER]
    shipped.apply(record.FOLDER, {"name": name, "annotations": {}, "data": {}})
    assert [cluster.reference(obj) for obj in shipped.owned()] == [
        "Secret kubeflow/istio-integrator-record"
    ]
    shipped.prune_retired()
    assert fake.find("Secret", name, "kubeflow")
    shipped.remove(record.FOLDER)
    assert fake.find("Secret", name, "kubeflow") is None


def test_secret_of_our_name_that_is_somebody_elses_is_left_alone(fake, shipped):
    name = shipped.secrets[record.FOLDER]
    metadata = {"name": name, "namespace": "kubeflow"}
    fake.add({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    shipped.remove(record.FOLDER)
    assert fake.find("Secret", name, "kubeflow")
    assert shipped.owned() == []


def test_only_what_may_lie_at_the_gateway_is_looked_for_outside_of_the_model(fake, shipped):
    listed = {kind for folder in manifests._folders() for kind in manifests.kinds(folder)}
    everywhere = {"EnvoyFilter", "AuthorizationPolicy"}
    for kind in listed:
        if kind.namespaced and kind.name not in everywhere:
            fake.forbidden.add(("list", kind.plural, ""))
    assert shipped.owned() == []


@pytest.mark.parametrize("code", [400, 503])
def test_refusal_that_no_part_is_the_reason_of_is_raised(fake, own, code):
    fake.broken[("patch", "configmaps")] = 422
    if code == 503:
        fake.broken[("create", "configmaps")] = code
    with pytest.raises(errors.ApiError, match="the server says no"):
        own.apply_fitting("thing", {"a": [""], "b": [""]}, lambda _: values(binding=""))
    assert not [write for write in fake.writes if "configmaps" in write]
