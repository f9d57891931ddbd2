"""Structured logs: one JSON object per line on standard error."""

from __future__ import annotations

import logging
import sys

import structlog

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logs(level: str) -> None:
    """Write the program's logs, and warnings of libraries, to standard error as JSON."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    quietest = max(logging.WARNING, LEVELS[level])
    logging.getLogger().setLevel(quietest)
    logging.basicConfig(
        format='{"level": "%(levelname)s", "logger": "%(name)s", "message": %(message)r}',
        stream=sys.stderr,
    )
