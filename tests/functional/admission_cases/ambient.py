"""What pods of a model in ambient mode get, where nothing goes through a proxy of their own."""

from __future__ import annotations

from tests.functional.admission_cases.case import (
    IN_AMBIENT,
    NO_SIDECAR,
    OUT_OF_AMBIENT,
    SIDECAR,
    TO_COMPLETION,
    Case,
)

UNHELD = ("ports:Ambient", "hold:Ambient")

AMBIENT = (
    Case(
        id="ambient: a pod is neither held nor given ports",
        settings="ambient",
        skipped=UNHELD,
    ),
    Case(
        id="ambient: a pod that runs to completion asks for no native sidecar",
        settings="ambient",
        spec=TO_COMPLETION,
        skipped=("ports:Ambient", "native:Ambient", "hold:Ambient"),
    ),
    Case(
        id="ambient: an excluded pod",
        settings="ambient",
        labels={"tier": "db"},
        want=("excluded",),
        want_labels=OUT_OF_AMBIENT,
        skipped=UNHELD,
    ),
    Case(
        id="ambient: an excluded pod that would have no sidecar either",
        settings="ambient",
        labels={"tier": "db", **NO_SIDECAR},
        want=("excluded",),
        want_labels=OUT_OF_AMBIENT,
        skipped=UNHELD,
    ),
    Case(
        id="ambient: an excluded pod that says itself where it is",
        settings="ambient",
        labels={"tier": "db", **IN_AMBIENT},
        skipped=("excluded:PodSaysItself", *UNHELD),
    ),
    Case(
        id="ambient: an excluded pod that asks for a sidecar",
        settings="ambient",
        labels={"tier": "db", **SIDECAR},
        skipped=("excluded:PodSaysItself", *UNHELD),
    ),
    Case(
        id="ambient: what is no matter of proxies goes on",
        settings="ambient",
        labels={"app": "web"},
        want=("labels",),
        want_labels={"tier": "front"},
        skipped=UNHELD,
    ),
    Case(
        id="ambient: a selected pod",
        settings="ambient-selected",
        labels={"team": "ml"},
        want=("inject",),
        want_labels=IN_AMBIENT,
        skipped=("hold:Ambient",),
    ),
    Case(
        id="ambient: a selected pod that would have no sidecar",
        settings="ambient-selected",
        labels={"team": "ml", **NO_SIDECAR},
        want=("inject",),
        want_labels=IN_AMBIENT,
        skipped=("hold:Ambient",),
    ),
    Case(
        id="ambient: a selected pod that is excluded",
        settings="ambient-selected",
        labels={"team": "ml", "never": ""},
        want=("excluded",),
        want_labels=OUT_OF_AMBIENT,
        skipped=("hold:Ambient",),
    ),
    Case(
        id="ambient: a selected pod that asks for a sidecar",
        settings="ambient-selected",
        labels={"team": "ml", **SIDECAR},
        skipped=("inject:PodSaysItself", "hold:Ambient"),
    ),
    Case(
        id="ambient: a pod that is not selected",
        settings="ambient-selected",
        labels={"team": "web"},
        skipped=("hold:Ambient",),
    ),
)
