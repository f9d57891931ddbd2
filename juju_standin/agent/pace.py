"""How fast the agent does what Juju does slowly."""

READY_INTERVAL = 5.0
"""Seconds between looks at a container's boot id; the first look comes after one interval."""

NOTICE_PAUSE = 1.0
"""Seconds to wait after an error of the notices' connection."""

FIRST_RETRY = 5.0
LAST_RETRY = 300.0
"""The back-off for a failed hook, in seconds: it doubles from the first to the last."""

BOUNCE_PAUSE = 3.0
"""Seconds before the uniter starts again after it lost the controller or a Pebble hook failed."""
