import pathlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.config import config
from istio_integrator.kube import errors

LONGEST_HOST = ("a" * 62 + ".") * 4 + "m"
"""253 characters, the most that DNS allows."""
WRONG = [
    pytest.param({"istiod-namespace": "Istio_System"}, "istiod-namespace='Istio_System'", id="ns"),
    pytest.param({"revision": "1.31"}, "revision='1.31'", id="revision with a dot"),
    pytest.param({"mesh-mode": "all"}, "'auto', 'sidecar', 'ambient' or 'none'", id="mode"),
    pytest.param({"excluded-pods": "a in b"}, "excluded-pods='a in b': 'a in b'", id="selector"),
    pytest.param({"job-sidecars": "ambient"}, "job-sidecars='ambient': must be", id="mode"),
    pytest.param({"served-namespaces": "model,all"}, "'all' is none of", id="namespaces"),
    pytest.param({"wait-for-containers": "main,B"}, "'B' is not the name", id="container"),
    *(
        pytest.param(
            {"restart-max-unavailable": text},
            f"restart-max-unavailable='{text}': '{text}' is neither a number from 1 to 100",
            id=f"budget: {text}",
        )
        for text in ("0", "101", "0%", "101%", "1.5", "10 %%", "some", "-1", "²")
    ),
    pytest.param({"hosts": "a.example,B_C"}, "'B_C' is not a host name", id="host"),
    pytest.param({"hosts": "https://a.example"}, "is not a host name", id="host with a scheme"),
    pytest.param({"hosts": LONGEST_HOST + "m"}, "is not a host name", id="host too long"),
    pytest.param({"hosts": "a.example:8080"}, "is not a host name", id="host with a port"),
    pytest.param({"hosts": "a.example/b"}, "is not a host name", id="host with a path"),
    pytest.param({"hosts": "10.64.140.43"}, "'10.64.140.43' is an address", id="host's address"),
    pytest.param({"hosts": "a.example,*.10.1"}, "'*.10.1' is an address", id="hosts' addresses"),
    pytest.param({"istiod-namespace": "istio/system"}, "istiod-namespace=", id="ns with a tail"),
    pytest.param({"wait-for-containers": "main_b"}, "is not the name", id="container's tail"),
    pytest.param({"gateway-service": "a_b/c"}, "as NAMESPACE/NAME", id="gateway's namespace"),
    pytest.param({"gateway-service": "a/b_c"}, "as NAMESPACE/NAME", id="gateway's name"),
    pytest.param(
        {"gateway-service-annotations": "{a.b/c d: e}"}, "is not an annotation", id="annotation"
    ),
    pytest.param({"gateway-service-annotations": "[a]"}, "gateway-service-annot", id="a list"),
    pytest.param({"tls-secret": "a/b"}, "tls-secret='a/b'", id="Secret elsewhere"),
    pytest.param({"hosts": "a.example, *"}, "'*' is not a host name", id="any host"),
    pytest.param({"mtls": "on"}, "mtls='on': must be 'inherit' or 'strict'", id="mtls"),
    *(
        pytest.param({"mtls-exceptions": text}, words, id=f"exceptions: {text}")
        for text, words in (
            ("minio:", "mtls-exceptions='minio:': 'minio:' is no Service or workload"),
            ("Minio:9000", "write NAME or NAME:PORT, as in minio:9000, mlmd"),
            ("minio:0", "'minio:0': ports are 1 to 65535"),
            ("minio:65536", "ports are 1 to 65535"),
            ("minio:9_0", "'9_0' is neither a port's number nor its name"),
            ("minio 9000", "'minio 9000' is no Service"),
            (",".join(f"a{n}" for n in range(201)), "at most 200 entries"),
        )
    ),
    pytest.param({"log-level": "trace"}, "log-level='trace'", id="level"),
    pytest.param({"gateway-replicas": 0}, "gateway-replicas='0': must be greater", id="no pod"),
    pytest.param({"gateway-replicas": 101}, "less than or equal to 100", id="many pods"),
    pytest.param(
        {"gateway-service-type": "loadbalancer"},
        "gateway-service-type='loadbalancer': must be 'LoadBalancer', 'NodePort' or 'ClusterIP'",
        id="type",
    ),
    pytest.param({"gateway-cpu": "1.5m"}, "gateway-cpu='1.5m': write it such as 500m", id="cpu"),
    pytest.param({"gateway-memory": "128"}, "gateway-memory='128': write it", id="memory"),
]


@pytest.mark.parametrize(("options", "expected"), WRONG)
def test_config_with_a_wrong_option_has_one_line_naming_it(options, expected):
    with pytest.raises(errors.ConfigError) as raised:
        config.Config.load(options)
    (problem,) = raised.value.problems
    assert expected in problem
    assert "\n" not in problem


def test_config_with_several_wrong_options_names_each():
    with pytest.raises(errors.ConfigError) as raised:
        config.Config.load({"revision": "1.31", "log-level": "x", "included-pods": "!"})
    assert len(raised.value.problems) == 3


def test_config_defaults_are_those_of_config_yaml_and_no_option_is_missing_in_either():
    options = yaml.safe_load(pathlib.Path("config.yaml").read_text())["options"]
    shipped = {name: option["default"] for name, option in options.items()}
    assert config.Config.load(shipped) == config.Config()
    assert set(shipped) == {name.replace("_", "-") for name in config.Config.model_fields}


def test_config_hosts_may_be_as_long_as_dns_allows_and_are_written_small():
    assert len(LONGEST_HOST) == 253
    assert config.Config.load({"hosts": LONGEST_HOST.upper()}).hosts == (LONGEST_HOST,)


def test_config_lists_are_split_and_trimmed():
    loaded = config.Config.load({"wait-for-containers": " main, wait ,"})
    assert loaded.wait_for_containers == ("main", "wait")


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
    found = config.Config.load({"mtls-exceptions": "minio:9000, mlmd,x:http-web , minio:09000"})
    assert [str(each) for each in found.mtls_exceptions] == ["minio:9000", "mlmd", "x:http-web"]
