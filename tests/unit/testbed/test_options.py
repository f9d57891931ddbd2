import pytest

from testbed import addresses, options
from testbed.options import Options


@pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(Options(), id="defaults"),
        pytest.param(Options(control_plane_only=True), id="plane"),
        pytest.param(Options(control_plane_only=True, kubernetes="1.34"), id="older"),
        pytest.param(Options(revision="1-31-1", classic_sidecars=True), id="revision"),
        pytest.param(Options(extras=("training-operator",)), id="extra"),
        pytest.param(Options(without_istio=True, classic_sidecars=True), id="istio-later"),
        pytest.param(Options(external_istiod=True, cni=True), id="istio-elsewhere"),
        pytest.param(Options(nodes=addresses.NODES), id="nodes"),
    ],
)
def test_options_that_make_sense_have_no_problems(wanted: Options):
    assert wanted.problems() == []


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        pytest.param(Options(revision="Canary"), "--revision 'Canary'", id="upper-case"),
        pytest.param(Options(revision="a" * 57), "at most 56", id="long-revision"),
        pytest.param(Options(extras=("argo",)), "--with argo: unknown", id="extra"),
        pytest.param(
            Options(control_plane_only=True, extras=("training-operator",)),
            "--with needs a node",
            id="extra-without-node",
        ),
        pytest.param(
            Options(control_plane_only=True, revision="a"), "--revision needs", id="no-istio"
        ),
        pytest.param(Options(control_plane_only=True, cni=True), "--cni needs a node", id="cni"),
        pytest.param(Options(kubernetes="1.34"), "--kubernetes needs", id="older-node"),
        pytest.param(Options(nodes=0), "--nodes 0: there may be 1 to", id="no-nodes"),
        pytest.param(Options(nodes=addresses.NODES + 1), "there may be 1 to", id="many-nodes"),
        pytest.param(
            Options(control_plane_only=True, nodes=2), "--nodes needs a node", id="plane-nodes"
        ),
        pytest.param(
            Options(control_plane_only=True, kubernetes="1.2"), "unknown, there is", id="ancient"
        ),
    ],
)
def test_options_that_contradict_are_refused_by_name(wanted: Options, said: str):
    with pytest.raises(options.OptionsError, match=said):
        wanted.validate()


def test_options_with_several_problems_name_all():
    wanted = Options(control_plane_only=True, without_istio=True, classic_sidecars=True)
    assert len(wanted.problems()) == 2


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "a" * 41])
def test_name_that_can_not_be_a_path_is_refused(name: str):
    with pytest.raises(options.OptionsError):
        options.validate_name(name)


@pytest.mark.parametrize("name", ["a", "default", "functional-123", "a" * 40])
def test_name_of_plain_letters_is_accepted(name: str):
    options.validate_name(name)
