"""What goes wrong between us and the API server, as the charm's errors."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import httpx2
import lightkube
import msgspec
import opentelemetry.trace

from integrator_contract import refusals
from istio_integrator.kube import errors

_tracer = opentelemetry.trace.get_tracer(__name__)
_LONGEST_REFUSAL = 2000
"""Characters of a refusal that are looked at; it may quote objects of any size."""
# An object that is missing is named; these words are for a kind that is not served in a group
# that is.
_NOT_SERVED = "the server could not find the requested resource"


@contextlib.contextmanager
def mapped(request: str, reference: str = "") -> Generator[None]:
    """Turn what goes wrong between us and the API server into the charm's errors.

    Args:
        request: What is asked, for the hook's trace.
        reference: Kind and name of the object that is written, for a refusal.
    """
    # An answer is no error of the trace: most of what is not found need not be there.
    with _tracer.start_as_current_span(
        request, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            with _mapped(reference):
                yield
        except errors.CharmError as error:
            span.set_attribute("error.type", str(getattr(error, "code", type(error).__name__)))
            raise


@contextlib.contextmanager
def _mapped(reference: str) -> Generator[None]:
    try:
        yield
    except lightkube.ApiError as error:
        message = (error.status.message or str(error.status.reason))[:_LONGEST_REFUSAL]
        # What a stream carries in its frames is no answer of its own.
        response = getattr(error, "response", None)
        code = response.status_code if response is not None else error.status.code or 500
        raise error_of(code, message, reference) from error
    except httpx2.HTTPStatusError as error:
        # A kind that is not served is answered in plain text, not with a Status.
        code = error.response.status_code
        if code == 404:
            raise errors.KindAbsentError(
                code, f"{error.request.url.path} is not served"
            ) from error
        raise error_of(code, error.response.text[:200].strip()) from error
    except httpx2.HTTPError as error:
        raise errors.UnreachableError(str(error) or type(error).__name__) from error
    except RecursionError as error:
        raise errors.TooDeepError(f"the answer nests too much: {error}") from error
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise errors.GarbledError(f"the answer is not understood: {error}") from error


def error_of(code: int, message: str, reference: str = "") -> errors.ApiError:
    """Choose the error for an answer that is not success."""
    if refusals.is_missing_right(code, message):
        return errors.ForbiddenError(code, message)
    if refusal := refusals.read(code, message):
        return errors.RefusedError(code, message, refusal, reference)
    if code == 409:
        return errors.ConflictError(code, message)
    if code == 422:
        return errors.InvalidError(code, message)
    if code == 404 and message == _NOT_SERVED:
        return errors.KindAbsentError(code, message)
    return errors.ApiError(code, message)
