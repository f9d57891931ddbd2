"""The admission webhook, which patches new pods."""
