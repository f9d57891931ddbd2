"""Replacement of pods that were created before the injector and so lack their sidecar."""
