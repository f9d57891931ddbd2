import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.istio import native_sidecars


def decide(mode, shown, versions, *, by_default=False):
    nodes = [{"status": {"nodeInfo": {"kubeletVersion": each}}} for each in versions or ()]

    def listed():
        assert versions is not None, "the nodes are asked where they have no say"
        return nodes

    return native_sidecars.decide(mode, shown=shown, by_default=by_default, nodes=listed)


@pytest.mark.parametrize(
    ("mode", "shown", "kubelets", "expected"),
    [
        pytest.param("auto", True, ["v1.33.0"], True, id="auto on 1.33"),
        pytest.param("auto", True, ["v1.33.0", "v1.32.9"], False, id="auto with an older node"),
        pytest.param("auto", False, None, False, id="auto but not injected"),
        pytest.param("auto", True, [], False, id="auto without nodes"),
        pytest.param("native", True, ["v1.29.1"], True, id="native on beta kubelets"),
        pytest.param("native", True, ["v1.28.9"], False, id="native on kubelets without"),
        pytest.param("native", False, None, False, id="native but not injected"),
        pytest.param("classic", True, None, False, id="classic"),
        pytest.param("auto", True, ["v1.33.4-eks-1"], True, id="a provider's version"),
        pytest.param("auto", True, ["unknown"], False, id="no version"),
    ],
)
def test_native_sidecars_are_used_where_all_agree(mode, shown, kubelets, expected):
    assert decide(mode, shown, kubelets)[0] is expected


@pytest.mark.parametrize(
    ("mode", "kubelets", "expected"),
    [("auto", None, True), ("native", ["v1.28.0"], False), ("classic", None, False)],
)
def test_istiod_that_injects_native_sidecars_anyway_asks_no_node(mode, kubelets, expected):
    assert decide(mode, True, kubelets, by_default=True)[0] is expected


@pytest.mark.parametrize("kubelets", [[], ["unknown"], ["v1.36.3", ""]])
def test_kubelet_whose_version_is_not_known_is_not_called_too_old(kubelets):
    """Nothing about it is said but that."""
    decision, said = decide("native", True, kubelets)
    assert decision is False
    assert said.text == "job-sidecars=native, but not every node tells its kubelet's version"


@given(
    st.sampled_from(["auto", "native", "classic"]),
    st.booleans(),
    st.lists(st.tuples(st.just(1), st.integers(20, 40)), max_size=4),
)
def test_native_sidecars_need_the_injector_and_every_kubelet(mode, shown, minors):
    decision, _ = decide(mode, shown, [f"v{major}.{minor}.1" for major, minor in minors])
    if decision:
        assert shown
        assert mode != "classic"
        assert min(minor for _, minor in minors) >= (33 if mode == "auto" else 29)
