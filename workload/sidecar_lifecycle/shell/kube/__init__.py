"""A thin client of the Kubernetes API."""
