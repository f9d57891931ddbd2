"""The commands of `sidecar-lifecycle`, and what they share."""
