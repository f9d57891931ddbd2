"""The errors of the charm, each with the details that the operator needs."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import httpx2
import lightkube
import msgspec
import opentelemetry.trace

from integrator_contract import refusals

_tracer = opentelemetry.trace.get_tracer(__name__)
_LONGEST_REFUSAL = 2000
"""Characters of a rejection that are parsed; it may quote objects of any size."""
_NOT_SERVED = "the server could not find the requested resource"
"""The API server's text for an unknown kind in a served group; for a missing object it has the
name."""


class CharmError(Exception):
    """Base of every error that the charm turns into a status."""


class ConfigError(CharmError):
    """Options that do not follow their grammar, with one line for each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class ApiError(CharmError):
    """The API server rejected a request."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")

    @property
    def is_about_the_object(self) -> bool:
        """Whether a webhook (400) or a schema (422) rejected the object's content."""
        return self.code in (400, 422)


class ForbiddenError(CharmError):
    """The authorizer denied a request: a missing right."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class RefusedError(ApiError):
    """A webhook, a policy, a quota or an admission plugin rejected an object."""

    def __init__(
        self, code: int, message: str, refusal: refusals.Refusal, reference: str = ""
    ) -> None:
        super().__init__(code, message)
        self.refusal = refusal
        self.reference = reference

    def __str__(self) -> str:
        """Return the object, the author of the rejection and the reason."""
        return f"{self.reference}: {self.refusal}" if self.reference else str(self.refusal)

    @property
    def is_about_the_object(self) -> bool:
        """Whether the rejection is about the object's content, with any status code."""
        return not self.refusal.is_unreachable


class ConflictError(ApiError):
    """Another client changed the object between the charm's read and its write."""


class InvalidError(ApiError):
    """The API server rejects an object's content."""


class KindAbsentError(ApiError):
    """The API server does not serve this kind: a CRD is missing or an API is switched off."""


class UnreachableError(CharmError):
    """The API server did not answer, or its answer can't be read."""


class ForeignError(CharmError):
    """An object that the charm needs exists, but its labels name another owner or no owner."""

    def __init__(self, reference: str, owner: str = "") -> None:
        self.reference = reference
        self.owner = owner or "another tool"
        super().__init__(f"{self.owner} has {reference}")


class LifecycleError(CharmError):
    """The workload did not answer a request, or answered with an error."""


@contextlib.contextmanager
def translate_errors(request: str, reference: str = "") -> Generator[None]:
    """Turn failed requests to the API server into the charm's errors.

    The hook's trace names the request, and a rejection names the object.
    """
    # An error answer does not make the span an error: most missing objects are optional.
    with _tracer.start_as_current_span(
        request, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except _FAILURES as error:
            found = _translate_error(error, reference)
            span.set_attribute("error.type", str(getattr(found, "code", type(found).__name__)))
            # A traceback would print the cause, whose text may quote secrets.
            raise found from None


_FAILURES = (httpx2.HTTPError, msgspec.MsgspecError, RecursionError, TypeError, ValueError)
"""Exceptions of the client; its ApiError is an HTTPError."""


def _translate_error(error: Exception, reference: str) -> CharmError:
    if isinstance(error, lightkube.ApiError):
        message = error.status.message or str(error.status.reason)
        # An error within a stream has no response of its own.
        response = getattr(error, "response", None)
        code = response.status_code if response is not None else error.status.code or 500
        return make_error(code, message, reference)
    if isinstance(error, httpx2.HTTPStatusError):
        # For an unknown kind the answer is plain text, not a Status.
        code = error.response.status_code
        if code == 404:
            return KindAbsentError(code, f"{error.request.url.path} is not served")
        return make_error(code, error.response.text.strip())
    if isinstance(error, httpx2.HTTPError):
        return UnreachableError(str(error) or type(error).__name__)
    place = f"{reference}: " if reference else ""
    return UnreachableError(f"{place}the answer is not understood: {error}")


def make_error(code: int, message: str, reference: str = "") -> ApiError | ForbiddenError:
    """Return the error for an unsuccessful answer, without secrets that the answer quotes."""
    message = refusals.cut_generated(refusals.hide_secrets(message))[:_LONGEST_REFUSAL]
    if refusals.is_missing_right(code, message):
        return ForbiddenError(message)
    if refusal := refusals.read_refusal(code, message):
        return RefusedError(code, message, refusal, reference)
    if code == 409:
        return ConflictError(code, message)
    if code == 422:
        return InvalidError(code, message)
    if code == 404 and message == _NOT_SERVED:
        return KindAbsentError(code, message)
    return ApiError(code, message)
