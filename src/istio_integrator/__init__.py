"""The charm's rooms; `charm.py` beside this package wires them."""
