"""What can go wrong between us and the API, by what one does about it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import aiohttp
import httpx2
import lightkube
import msgspec


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


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


def from_response(code: int, body: bytes, retry_after: str | None = None) -> StatusError:
    """Return the error for an answer that is not 2xx."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except (msgspec.DecodeError, msgspec.ValidationError):
        status = _Status(message=body[:200].decode(errors="replace"))
    return StatusError(code, status.reason, status.message, _seconds(retry_after))


def _seconds(value: str | None) -> float | None:
    try:
        return float(value) if value is not None else None
    except ValueError:
        return None


@contextlib.contextmanager
def mapped() -> Generator[None]:
    """Turn the errors of lightkube, httpx and aiohttp into ours, the cause kept."""
    try:
        yield
    except lightkube.ApiError as error:
        status = error.status
        # Without a response lightkube's error has no such attribute set.
        response = getattr(error, "response", None)
        retry_after = response.headers.get("Retry-After") if response is not None else None
        raise StatusError(
            status.code or 0, status.reason or "", status.message or "", _seconds(retry_after)
        ) from error
    except httpx2.HTTPStatusError as error:
        raise from_response(error.response.status_code, b"") from error
    except (httpx2.HTTPError, aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Unreachable(f"{type(error).__name__}: {error}"[:300]) from error
