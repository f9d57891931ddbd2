"""What the soak takes for growth."""

import pathlib
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from tests.e2e import soak


@given(
    st.lists(st.floats(-0.9, 0.9), min_size=160, max_size=400),
    st.floats(min_value=0.03, max_value=1),
)
def test_a_leak_shows_through_the_noise(noise, leak):
    samples = [50 + leak * each + wobble for each, wobble in enumerate(noise)]
    assert soak.trend("process", "MiB", samples).grows


@given(st.lists(st.floats(0, 1.9), min_size=4, max_size=400))
def test_noise_is_no_growth(noise):
    assert not soak.trend("process", "MiB", noise).grows


@given(st.floats(0, 100), st.lists(st.floats(0, 100), max_size=99))
def test_warming_up_is_no_growth(least, rest):
    steady = [200.0] * (3 * len(rest) + 3)
    assert not soak.trend("process", "MiB", [least, *rest, *steady]).grows


def test_one_object_more_is_growth():
    assert soak.trend("cluster", "objects", [5] * 40 + [6] * 40).grows


def test_process_is_measured_by_its_container():
    program = pathlib.Path("/proc/self/comm").read_text().strip()
    identity = pathlib.Path("/proc/self/cgroup").read_text().strip()[-12:]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = soak.usage({identity: "ours"}, young=0)[f"ours {program}"]
        assert found.resident > 1
        assert found.files >= 3
        assert soak.usage({identity: "ours"}, young=1e9) == {}
        child.stdin.close()
