"""A real local Kubernetes with a real Istio, and a stand-in for Juju, to try the charm on.

`python -m testbed --help` lists the commands; `testbed.cluster` is the same from Python.
"""
