"""The proxy-shutdown reconciler: pods that run to completion complete."""
