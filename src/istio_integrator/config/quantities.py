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
_LEAST_MEMORY = 32 << 20
_MOST_MEMORY = 64 << 30


def cpu(text: str) -> str:
    """Read an amount of CPU.

    Args:
        text: Such as `500m`, `0.5` or `2`.

    Raises:
        ValueError: It is none, or out of bounds.
    """
    found = _CPU.fullmatch(text.strip())
    if found and found["thousandths"]:
        amount = int(found["thousandths"])
    else:
        amount = int(decimal.Decimal(found["whole"]) * 1000) if found else 0
    if not 0 < amount <= _MOST_CPU:
        raise ValueError("write it such as 500m or 2, from 1m to 64")
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def memory(text: str) -> str:
    """Read an amount of memory.

    Args:
        text: Such as `512Mi` or `1Gi`.

    Raises:
        ValueError: It is none, or out of bounds.
    """
    found = _MEMORY.fullmatch(text.strip())
    amount = size(text.strip()) if found else 0
    if found is None or not _LEAST_MEMORY <= amount <= _MOST_MEMORY:
        raise ValueError("write it such as 512Mi or 1Gi, from 32Mi to 64Gi")
    units = _BINARY if found["unit"] in _BINARY else _DECIMAL
    unit = max((each for each in units if amount % units[each] == 0), key=units.__getitem__)
    return f"{amount // units[unit]}{unit}"


def size(written: str) -> int:
    """Count the bytes of an amount of memory that `memory` takes."""
    number, unit = re.split(r"(?<=[0-9])(?=[A-Za-z])", written)
    return int(number) * _UNITS[unit]
