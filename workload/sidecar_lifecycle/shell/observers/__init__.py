"""Watches of objects that affect the charm, and the Pebble notices about changes."""
