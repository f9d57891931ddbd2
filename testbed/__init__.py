"""A real local Kubernetes with a real Istio, to try the charm on.

`python -m testbed --help` lists the commands; `testbed.cluster` is the same from Python.
"""
