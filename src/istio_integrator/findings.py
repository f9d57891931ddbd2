"""Findings of the action preview-security, which are messages."""

from __future__ import annotations

from istio_integrator.messages import Message, Said

Finding = Message


def fine(seen: str) -> Finding:
    """Say that all is well."""
    return Said.FOUND_FINE(finding=seen)


def doubtful(seen: str, next: str) -> Finding:  # noqa: A002 - the word of the report
    """Say what may be wrong, or is not known."""
    return Said.FOUND_DOUBTFUL(finding=seen, command=next)


def broken(seen: str, next: str) -> Finding:  # noqa: A002 - the word of the report
    """Say what does not work."""
    return Said.FOUND_BROKEN(finding=seen, command=next)
