"""Which error an answer of the API server that is not success is to the charm."""

import pytest

from istio_integrator.kube import errors


@pytest.mark.parametrize(
    ("code", "message", "kind"),
    [
        (401, "Unauthorized", errors.ForbiddenError),
        (403, 'User "a" cannot list resource "pods" in API group ""', errors.ForbiddenError),
        (403, "exceeded quota: pods", errors.RefusedError),
        (403, "the resource is not allowed by a policy", errors.ApiError),
        (403, 'admission webhook "a.b" denied the request: root', errors.RefusedError),
        (
            403,
            'admission webhook "a.b" denied the request: the user cannot use resource "pods"',
            errors.RefusedError,
        ),
        (404, 'admission webhook "a.b" denied the request: not found', errors.RefusedError),
        (404, "the server could not find the requested resource", errors.KindAbsentError),
        (404, 'pods "a" not found', errors.ApiError),
        (409, "the object has been modified", errors.ConflictError),
        (422, "spec: Invalid value", errors.InvalidError),
        (500, "the server could not find the requested resource", errors.ApiError),
    ],
)
def test_answer_is_the_error_that_its_code_and_words_mean(code, message, kind):
    found = errors.error_of(code, message)
    assert type(found) is kind
    assert (found.code, found.message) == (code, message)


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (RecursionError("deep"), errors.GarbledError),
        (ValueError("no JSON"), errors.GarbledError),
        (TypeError("no mapping"), errors.GarbledError),
    ],
)
def test_answer_that_can_not_be_read_is_an_error_of_ours(raised, kind):
    with pytest.raises(kind), errors.mapped("get Pod"):
        raise raised
