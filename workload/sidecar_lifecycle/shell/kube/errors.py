"""What can go wrong between us and the API, by what one does about it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator

import aiohttp
import msgspec
from aiohttp.http import HttpProcessingError

_MOST_DOUBLINGS = 30


class KubeError(Exception):
    """Base of what this package raises."""


class Unreachable(KubeError):  # noqa: N818 - names a condition, as the rest of this family
    """No answer: refused, reset, timed out, or not understood."""


class StatusError(KubeError):
    """The API answered with a Status that is not success."""

    def __init__(
        self, code: int, reason: str = "", message: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(f"{code} {reason}: {message}".strip()[:500])
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        """Seconds that the server asked us to wait."""


class StreamError(KubeError):
    """A port-forward or exec was opened but did not carry what it should."""


class StreamEnded(StreamError):  # noqa: N818 - names a condition, as the rest of this family
    """The other side ended the stream before all was said."""


class TooLarge(StreamError):  # noqa: N818 - names a condition, as the rest of this family
    """The other side sends more than is read."""


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


def from_response(code: int, body: bytes, retry_after: str | None = None) -> StatusError:
    """Return the error for an answer that is not 2xx."""
    try:
        with understood():
            status = msgspec.json.decode(body, type=_Status)
    except Unreachable:
        status = _Status(message=body[:200].decode(errors="replace"))
    seconds = None
    with contextlib.suppress(ValueError):
        seconds = float(retry_after) if retry_after else None
    return StatusError(code, status.reason, status.message, seconds)


@contextlib.contextmanager
def understood() -> Generator[None]:
    """Turn what decoding an answer raises into ours: garbage is no answer."""
    try:
        yield
    except (msgspec.MsgspecError, ValueError, RecursionError, MemoryError) as error:
        raise Unreachable(f"not understood: {error}"[:300]) from error


@contextlib.contextmanager
def mapped() -> Generator[None]:
    """Turn the errors of aiohttp into ours, the cause kept."""
    try:
        yield
    except (aiohttp.ClientError, HttpProcessingError, TimeoutError, OSError) as error:
        raise Unreachable(f"{type(error).__name__}: {error}"[:300]) from error


def delay(failures: int, *, initial: float = 0.2, maximum: float = 30.0) -> float:
    """Return how many seconds to wait after failures in a row.

    The delay doubles with each failure up to a maximum. Up to twice the initial delay is added at
    random, so that requests which failed together are not sent again together.
    """
    doubled = initial * 2 ** min(failures - 1, _MOST_DOUBLINGS)
    return min(maximum, doubled) + random.uniform(0, 2 * initial)  # noqa: S311 - no secret
