"""Authorities that may have signed the certificate of who takes traces, as others send them."""

import dataclasses
import itertools
import json
import shlex

import pytest
from ops import testing

from istio_integrator.relations import authorities
from testbed import certificates
from tests.unit.charm import charm_world, fake_cluster

HTTPS = "https://tempo:4318"
FILE = "sidecar-lifecycle.traces-authorities.pem"


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    """Certificates of two authorities."""
    folder = tmp_path_factory.mktemp("authorities")
    made = [certificates.Authority(folder / name) for name in ("one", "two")]
    return [each.pair.certificate.read_text() for each in made]


@pytest.fixture
def ran(ctx, fake):
    """Return what runs the charm with relations: its state, and the file of authorities."""
    fake_cluster.install_istio(fake)

    def run(*relations, leader=True, container=None):
        given = charm_world.state(container, leader=leader)
        given = dataclasses.replace(given, relations=frozenset(relations))
        out = ctx.run(ctx.on.config_changed(), given)
        file = out.get_container("lifecycle").get_filesystem(ctx) / "tmp" / FILE
        return out, file.read_text() if file.exists() else ""

    return run


def tempo(url=HTTPS):
    receivers = [{"protocol": {"name": "otlp_http", "type": "http"}, "url": url}]
    bag = {"receivers": json.dumps(receivers)}
    return testing.Relation("tracing", remote_app_name="tempo", remote_app_data=bag)


def second_generation(*certificates):
    bag = {"certificates": json.dumps(certificates), "version": "1"}
    return sent(bag)


def sent(bag, *units):
    """Relate who sent something as an application, or as its units."""
    return testing.Relation(
        authorities.ENDPOINT,
        remote_app_name="ca",
        remote_app_data=bag,
        remote_units_data=dict(enumerate(units or ({},))),
    )


def told(out):
    words = shlex.split(charm_world.command(out))
    return dict(itertools.pairwise(words))["--traces-authorities-file"]


@pytest.mark.parametrize("leader", [True, False])
def test_workload_is_given_the_authorities_of_an_https_collector(ran, pems, leader):
    out, file = ran(tempo(), second_generation(*pems), leader=leader)
    assert file == "".join(pems)
    assert told(out) == f"/tmp/{FILE}"


def test_who_sends_them_is_told_which_generation_is_read(ran):
    relation = second_generation()
    out, _ = ran(tempo(), relation)
    assert out.get_relation(relation.id).local_app_data["version"] == "1"


@pytest.mark.parametrize(
    "relations",
    [
        pytest.param([tempo()], id="not-related"),
        pytest.param([tempo(), sent({})], id="nothing-yet"),
        pytest.param([tempo(), second_generation()], id="none"),
        pytest.param([tempo(), sent({}, {"ca": '""', "chain": "null"})], id="empty"),
        pytest.param([tempo("http://tempo:4318"), sent({"certificates": "["})], id="plain"),
        pytest.param([sent({"certificates": "["})], id="no-collector"),
    ],
)
def test_where_there_are_none_or_none_are_needed_nothing_is_told_nor_complained_of(ran, relations):
    out, file = ran(*relations)
    assert (told(out), file) == ("", "")
    assert authorities.ENDPOINT not in out.unit_status.message


def test_once_the_relation_is_gone_they_are_not_used_any_more(ran, pems):
    out, _ = ran(tempo(), second_generation(*pems))
    out, _ = ran(tempo(), container=out.get_container("lifecycle"))
    assert told(out) == ""


@pytest.mark.parametrize("as_json", [True, False])
def test_units_of_the_first_generation_send_each_what_it_likes(ran, pems, as_json):
    one, two = pems
    alone = json.dumps(one) if as_json else one
    units = {"ca": alone, "certificate": alone}, {"chain": json.dumps([two, one])}
    assert ran(tempo(), sent({}, *units))[1] == "".join(pems)


def test_what_units_left_from_the_first_generation_counts_no_more_in_the_second(ran, pems):
    old, new = pems
    bag = {"certificates": json.dumps([new])}
    assert ran(tempo(), sent(bag, {"ca": old}))[1] == new


def test_nothing_but_certificates_is_passed_on(ran, pems):
    key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    bundle = f"# é\n{pems[0]}{key}{pems[1]}  \n"
    assert ran(tempo(), second_generation(bundle))[1] == "".join(pems)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param("no certificate", id="text"),
        pytest.param("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", id="damaged"),
        pytest.param(3, id="number"),
        pytest.param({"ca": "x"}, id="object"),
    ],
)
def test_what_is_no_certificate_is_named_and_costs_none_that_is_one(ran, pems, entry):
    out, file = ran(tempo(), second_generation(entry, *pems))
    assert "receive-ca-cert: ca sends" in out.unit_status.message
    assert out.unit_status.name == "blocked"
    assert file == "".join(pems)


@pytest.mark.parametrize("text", ["3", "[" * 5000, '{"a": 1}', r'["\ud800"]', "x" * (2 << 20)])
def test_what_is_no_list_of_certificates_is_named(ran, text):
    out, file = ran(tempo(), sent({"certificates": text}))
    assert "receive-ca-cert: ca sends" in out.unit_status.message
    assert (told(out), file) == ("", "")


def test_no_more_are_taken_than_the_workload_reads(ran, pems, monkeypatch):
    monkeypatch.setattr(authorities, "LONGEST", len("".join(pems)) - 1)
    out, file = ran(tempo(), sent({}, *({"ca": each} for each in pems)))
    assert "receive-ca-cert: ca sends" in out.unit_status.message
    assert file == pems[0]
