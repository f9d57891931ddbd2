"""Amounts of CPU and memory, in the spelling in which the API server gives them back.

An amount in another spelling would differ from what is in the cluster at every event. Kubernetes
writes the largest unit that keeps the number whole (apimachinery's `resource.Quantity`).
"""

from __future__ import annotations

import decimal
import re

_CPU = re.compile(r"(?P<thousandths>[0-9]{1,6})m|(?P<whole>[0-9]{1,4}(\.[0-9]{1,3})?)")
_MOST_CPU = 64_000
"""Thousandths of a CPU. One core moves more than any of today's Kubeflow; more is a slip."""
_MEMORY = re.compile(r"(?P<number>[0-9]{1,12})(?P<unit>[KMG]i|[kMG])")
"""Never without a unit: `128` are bytes, and `128m` an eighth of one, which nobody means."""
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}
_DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9}
_UNITS = {**_BINARY, **_DECIMAL}
_MOST_MEMORY = 64 << 30


def cpu(text: str, *, least: str = "1m") -> str:
    """Read an amount of CPU.

    Args:
        text: Such as `500m`, `0.5` or `2`.
        least: That is accepted.

    Raises:
        ValueError: It is none, or out of bounds.
    """
    amount = thousandths(text.strip())
    if not thousandths(least) <= amount <= _MOST_CPU:
        raise ValueError(f"write it such as 500m or 2, from {least} to 64")
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def thousandths(written: str) -> int:
    """Count the thousandths of a CPU in an amount; none in what is no amount."""
    found = _CPU.fullmatch(written)
    if found and found["thousandths"]:
        return int(found["thousandths"])
    return int(decimal.Decimal(found["whole"]) * 1000) if found else 0


def memory(text: str, *, least: str = "32Mi") -> str:
    """Read an amount of memory.

    Args:
        text: Such as `512Mi` or `1Gi`.
        least: That is accepted.

    Raises:
        ValueError: It is none, or out of bounds.
    """
    found = _MEMORY.fullmatch(text.strip())
    amount = size(text.strip()) if found else 0
    if found is None or not size(least) <= amount <= _MOST_MEMORY:
        raise ValueError(f"write it such as 512Mi or 1Gi, from {least} to 64Gi")
    units = _BINARY if found["unit"] in _BINARY else _DECIMAL
    unit = max((each for each in units if amount % units[each] == 0), key=units.__getitem__)
    return f"{amount // units[unit]}{unit}"


def size(written: str) -> int:
    """Count the bytes of an amount of memory that `memory` takes."""
    number, unit = re.split(r"(?<=[0-9])(?=[A-Za-z])", written)
    return int(number) * _UNITS[unit]
