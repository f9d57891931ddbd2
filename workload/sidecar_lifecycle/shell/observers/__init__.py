"""Watches of what the charm decides on, and the notices that tell it of changes."""
