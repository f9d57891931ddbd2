"""Structured logs: one JSON object per line on standard error."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

LOOK = 1.0
"""Seconds between looks at the file that names the level."""
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(level: str) -> None:
    """Send our logs, and warnings of libraries, to standard error as JSON."""
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
        level=quietest,
        format='{"level": "%(levelname)s", "logger": "%(name)s", "message": %(message)r}',
        stream=sys.stderr,
    )


async def follow(path: Path, level: str) -> None:
    """Log at the level that a file names, from within a moment of its being written, for ever.

    While the file is absent or names no level, the present level stays.
    """
    while True:
        wanted = _read(path)
        if wanted != level and wanted in LEVELS:
            level = wanted
            configure(level)
            log.info("log level", level=level)
        await asyncio.sleep(LOOK)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
