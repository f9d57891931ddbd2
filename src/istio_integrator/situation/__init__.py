"""The state of the cluster, read once per hook."""
