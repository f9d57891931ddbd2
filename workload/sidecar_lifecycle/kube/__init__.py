"""The hands of the workload: slim resource types and a thin layer over the Kubernetes API."""
