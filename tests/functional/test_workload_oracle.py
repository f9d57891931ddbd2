"""Our restart rules against Kubernetes' own, on generated pods: never early, never forgotten.

The oracle is a Go program that calls `ContainerShouldRestart` of k8s.io/kubernetes.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from typing import Any

import msgspec
import pytest
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types

from integrator_contract.answers import Action
from testbed import programs
from tests.unit.workload import pods

CODES = (0, 1, 2, 42, 137, 143, 255)
POLICIES = ("Never", "OnFailure", "Always")


def _codes(rand: random.Random) -> list[int]:
    return rand.sample(CODES, rand.randint(1, 3))


def _spec(rand: random.Random) -> dict[str, Any]:
    if rand.random() < 0.5:
        return {}
    spec: dict[str, Any] = {"restartPolicy": rand.choice(POLICIES)}
    if rand.random() < 0.6:
        spec["restartPolicyRules"] = [
            pods.rule(
                rand.choice(("Restart", "Restart", "RestartAllContainers")),
                *_codes(rand),
                operator=rand.choice(("In", "NotIn")),
            )
            for _ in range(rand.randint(1, 3))
        ]
    return spec


def _state(rand: random.Random, ended: float) -> dict[str, Any] | None:
    if rand.random() < ended:
        return pods.ended(rand.choice((0, rand.choice(CODES))))
    return rand.choice(
        (pods.running(), pods.waiting(), pods.waiting("ImagePullBackOff"), {}, None)
    )


def generate(rand: random.Random) -> dict[str, Any]:
    """Return a running pod with one to three payload containers and a proxy that runs."""
    ended = rand.choice((0.5, 0.95, 1.0))
    main = _state(rand, ended)
    others = {f"side-{number}": _state(rand, ended) for number in range(rand.randint(0, 2))}
    pod = pods.pod_json(main or {}, others=others, policy=rand.choice(("Never", "OnFailure")))
    if main is None:
        pod["status"]["containerStatuses"].pop(0)
    for container in pod["spec"]["containers"]:
        if container["name"] != pods.PROXY:
            container.update(_spec(rand))
    return pod


@pytest.fixture(scope="session")
def oracle() -> str:
    return str(programs.ensure(["oracle"])["oracle"] / "bin" / "oracle")


@pytest.mark.parametrize("number", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_decisions_agree_with_kubernetes_on_generated_pods(oracle: str, number: int):
    rand = random.Random(20260)
    generated = [generate(rand) for _ in range(number)]
    text = "\n".join(json.dumps(pod) for pod in generated)
    answers = subprocess.run(
        [oracle], input=text, capture_output=True, text=True, check=True
    ).stdout.split()

    policy = finished.Policy()
    tally: Counter[tuple[str, bool]] = Counter()
    wrong: list[str] = []
    for pod, answer in zip(generated, answers, strict=True):
        decision = finished.finished(msgspec.convert(pod, types.Pod), policy)
        stop = decision.action is Action.STOP
        tally[answer, stop] += 1
        if stop is not (answer == "done"):
            wrong.append(f"{answer}, we say {decision}: {json.dumps(pod)}")

    assert not wrong[:3], f"{len(wrong)} of {number} pods: {wrong[:3]}"
    assert min(tally["done", True], tally["not", False]) > number / 10
