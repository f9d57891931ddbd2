"""A small stand-in for Juju: a controller, a unit agent and a command line.

It is a test double. What it does not imitate is written down in
docs/explanation/what-the-testbed-imitates.md.
"""
