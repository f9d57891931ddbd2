"""Strict mutual TLS for the model, with its exceptions, and its preview."""
