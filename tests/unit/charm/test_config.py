"""Options: what each may be, how it is read, and the one line about what it may not be."""

import ipaddress
import pathlib
import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lightkube.utils import quantity

from integrator_contract import pods
from istio_integrator.config import config
from istio_integrator.kube import errors
from tests.unit.cases import cases

LONGEST_HOST = ("a" * 62 + ".") * 4 + "m"
"""253 characters, the most that DNS allows."""
WRONG = [
    ("istiod-namespace", "Istio_System", "istiod-namespace='Istio_System'"),
    ("revision", "1.31", "revision='1.31'"),
    ("mesh-mode", "all", "'auto', 'sidecar', 'ambient' or 'none'"),
    ("excluded-pods", "a in b", "excluded-pods='a in b': 'a in b'"),
    ("job-sidecars", "ambient", "='ambient': must be 'auto', 'native' or 'classic'"),
    ("restart-pods", "", "restart-pods='': must be 'auto' or 'manual'"),
    ("routing", "", "routing='': must be 'virtualservice' or 'gateway-api'"),
    ("tenant-policy", "", "tenant-policy='': must be 'auto', 'enforce', 'warn' or 'off'"),
    ("authorization", "", "authorization='': must be 'off', 'related' or 'closed'"),
    ("served-namespaces", "model,all", "'all' is none of"),
    ("wait-for-containers", "main,B", "'B' is not the name"),
    ("hosts", "a.example,B_C", "'B_C' is not a host name"),
    ("hosts", "https://a.example/" + "b" * 400, "'https://a.example/bbb"),
    ("hosts", LONGEST_HOST + "m", "is not a host name"),
    ("hosts", "a.example:8080", "is not a host name"),
    ("hosts", "a.example/b", "is not a host name"),
    ("hosts", "10.64.140.43", "'10.64.140.43' is an address"),
    ("hosts", "a.example,*.10.1", "'*.10.1' is an address"),
    ("istiod-namespace", "istio/system", "istiod-namespace="),
    ("wait-for-containers", "main_b", "is not the name"),
    ("gateway-service", "a_b/c", "as NAMESPACE/NAME"),
    ("gateway-service", "a/b_c", "as NAMESPACE/NAME"),
    ("gateway-service-annotations", "{a.b/c d: e}", "is not an annotation"),
    ("gateway-service-annotations", "{a.b/c: d, a.b/e: 1}", "'a.b/e' is not an annotation"),
    ("gateway-service-annotations", "[a]", "gateway-service-annot"),
    ("tls-secret", "a/b", "tls-secret='a/b'"),
    ("tls-secret", "a" * 64, "at most 63"),
    ("hosts", "a.example, *", "'*' is not a host name"),
    ("mtls", "on", "mtls='on': must be 'inherit' or 'strict'"),
    ("mtls-exceptions", "minio:", "mtls-exceptions='minio:': 'minio:' is no Service or workload"),
    ("mtls-exceptions", "Minio:9000", "write NAME or NAME:PORT, as in minio:9000, mlmd"),
    ("mtls-exceptions", "minio:0", "'minio:0': ports are 1 to 65535"),
    ("mtls-exceptions", "minio:65536", "ports are 1 to 65535"),
    ("mtls-exceptions", "minio:9_0", "'9_0' is neither a port's number nor its name"),
    ("mtls-exceptions", "minio:9-0", "'9-0' is neither a port's number nor its name"),
    ("mtls-exceptions", "minio 9000", "'minio 9000' is no Service"),
    ("mtls-exceptions", ",".join(f"a{n}" for n in range(201)), "at most 200 entries"),
    *(
        ("pod-networks", f"10.1.0.0/16,{each}", f"'{each}' never has pods")
        for each in ("127.0.0.0/16", "169.254.0.0/16", "224.0.0.0/16", "fe80::/64")
    ),
    ("pod-networks", "10.1.0.1/16", "'10.1.0.1/16' is not a network"),
    ("pod-networks", "10.1.0.0/16,none", "'none' is not a network"),
    ("pod-networks", "10.0.0.0/7", "'10.0.0.0/7' has more hosts than pods"),
    ("pod-networks", "fc00::/7", "'fc00::/7' has more hosts than pods"),
    ("pod-networks", ",".join(f"10.{n}.0.0/16" for n in range(33)), "at most 32 networks"),
    ("revision", "x" * 100, f"revision='{'x' * 80}…': use"),
    ("log-level", "trace", "='trace': must be 'debug', 'info', 'warning' or 'error'"),
    ("log-level", "x" * 80, f"log-level='{'x' * 80}': must be"),
    ("gateway-replicas", 0, "gateway-replicas='0': must be greater"),
    ("gateway-replicas", 101, "less than or equal to 100"),
    (
        "gateway-service-type",
        "loadbalancer",
        "gateway-service-type='loadbalancer': must be 'LoadBalancer', 'NodePort' or 'ClusterIP'",
    ),
    ("pod-labels", "{app.kubernetes.io/name: x}", "pod-labels: 'app.kubernetes.io/name'"),
    ("pod-labels", "{a: true, b: 1}", "0.add.a: Input should be a valid string"),
    ("pod-labels", "text", "Input should be a valid array"),
    ("pod-labels", "[{pods: a, add: {}, to: x}]", "0.to: Unexpected keyword"),
    ("pod-labels", "{", "pod-labels='{': this is not valid YAML: expected the node"),
    ("pod-annotations", r'{a: "\ud83d"}', "has half a character"),
    ("pod-annotations", "{a: " + "x" * 70_000 + "}", "is longer than"),
    ("excluded-outbound-ports", "0", "0 is not a port"),
    ("excluded-outbound-ports", "[{ports: [true]}]", "0.ports.0: Input should be a valid"),
    (
        "excluded-outbound-ports",
        "[{pods: '!sidecar.istio.io/inject', ports: [80]}]",
        "looks at sidecar.istio.io/inject, which is set here",
    ),
    (
        "image-registries",
        "[{pods: a, prefixes: {}}, {pods: 'a,istio.io/rev=x', prefixes: {}}]",
        "looks at istio.io/rev, which is set here",
    ),
    (
        "image-registries",
        "[{pods: a, prefixes: {a.io: b.io}}, {pods: b, prefixes: {b.io: c.io}}]",
        "image-registries: 'b.io' would itself be moved by 'b.io'",
    ),
    *(
        ("restart-max-unavailable", text, f"='{text}': '{text}' is neither a number from 1 to 100")
        for text in ("0", "101", "0%", "101%", "1.5", "10 %%", "some", "-1", "²")
    ),
    *(
        ("gateway-cpu", text, "such as 500m or 2, from 1m to 64")
        for text in ("", "m", "-1", "0", "0m", "0.5", "1e2", "1.5m", "64001m", "65")
    ),
    *(
        ("gateway-memory", text, "such as 512Mi or 1Gi")
        # Kubernetes takes the first two for bytes, and for thousandths of one.
        for text in ("128", "128m", "", "Mi", "1.5Gi", "-1Gi", "128mi", "128M", "31Mi", "65Gi")
    ),
]


