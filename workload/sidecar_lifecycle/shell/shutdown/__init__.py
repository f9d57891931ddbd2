"""The proxy-shutdown reconciler, which lets pods that run to completion complete."""
