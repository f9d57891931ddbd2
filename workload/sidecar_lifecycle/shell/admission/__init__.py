"""The admission webhook, which prepares new pods."""