@pytest.mark.parametrize(("option", "text", "expected"), WRONG, ids=lambda value: str(value)[:30])
def test_config_with_a_wrong_option_has_one_line_naming_it(option, text, expected):
    with pytest.raises(errors.ConfigError) as raised:
        config.Config.load({option: text})
    (problem,) = raised.value.problems
    assert expected in problem
    assert not re.search(r"\n|Value error|Input should be '", problem)
    assert len(problem) <= 400


@cases(
    ("option", "text"),
    members=("excluded-pods", "team=ml"),
    others=("included-pods", "team=ml"),
    ports=("excluded-outbound-ports", "[{ports: [1]}, {pods: team=ml, ports: [2]}]"),
    annotations=("pod-annotations", "[{pods: team=ml, add: {a: b}}]"),
)
def test_selector_that_looks_at_an_added_label_is_refused(option, text):
    with pytest.raises(errors.ConfigError) as raised:
        config.Config.load({"pod-labels": "{team: ml}", option: text})
    (problem,) = raised.value.problems
    assert problem == "pod-labels: the selector 'team=ml' looks at team, which pod-labels adds"


def test_config_defaults_are_those_of_config_yaml_and_no_option_is_missing_in_either():
    options = yaml.safe_load(pathlib.Path("config.yaml").read_text())["options"]
    shipped = {name: option["default"] for name, option in options.items()}
    assert config.Config.load(shipped) == config.Config()
    assert set(shipped) == {name.replace("_", "-") for name in config.Config.model_fields}


NETWORKS = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/48"))
MOST = tuple(ipaddress.ip_network(f"10.{n}.0.0/16") for n in range(32))
EVERY = {"team": "ml", "example.com/cost": "7"}


