"""Mutual TLS between the pods of training jobs."""
