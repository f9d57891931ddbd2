"""The components of the charm, which `charm.py` connects."""
