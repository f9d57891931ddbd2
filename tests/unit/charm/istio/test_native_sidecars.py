import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.istio import native_sidecars


@pytest.mark.parametrize(
    ("mode", "shown", "kubelets", "expected"),
    [
        pytest.param("auto", True, ["v1.33.0"], True, id="auto on 1.33"),
        pytest.param("auto", True, ["v1.33.0", "v1.32.9"], False, id="auto with an older node"),
        pytest.param("auto", False, ["v1.36.0"], False, id="auto but not injected"),
        pytest.param("auto", True, [], False, id="auto without nodes"),
        pytest.param("auto", True, None, True, id="auto where nodes have no say"),
        pytest.param("native", True, ["v1.29.1"], True, id="native on beta kubelets"),
        pytest.param("native", True, ["v1.28.9"], False, id="native on kubelets without"),
        pytest.param("native", False, ["v1.36.0"], False, id="native but not injected"),
        pytest.param("classic", True, ["v1.36.0"], False, id="classic"),
        pytest.param("auto", True, ["v1.33.4-eks-1"], True, id="a provider's version"),
        pytest.param("auto", True, ["unknown"], False, id="no version"),
    ],
)
def test_native_sidecars_are_used_where_all_agree(mode, shown, kubelets, expected):
    assert native_sidecars.decide(mode, shown=shown, kubelets=kubelets)[0] is expected


@pytest.mark.parametrize("kubelets", [[], ["unknown"], ["v1.36.3", ""]])
def test_kubelet_whose_version_is_not_known_is_not_called_too_old(kubelets):
    """Nothing about it is said but that."""
    decision, said = native_sidecars.decide("native", shown=True, kubelets=kubelets)
    assert decision is False
    assert said.text == "job-sidecars=native, but not every node tells its kubelet's version"


@pytest.mark.parametrize(
    ("mode", "shown", "by_default", "expected"),
    [
        pytest.param("auto", True, False, True, id="an istiod that injects them if asked"),
        pytest.param("auto", True, True, False, id="an istiod that injects them anyway"),
        pytest.param("auto", False, False, False, id="an istiod that does not"),
        pytest.param("native", True, True, True, id="native, which warns of old ones"),
        pytest.param("native", False, False, False, id="native which is not to be had"),
        pytest.param("classic", True, True, False, id="classic"),
    ],
)
def test_kubelets_are_asked_only_where_they_decide(mode, shown, by_default, expected):
    found = native_sidecars.depends_on_kubelets(mode, shown=shown, by_default=by_default)
    assert found is expected


@given(
    st.sampled_from(["auto", "native", "classic"]),
    st.booleans(),
    st.lists(st.tuples(st.just(1), st.integers(20, 40)), max_size=4),
)
def test_native_sidecars_need_the_injector_and_every_kubelet(mode, shown, minors):
    kubelets = [f"v{major}.{minor}.1" for major, minor in minors]
    decision, _ = native_sidecars.decide(mode, shown=shown, kubelets=kubelets)
    if decision:
        assert shown
        assert mode != "classic"
        assert min(minor for _, minor in minors) >= (33 if mode == "auto" else 29)
