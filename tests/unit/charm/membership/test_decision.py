"""What becomes of a namespace's labels, whatever they are and whoever set them."""

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.kube import records
from istio_integrator.membership import decision
from istio_integrator.messages import Said

ENABLED = {"istio-injection": "enabled"}
AMBIENT = {"istio.io/dataplane-mode": "ambient"}
LABELS = st.dictionaries(
    st.sampled_from(["istio-injection", "istio.io/rev", "istio.io/dataplane-mode", "team"]),
    st.sampled_from(["enabled", "disabled", "canary", "ambient"]),
)
WANTED = st.sampled_from([None, ENABLED, {"istio.io/rev": "canary"}, AMBIENT])
NO_ZTUNNEL = Said.AMBIENT_LACKS(namespace="ns", mode="ambient", lack="no ztunnel")
RECORDS = st.none() | st.builds(
    records.Record,
    owner=st.sampled_from(["me", "other"]),
    values=st.sampled_from([{}, ENABLED, {"istio.io/rev": "canary"}, AMBIENT]),
    before=st.just({"istio-injection": None}),
)


@st.composite
def places(draw):
    """Labels of a namespace and our record of it, which often says that they are ours."""
    labels, record = draw(LABELS), draw(RECORDS)
    if draw(st.booleans()):
        ours = draw(st.sampled_from([ENABLED, {"istio.io/rev": "canary"}, AMBIENT]))
        rest = {key: labels[key] for key in labels.keys() & {"team"}}
        before = dict.fromkeys(ours)
        return {**rest, **ours}, records.Record(owner="me", values=ours, before=before)
    return labels, record


def plane_of(wanted):
    return "ambient" if wanted == AMBIENT else "sidecar"


def place_of(labels, record, **wanted):
    return decision.Namespace(name="ns", labels=labels, record=record, owner="me", **wanted)


def decided(labels, record, wanted, *, alive=True, missing=None, is_member=lambda labels: False):
    return place_of(
        labels,
        record,
        member_labels=wanted,
        awaited="" if alive else "istiod has injected",
        is_member=is_member,
        data_plane=plane_of(wanted),
        missing=missing,
    ).decide()


def merged(labels, patch):
    return {key: value for key, value in {**labels, **patch}.items() if value is not None}


@given(places(), WANTED, st.booleans())
def test_decision_is_reached_in_one_step(place, wanted, alive):
    labels, record = place
    first = decided(labels, record, wanted, alive=alive)
    after = merged(labels, first.labels)
    second = decided(after, first.record, wanted, alive=alive)
    assert not second.labels
    assert second.joined == first.joined
    if first.labels:
        assert {key: after[key] for key in wanted} == wanted


@hypothesis.example(
    (
        {"istio.io/rev": "canary", **ENABLED},
        records.Record(owner="me", values=ENABLED, before={"istio-injection": None}),
    ),
    {"istio.io/rev": "canary"},
    True,
)
@given(places(), WANTED, st.booleans())
def test_decision_never_touches_what_somebody_else_set(place, wanted, alive):
    labels, record = place
    for key in replaced(place, wanted, alive=alive):
        assert record is not None
        assert record.owner == "me"
        assert record.values.get(key) == labels[key]


def replaced(place, wanted, *, alive):
    """Name the labels that are there and get another value, or go."""
    labels, record = place
    patch = decided(labels, record, wanted, alive=alive).labels
    return {key for key, value in patch.items() if labels.get(key, value) != value}


@given(LABELS, WANTED.filter(bool), WANTED.filter(bool))
def test_what_was_decided_is_undone_whatever_was_wanted_in_between(labels, first, second):
    one = decided(labels, None, first)
    if not one.labels:
        return
    after = merged(labels, one.labels)
    two = decided(after, one.record, second)
    after = merged(after, two.labels)
    assert merged(after, place_of(after, two.record).given_back) == labels


def test_what_was_there_first_is_remembered_through_further_changes():
    revision = "istio.io/rev"
    record = records.Record("me", {revision: "a"}, {revision: "theirs"})
    found = decided({revision: "a"}, record, {revision: "canary"})
    assert found.record.before == {revision: "theirs"}


@given(places(), WANTED, st.booleans())
def test_ambient_is_what_the_namespace_says_afterwards(place, wanted, alive):
    labels, record = place
    found = decided(labels, record, wanted, alive=alive)
    says = merged(labels, found.labels).items() >= AMBIENT.items()
    assert (found.data_plane == "ambient") == (says and wanted == AMBIENT)
    if found.joined and wanted is not None:
        assert says == (wanted == AMBIENT)


def apart(labels, record, membership, data_plane, missing=None):
    asked = {"membership": membership, "data_plane": data_plane, "missing": missing}
    return place_of(labels, record, **asked).decide()


PLANES = st.sampled_from(["sidecar", "ambient"])


@given(places(), st.sampled_from(["none", "selected"]), PLANES)
def test_namespace_that_is_not_to_join_gets_back_what_it_had(place, membership, plane):
    labels, record = place
    found = apart(labels, record, membership, plane)
    after = merged(labels, found.labels)
    if record is None:
        assert (found.record, found.labels) == (None, {})
    elif record.owner == "other":
        assert (found.record, found.labels) == (record, {})
        assert found.problem
    else:
        assert found.record == records.Record("me", {}, {})
        assert after == merged(labels, place_of(labels, record).given_back)


@given(places().filter(lambda place: not place[1] or place[1].owner == "me"), PLANES)
def test_who_is_not_to_join_is_told_what_the_namespace_says(place, plane):
    labels, record = place
    left = merged(labels, place_of(labels, record).given_back)
    says = {key: left[key] for key in left if key != "team"}
    none = apart(labels, record, "none", plane)
    is_ambient = says.get("istio.io/dataplane-mode") == "ambient"
    assert none.data_plane == (plane if is_ambient else "sidecar")
    assert (none.joined, none.problem) == (False, None)

    selected = apart(labels, record, "selected", plane)
    assert selected.joined is not bool(selected.problem)
    assert selected.data_plane == ("sidecar" if selected.problem else plane)
    if not says:
        assert selected.joined
    lacking = apart(labels, record, "selected", plane, NO_ZTUNNEL)
    assert not lacking.joined
    if selected.joined:
        assert (lacking.problem, lacking.labels) == (NO_ZTUNNEL, {})
        assert (lacking.record and lacking.record.values) == (record and record.values)
    else:
        assert lacking.problem == selected.problem
