"""The settings of the service, written by the charm and read by the workload."""

import dataclasses

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.shell import settings

from integrator_contract import charm_facts, namespaces, service

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,6}[a-z0-9])?", fullmatch=True)
OPTIONS = st.builds(
    service.Options,
    model=NAMES,
    application=NAMES,
    unit=NAMES.map("{}/0".format),
    joined=st.booleans(),
    mesh_namespace=st.just("") | NAMES,
    mesh_revision=st.just("") | NAMES,
    membership=st.sampled_from(["namespace", "selected", "none"]),
    included_pods=st.sampled_from(["", "team", "a=b,c!=d", " x notin (y) "]),
    excluded_pods=st.just("app in (a, b),!c"),
    served_namespaces=st.frozensets(st.sampled_from(namespaces.KINDS), min_size=1),
    proxy_shutdown=st.booleans(),
    wait_for_containers=st.lists(NAMES, max_size=3).map(tuple),
    ignore_containers=st.lists(NAMES, max_size=3).map(tuple),
    status_port=st.integers(0, 65535),
    delete_broken_pods=st.booleans(),
    gateway=st.none() | st.just("") | NAMES.map("istio-ingress/{}".format),
    restart_pods=st.sampled_from(["auto", "manual", "off"]),
    restart_max_unavailable=st.integers(1, 100).map(str) | st.integers(1, 100).map("{}%".format),
    facts=st.none() | st.builds(charm_facts.CharmFacts, looked=st.floats(0, 2e9)),
)


@given(OPTIONS)
def test_workload_reads_what_the_charm_writes(options):
    read = msgspec.json.decode(options.document(), type=settings.ServiceSettings)
    assert dataclasses.asdict(read) == dataclasses.asdict(options)


@given(OPTIONS)
def test_same_settings_are_the_same_text(options):
    again = frozenset(sorted(options.served_namespaces, reverse=True))
    other = dataclasses.replace(options, served_namespaces=again)
    assert other.document() == options.document()


SHARES = st.integers(1, 100)
TOTALS = st.integers(0, 5000)


@given(SHARES, TOTALS)
def test_share_is_rounded_up_and_never_nothing(share, total):
    most = service.at_most(f"{share}%", total)
    assert most == 1 or (most - 1) * 100 < share * total <= most * 100
    assert 1 <= most <= max(1, total)


@given(SHARES, TOTALS, TOTALS)
def test_share_of_more_is_never_less(share, total, more):
    few, many = (service.at_most(f"{share}%", each) for each in sorted((total, total + more)))
    assert few <= many


@given(SHARES, TOTALS)
def test_number_is_the_same_of_any_total(number, total):
    assert service.at_most(str(number), total) == number


@given(SHARES, st.sampled_from(["", "%"]), st.sampled_from(["", " "]), st.sampled_from(["", "0"]))
def test_budget_is_read_in_one_spelling(number, sign, around, before):
    assert service.budget(f"{around}{before}{number}{sign}{around}") == f"{number}{sign}"
