"""What is remembered survives being written, and what can't be read does no harm."""

import hypothesis.strategies as st
from hypothesis import given
from sidecar_lifecycle.decide.convergence import memory

ROUNDS = st.builds(
    memory.Round,
    pod=st.text(),
    uid=st.text(),
    known=st.lists(st.text()).map(tuple),
    was_ready=st.booleans(),
    ready_before=st.integers(0, 9),
    since=st.floats(0, 2e9),
    fingerprint=st.text(),
)
MEMORIES = st.builds(
    memory.Memory,
    rounds=st.dictionaries(st.text(), ROUNDS),
    proven=st.lists(st.text()).map(tuple),
    answered=st.text(),
)


@given(MEMORIES)
def test_a_memory_comes_back_as_it_was(remembered):
    assert memory.decode({memory.STATE: memory.encode(remembered)}) == remembered


@given(st.dictionaries(st.sampled_from([memory.STATE, memory.REQUEST]), st.text()))
def test_anything_can_be_read(data):
    assert isinstance(memory.decode(data), memory.Memory)


def test_a_new_request_is_taken_over_once():
    data = {memory.REQUEST: '{"id": "7", "at": 1.0, "uids": ["u"]}'}
    taken = memory.decode(data)
    assert taken.request.uids == ("u",)

    done = memory.Memory(answered="7")
    assert memory.decode({**data, memory.STATE: memory.encode(done)}).request is None
