"""Amounts of CPU and memory of Kubernetes.

The API server writes an amount in the largest unit that keeps its number whole. These functions do
the same, since an amount in another spelling would be written again at every event.
"""

from __future__ import annotations

import re


def cpu(text: str) -> str:
    """Return the CPU in an option, such as `500m` or `2`.

    Raises:
        ValueError: The text is not an amount from 1m to 64.
    """
    found = re.fullmatch(r"([0-9]{1,6})(m?)", text.strip())
    millis = int(found[1]) * (1 if found[2] else 1000) if found else 0
    if not 1 <= millis <= 64_000:
        raise ValueError("write it such as 500m or 2, from 1m to 64")
    return f"{millis}m" if millis % 1000 else str(millis // 1000)


def memory(text: str) -> str:
    """Return the memory in an option, such as `512Mi` or `1Gi`.

    Raises:
        ValueError: The text is not an amount from 32Mi to 64Gi.
    """
    found = re.fullmatch(r"([0-9]{1,6})([MG])i", text.strip())
    mebibytes = int(found[1]) * (1 if found[2] == "M" else 1024) if found else 0
    if not 32 <= mebibytes <= 64 * 1024:
        raise ValueError("write it such as 512Mi or 1Gi, from 32Mi to 64Gi")
    return f"{mebibytes}Mi" if mebibytes % 1024 else f"{mebibytes // 1024}Gi"
