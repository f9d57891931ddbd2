import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import names
from istio_integrator.config import config
from istio_integrator.ingress import service_annotations
from istio_integrator.kube import errors

OWNER = "kubeflow.istio-integrator"
KEYS = st.sampled_from(["a.b/c", "d", "e"])
ANNOTATIONS = st.dictionaries(KEYS, st.sampled_from(["1", "2"]))


def applied(live, wanted, owner=OWNER):
    patch = service_annotations.decide(live, wanted, owner)
    assert not isinstance(patch, str)
    merged = {**live, **patch}
    return {key: value for key, value in merged.items() if value is not None}


@given(ANNOTATIONS, st.lists(ANNOTATIONS, max_size=3))
def test_what_was_there_is_there_again_afterwards(before, wishes):
    live = before
    for wanted in wishes:
        live = applied(live, wanted)
        assert wanted.items() <= live.items()
        assert service_annotations.decide(live, wanted, OWNER) == {}
    assert applied(live, {}) == before


def test_what_somebody_changed_since_is_theirs():
    live = applied({"d": "0"}, {"d": "1", "e": "1"})
    assert applied({**live, "d": "theirs"}, {}) == {"d": "theirs"}


def test_service_in_the_care_of_another_integrator_is_left_alone():
    live = applied({}, {"d": "1"}, owner="other.integrator")
    problem = service_annotations.decide(live, {"d": "2"}, OWNER)
    assert problem == "its annotations are managed by other.integrator"
    assert service_annotations.decide(live, {}, OWNER) == {}


def test_record_of_an_integrator_that_is_no_more_is_inherited():
    live = applied({"d": "0"}, {"d": "1"}, owner="other.integrator")
    patch = service_annotations.decide(live, {"d": "1"}, OWNER, lambda owner: owner[0] == "o")
    assert set(patch) == {names.ANNOTATIONS}
    assert applied({**live, **patch}, {}) == {"d": "0"}


def test_record_that_can_not_be_read_counts_as_none():
    live = {names.ANNOTATIONS: "nonsense"}
    assert applied(live, {"d": "1"})["d"] == "1"


def load(**options):
    return config.Config.load({key.replace("_", "-"): value for key, value in options.items()})


def test_annotations_are_a_mapping():
    found = load(gateway_service_annotations="{x.y/z: 'true', w: v}")
    assert found.gateway_service_annotations == {"x.y/z": "true", "w": "v"}


@pytest.mark.parametrize(
    "options",
    [
        {"gateway_service": "a/b", "gateway_service_annotations": "{a: 1}"},
        {"gateway_service": "a/b", "gateway_service_annotations": "{a b: c}"},
        {"gateway_service": "a/b", "gateway_service_annotations": "[a]"},
        {"gateway_service": "a/b", "gateway_service_annotations": "{"},
        {"gateway_service": "b"},
        {"gateway_service": "A/b"},
        {"hosts": "localhost"},
        {"hosts": "https://kf.example.com"},
        {"hosts": "kf.example.com, *"},
        {"tls_secret": "a/b"},
    ],
)
def test_option_that_does_not_follow_its_grammar_is_named(options):
    with pytest.raises(errors.ConfigError) as raised:
        load(**options)
    (problem,) = raised.value.problems
    assert problem.startswith(list(options)[-1].replace("_", "-"))
