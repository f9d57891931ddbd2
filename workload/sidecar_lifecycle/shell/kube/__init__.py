"""A thin layer over the Kubernetes API."""
