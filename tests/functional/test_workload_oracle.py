"""The decision to stop a proxy, compared with the kubelet's own code on generated pods.

The oracle is a Go program that simulates pods with the kubelet's functions, which decide what
starts and write the status. It says of each status whether the pod has work left.
"""

import subprocess
from collections import Counter

import msgspec
import pytest
from sidecar_lifecycle.decide import finished
from sidecar_lifecycle.model import types

from integrator_contract.answers import Action
from testbed import programs

SEED = "20260"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", [10_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_decisions_agree_with_kubernetes_on_generated_pods(number: int):
    program = programs.ensure(["oracle"])["oracle"] / "bin" / "oracle"
    pods = msgspec.json.Decoder(types.Pod)
    policy = finished.Policy()
    tally: Counter[tuple[str, bool]] = Counter()
    wrong: list[str] = []
    with subprocess.Popen([program, SEED, str(number)], stdout=subprocess.PIPE) as oracle:
        assert oracle.stdout is not None
        for line in oracle.stdout:
            verdict, _, pod = line.decode().partition(" ")
            decision = finished.decide(pods.decode(pod), policy)
            stop = decision.action is Action.STOP
            tally[verdict, stop] += 1
            if stop is not (verdict == "done"):
                wrong.append(f"{verdict}, we say {decision}: {pod}")

    assert oracle.returncode == 0
    assert not wrong, f"{len(wrong)} of {number} pods: {wrong[:3]}"
    assert tally.total() == number
    assert min(tally["done", True], tally["not", False]) > number / 20, tally
