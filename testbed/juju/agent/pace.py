"""How fast the agent does what Juju does slowly; tests make it faster by the environment."""

import os


def seconds(name: str, default: float) -> float:
    """Return an interval: Juju's own, or what `TESTBED_AGENT_<name>` says."""
    return float(os.environ.get(f"TESTBED_AGENT_{name}", default))


READY_INTERVAL = seconds("READY_INTERVAL", 5.0)
"""Between looks at a container's boot id; the first look comes after one interval."""

NOTICE_PAUSE = seconds("NOTICE_PAUSE", 1.0)
"""To wait after an error of the notices' connection."""

FIRST_RETRY = seconds("FIRST_RETRY", 5.0)
LAST_RETRY = seconds("LAST_RETRY", 300.0)
"""The back-off for a failed hook: it doubles from the first to the last."""

BOUNCE_PAUSE = seconds("BOUNCE_PAUSE", 3.0)
"""Before the uniter starts again after it lost the controller or a Pebble hook failed."""
