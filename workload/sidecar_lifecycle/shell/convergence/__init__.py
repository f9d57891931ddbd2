"""Pods that missed their sidecar, because of the order things came up in, are replaced."""