@cases(
    ("option", "text", "wanted"),
    hosts_are_written_small=("hosts", LONGEST_HOST.upper(), (LONGEST_HOST,)),
    hosts_are_written_once=("hosts", "a.example,b.example,A.example", ("a.example", "b.example")),
    selector_is_trimmed=("included_pods", " istio.io/rev=x ", "istio.io/rev=x"),
    name_is_trimmed=("revision", " canary\n", "canary"),
    name_longest=("tls_secret", "a" * 63, "a" * 63),
    name_with_a_dot=("gateway_service", "a/b.c", "a/b.c"),
    networks=("pod_networks", "10.0.0.0/8,fd00::/48,10.0.0.0/8", NETWORKS),
    no_networks=("pod_networks", " none ", None),
    networks_most=("pod_networks", ",".join(map(str, MOST)), MOST),
    plain_ports_most=(
        "mtls_exceptions",
        ",".join(f"a{n}" for n in range(200)),
        tuple(config.PlainTextPort(f"a{n}") for n in range(200)),
    ),
    replicas_least=("gateway_replicas", 1, 1),
    replicas_most=("gateway_replicas", 100, 100),
    budget_most=("restart_max_unavailable", " 100% ", "100%"),
    lists_are_split=("wait_for_containers", " main, wait ,", ("main", "wait")),
    cpu_least=("gateway_cpu", "1m", "1m"),
    cpu_with_zeros=("gateway_cpu", "0100m", "100m"),
    cpu_that_is_whole=("gateway_cpu", "1000m", "1"),
    cpu_that_is_not=("gateway_cpu", "1500m", "1500m"),
    cpu_most=("gateway_cpu", " 64 ", "64"),
    memory_least=("gateway_memory", "32Mi", "32Mi"),
    memory_that_is_whole=("gateway_memory", "1024Mi", "1Gi"),
    memory_that_is_not=("gateway_memory", "1536Mi", "1536Mi"),
    memory_most=("gateway_memory", " 64Gi ", "64Gi"),
    mapping_is_for_every_pod=(
        "pod_labels",
        "{team: ml, example.com/cost: '7'}",
        (pods.Entries(add=EVERY),),
    ),
    rules_have_a_selector_each=(
        "pod_annotations",
        "- {pods: app=web, add: {a: b}}\n- add: {c: d}\n",
        (pods.Entries(pods="app=web", add={"a": "b"}), pods.Entries(add={"c": "d"})),
    ),
    ports=("excluded_outbound_ports", "5432,6379", (pods.Ports(ports=(5432, 6379)),)),
    ports_in_lines=("excluded_outbound_ports", " 53 63\n", (pods.Ports(ports=(53, 63)),)),
    ports_as_rules=("excluded_outbound_ports", "[{ports: [53]}]", (pods.Ports(ports=(53,)),)),
    no_ports=("excluded_outbound_ports", " ,", ()),
    no_labels=("pod_labels", "{}", ()),
)
def test_option_is_read(option, text, wanted):
    assert getattr(config.Config.load({option.replace("_", "-"): text}), option) == wanted


@given(st.text(alphabet="0123456789.+-eEmkKMGTi ²٣", max_size=12))
def test_any_amount_stays_the_same_or_is_refused(text):
    for option in ("gateway-cpu", "gateway-memory"):
        try:
            spelled = getattr(config.Config.load({option: text}), option.replace("-", "_"))
        except errors.ConfigError:
            continue
        assert quantity.parse_quantity(spelled) == quantity.parse_quantity(text.strip())
        again = config.Config.load({option: spelled})
        assert getattr(again, option.replace("-", "_")) == spelled


@given(st.dictionaries(st.sampled_from(sorted(config.Config.model_fields)), st.text()))
def test_config_of_any_text_loads_or_says_one_line_per_option(options):
    dashed = {name.replace("_", "-"): value for name, value in options.items()}
    problems: list[str] = []
    try:
        config.Config.load(dashed)
    except errors.ConfigError as error:
        problems = error.problems
    assert len(problems) <= len(dashed)
    assert not any("\n" in problem for problem in problems)


def test_exceptions_are_names_with_and_without_ports():
    given = {"mtls-exceptions": "minio:9000, mlmd,x:http-web , minio:09000,a:65535"}
    found = config.Config.load(given).mtls_exceptions
    assert [str(each) for each in found] == ["minio:9000", "mlmd", "x:http-web", "a:65535"]
