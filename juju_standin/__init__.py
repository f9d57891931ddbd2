"""A stand-in for Juju: a controller, a unit agent, a client and a command line.

README.md describes what it imitates, and what it does not imitate.
"""
