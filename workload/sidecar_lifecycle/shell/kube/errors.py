"""Errors of requests to the API server, grouped by the way to handle them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator

import aiohttp
import msgspec
from aiohttp.http import HttpProcessingError

_MOST_DOUBLINGS = 30


class KubeError(Exception):
    """Base class of the errors of this package."""


class Unreachable(KubeError):  # noqa: N818 - names a condition, as the rest of this family
    """The connection was refused or reset, or the answer was late or invalid."""


class StatusError(KubeError):
    """The API server answered with a Status other than Success."""

    def __init__(
        self, code: int, reason: str = "", message: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(f"{code} {reason}: {message}".strip()[:500])
        self.code = code
        self.message = message
        self.retry_after = retry_after
        """Seconds, from the header Retry-After."""


class StreamError(KubeError):
    """A port-forward or exec was opened but failed, for example with invalid data."""


class StreamEnded(StreamError):  # noqa: N818 - names a condition, as the rest of this family
    """The peer closed the stream too early."""


class TooLarge(StreamError):  # noqa: N818 - names a condition, as the rest of this family
    """The peer sends more bytes than the limit."""


class Status(msgspec.Struct):
    """How the API server ends a request, a watch or a command."""

    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""


def read_status(body: bytes) -> Status:
    """Decode a Status; text that is none is its message."""
    try:
        with translate_decode_errors():
            return msgspec.json.decode(body, type=Status)
    except Unreachable:
        return Status(message=body[:300].decode(errors="replace"))


def from_response(code: int, body: bytes, retry_after: str | None = None) -> StatusError:
    """Return the error for an answer that is not 2xx."""
    status = read_status(body)
    seconds = None
    with contextlib.suppress(ValueError):
        seconds = float(retry_after) if retry_after else None
    return StatusError(code, status.reason, status.message, seconds)


@contextlib.contextmanager
def translate_decode_errors() -> Generator[None]:
    """Convert errors of decoding to Unreachable: an invalid answer counts as a missing one."""
    try:
        yield
    except (msgspec.MsgspecError, ValueError, RecursionError, MemoryError) as error:
        raise Unreachable(f"not understood: {error}"[:300]) from error


@contextlib.contextmanager
def translate_errors() -> Generator[None]:
    """Convert errors of aiohttp to Unreachable, with the original error as its cause."""
    try:
        yield
    except (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError) as error:
        raise Unreachable(f"{type(error).__name__}: {error}"[:300]) from error


def compute_delay(failures: int, *, initial: float = 0.2, maximum: float = 30.0) -> float:
    """Return the seconds to wait after a number of consecutive failures.

    The delay doubles with each failure up to a maximum. A random part of at most twice the initial
    delay is added, so that requests that failed together are not retried together.
    """
    doubled = initial * 2 ** min(failures - 1, _MOST_DOUBLINGS)
    return min(maximum, doubled) + random.uniform(0, 2 * initial)  # noqa: S311 - no secret
