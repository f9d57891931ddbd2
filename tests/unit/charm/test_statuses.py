"""What the operator is told about refusals."""

import ops
import pytest

from istio_integrator import statuses
from istio_integrator.kube import errors

DENIED = 'is forbidden: User "u" cannot {} resource "{}" in API group "{}" in the namespace "m"'


@pytest.mark.parametrize(
    ("message", "right"),
    [
        ("pods " + DENIED.format("create", "pods", ""), "create pods"),
        ('configmaps "istio" ' + DENIED.format("get", "configmaps", ""), "get configmaps istio"),
        (
            'envoyfilters.networking.istio.io "a" '
            + DENIED.format("patch", "envoyfilters", "networking.istio.io"),
            "patch envoyfilters.networking.istio.io a",
        ),
        ("something else", ""),
    ],
)
def test_missing_right_is_named_with_its_object(message, right):
    assert statuses.missing_right(errors.ForbiddenError(403, message)) == right


def test_refusal_by_a_policy_names_the_policy_and_what_it_says():
    message = (
        "namespaces \"m\" is forbidden: ValidatingAdmissionPolicy 'm-app-limits' with binding "
        "'m-app-limits' denied request: of namespaces, app changes its mark only"
    )
    said = statuses.of_error(errors.InvalidError(422, message), application="app")
    assert said == ops.BlockedStatus(
        "ValidatingAdmissionPolicy m-app-limits denies it: of namespaces, app changes its "
        "mark only"
    )
