"""Amounts of CPU and memory, beside lightkube's reading of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightkube.utils import quantity

from istio_integrator.config import config
from istio_integrator.kube import errors


def cpu(text):
    return config.Config.load({"gateway-cpu": text}).gateway_cpu


def memory(text):
    return config.Config.load({"gateway-memory": text}).gateway_memory


@pytest.mark.parametrize(
    ("written", "wanted"),
    [("100m", "100m"), ("0100m", "100m"), ("1000m", "1"), ("1500m", "1500m"), (" 64 ", "64")],
)
def test_cpu_is_spelled_as_the_api_server_does(written, wanted):
    assert cpu(written) == wanted


@pytest.mark.parametrize(
    ("written", "wanted"),
    [("32Mi", "32Mi"), ("1024Mi", "1Gi"), ("1536Mi", "1536Mi"), (" 64Gi ", "64Gi")],
)
def test_memory_is_spelled_as_the_api_server_does(written, wanted):
    assert memory(written) == wanted


@pytest.mark.parametrize("written", ["", "m", "-1", "0", "0m", "0.5", "1e2", "64001m", "65"])
def test_cpu_that_is_none_is_refused_with_how_to_write_it(written):
    with pytest.raises(errors.ConfigError, match="such as 500m or 2, from 1m to 64"):
        cpu(written)


@pytest.mark.parametrize(
    "written",
    # Kubernetes takes the first two for bytes, and for thousandths of one.
    ["128", "128m", "", "Mi", "1.5Gi", "-1Gi", "128mi", "128MB", "128M", "31Mi", "65Gi"],
)
def test_memory_that_is_none_is_refused_with_how_to_write_it(written):
    with pytest.raises(errors.ConfigError, match="such as 512Mi or 1Gi, from 32Mi to 64Gi"):
        memory(written)


@given(st.text(alphabet="0123456789.+-eEmkKMGTi ²٣", max_size=12))
def test_any_text_stays_the_same_amount_or_is_refused(text):
    for read in (cpu, memory):
        try:
            spelled = read(text)
        except errors.ConfigError:
            continue
        assert quantity.parse_quantity(spelled) == quantity.parse_quantity(text.strip())
        assert read(spelled) == spelled
