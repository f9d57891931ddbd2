"""The settings of the service, written by the charm and read by the workload."""

import pathlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract import charm_facts, namespaces, service

OPTIONS = st.builds(
    service.Options,
    model=st.just("m"),
    application=st.just("a"),
    unit=st.just("a/0"),
    joined=st.booleans(),
    included_pods=st.sampled_from(["", "a=b,c!=d", " x notin (y) "]),
    served_namespaces=st.frozensets(st.sampled_from(namespaces.KINDS), min_size=1),
    wait_for_containers=st.lists(st.sampled_from(["main", "wait"]), max_size=3).map(tuple),
    status_port=st.integers(0, 65535),
    gateway=st.none()
    | st.builds(service.Gateway, name=st.just("gateway"), selector=st.just({"istio": "gateway"})),
)


@given(OPTIONS)
def test_workload_reads_what_the_charm_writes(options):
    assert msgspec.json.decode(options.encode(), type=service.Options) == options


@given(st.floats(0, 2e9))
def test_workload_reads_the_results_of_a_hook(looked):
    results = service.Results(facts=charm_facts.CharmFacts(looked=looked))
    assert msgspec.json.decode(results.encode(), type=service.Results) == results


def test_same_settings_are_the_same_text():
    options = service.Options(model="m", application="a", unit="a/0")
    assert '"served_namespaces": ["labelled", "model", "profiles"]' in options.encode()


def test_list_is_split_at_commas_and_without_blanks():
    assert service.split_list(" main ,, side car,") == ("main", "side car")


def test_results_have_a_file_beside_that_of_the_settings():
    settings = pathlib.PurePosixPath("/etc/mesh-2/service.json")
    results = pathlib.PurePosixPath("/etc/mesh-2/service.results.json")
    assert service.name_results_file(settings) == results


@pytest.mark.parametrize(
    "text", ["", "%", "0", "0%", "101", "101%", "1.5", "-1", "²", "٣", "2%%", "1" * 5000]
)
def test_budget_outside_of_1_to_100_is_refused(text):
    with pytest.raises(ValueError, match="neither a number from 1 to 100 nor a share such as 10%"):
        service.parse_budget(text)


SHARES = st.integers(1, 100)
TOTALS = st.integers(0, 5000)


@given(SHARES, TOTALS)
def test_share_is_rounded_up_and_never_nothing(share, total):
    most = service.resolve_budget(f"{share}%", total)
    assert most == 1 or (most - 1) * 100 < share * total <= most * 100
    assert 1 <= most <= max(1, total)


@given(SHARES, TOTALS)
def test_number_is_the_same_of_any_total(number, total):
    assert service.resolve_budget(str(number), total) == number


@given(SHARES, st.sampled_from(["", "%"]), st.sampled_from(["", " "]), st.sampled_from(["", "0"]))
def test_budget_is_read_in_one_spelling(number, sign, around, before):
    assert service.parse_budget(f"{around}{before}{number}{sign}{around}") == f"{number}{sign}"
