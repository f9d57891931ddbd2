"""Amounts of CPU and memory, beside lightkube's reading of what Kubernetes calls quantities."""

import decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lightkube.utils import quantity

from istio_integrator.config import quantities

KIBI = 1024


def bytes_of(written):
    parsed = quantity.parse_quantity(written)
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("100m", "100m"),
        ("0100m", "100m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("1.250", "1250m"),
        ("2", "2"),
        (" 2 ", "2"),
        ("64", "64"),
        ("1m", "1m"),
    ],
)
def test_cpu_is_spelled_as_the_api_server_does(written, wanted):
    assert quantities.cpu(written) == wanted


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("128Mi", "128Mi"),
        ("1024Mi", "1Gi"),
        ("1536Mi", "1536Mi"),
        ("65536Ki", "64Mi"),
        ("500M", "500M"),
        ("1000M", "1G"),
        ("1024M", "1024M"),
        ("64Gi", "64Gi"),
        ("32Mi", "32Mi"),
    ],
)
def test_memory_is_spelled_as_the_api_server_does(written, wanted):
    assert quantities.memory(written) == wanted


@pytest.mark.parametrize(
    "written",
    ["", "m", "-1", "+1", "0", "0m", "0.0", "1.5m", "1.2345", "1e2", "64001m", "65", "9" * 99],
)
def test_cpu_that_is_none_is_refused_with_how_to_write_it(written):
    with pytest.raises(ValueError, match="such as 500m or 2, from 1m to 64"):
        quantities.cpu(written)


@pytest.mark.parametrize(
    "written",
    # Kubernetes takes the first two for bytes, and for thousandths of one.
    ["128", "128m", "", "Mi", "1.5Gi", "-1Gi", "128mi", "128MB", "31Mi", "65Gi", f"{'9' * 99}Gi"],
)
def test_memory_that_is_none_is_refused_with_how_to_write_it(written):
    with pytest.raises(ValueError, match="such as 512Mi or 1Gi, from 32Mi to 64Gi"):
        quantities.memory(written)


@given(st.integers(1, 64_000))
def test_cpu_stays_the_same_amount_however_it_is_written(millis):
    spellings = {f"{millis}m", str(decimal.Decimal(millis) / 1000)}
    (spelled,) = {quantities.cpu(written) for written in spellings}
    assert quantity.parse_quantity(spelled) == decimal.Decimal(millis) / 1000
    assert quantities.cpu(spelled) == spelled


@given(st.integers(32 * KIBI, 64 * KIBI * KIBI), st.sampled_from(["Ki", "k"]))
def test_memory_stays_the_same_amount_in_the_largest_unit(number, unit):
    written = f"{number}{unit}"
    if bytes_of("32Mi") <= bytes_of(written) <= bytes_of("64Gi"):
        spelled = quantities.memory(written)
        assert bytes_of(spelled) == bytes_of(written) == quantities.size(spelled)
        assert spelled.endswith("i") == unit.endswith("i")
        assert quantities.memory(spelled) == spelled


@given(st.text(alphabet="0123456789.+-eEmkKMGTi ²٣", max_size=12))
def test_any_text_is_an_amount_within_the_bounds_or_a_value_error(text):
    for read, least, most in (
        (quantities.cpu, "1m", "64"),
        (quantities.memory, "32Mi", "64Gi"),
    ):
        try:
            spelled = read(text)
        except ValueError:
            continue
        assert bytes_of(least) <= bytes_of(spelled) <= bytes_of(most)
        assert bytes_of(spelled) == bytes_of(text.strip())
