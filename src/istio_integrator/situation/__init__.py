"""What a hook knows of the cluster, read once."""
