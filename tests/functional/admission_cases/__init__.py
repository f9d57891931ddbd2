"""What new pods get: one table, for the pure function and for the webhook."""

from tests.functional.admission_cases import ambient, controllers, holds, place, rules
from tests.functional.admission_cases.case import (
    APPLICATION,
    APPLIED,
    CONFIG,
    HOLD,
    INJECT,
    MOST_BYTES,
    NATIVE,
    PORTS,
    PREFIX,
    SETTINGS,
    Case,
    container,
    filler,
    patched,
)

__all__ = (
    "APPLICATION",
    "APPLIED",
    "CASES",
    "CONFIG",
    "HOLD",
    "HOLDS",
    "INJECT",
    "MOST_BYTES",
    "NATIVE",
    "PORTS",
    "PREFIX",
    "SETTINGS",
    "Case",
    "container",
    "filler",
    "patched",
)

HOLDS = (*holds.HOLDS, *holds.NAMED)
CASES: tuple[Case, ...] = (
    *place.EXCLUSION,
    *place.UNTOUCHED,
    *place.CUSTOMISED,
    *HOLDS,
    *holds.FULL,
    *holds.HEAVY,
    *holds.NATIVES,
    *controllers.ADDRESSED,
    *place.SELECTED,
    *ambient.AMBIENT,
    *rules.RULES,
)
