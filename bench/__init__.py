"""Benchmarks: each compares this charm or its workload with something else in one run.

`python -m bench.NAME` prints the figures. `tests/functional/test_bounds.py` and
`tests/e2e/test_bounds.py` run each of them with small numbers and hold a bound.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / each) for each in ("src", "lib", "workload")]
