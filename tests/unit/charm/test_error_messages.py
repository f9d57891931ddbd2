"""What the operator is told about refusals."""

import pytest

from istio_integrator import error_messages, messages
from istio_integrator.kube import errors
from istio_integrator.messages import Message, Said

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
    assert error_messages.missing_right(errors.ForbiddenError(message)) == right


APP = "istio-integrator"
DIAGNOSE = f"run: juju run {APP}/leader diagnose"
POLICY = (
    "namespaces \"m\" is forbidden: ValidatingAdmissionPolicy 'm-app-limits' with binding "
    "'m-app-limits' denied request: of namespaces, app changes its mark only"
)


def of_answer(code, message, reference) -> Message:
    return error_messages.of_error(errors.error_of(code, message, reference), application=APP)


@pytest.mark.parametrize(
    ("code", "message", "reference", "kind", "author", "command"),
    [
        pytest.param(
            422,
            POLICY,
            "Namespace m",
            Said.OBJECT_REFUSED,
            "ValidatingAdmissionPolicy m-app-limits",
            "kubectl get validatingadmissionpolicy m-app-limits -o yaml",
            id="policy",
        ),
        pytest.param(
            400,
            'admission webhook "gateways.azmk8s.io" denied the request: EnvoyFilters are not '
            "supported",
            "EnvoyFilter istio-ingress/istio-integrator.kubeflow.istio-integrator",
            Said.OBJECT_REFUSED,
            'webhook "gateways.azmk8s.io"',
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
            id="webhook",
        ),
        pytest.param(
            500,
            'Internal error occurred: failed calling webhook "check.opa.sh": failed to call '
            "webhook: connection refused",
            "Service kubeflow/gateway",
            Said.WEBHOOK_SILENT,
            'webhook "check.opa.sh" does not answer',
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
            id="webhook-away",
        ),
        pytest.param(
            403,
            'pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3',
            "Pod kubeflow/a",
            Said.OBJECT_REFUSED,
            "ResourceQuota small",
            "kubectl describe namespace kubeflow",
            id="quota",
        ),
    ],
)
def test_refusal_names_its_author_the_object_and_a_command(  # noqa: PLR0917 - a table
    code, message, reference, kind, author, command
):
    said = of_answer(code, message, reference)
    assert said.said is kind
    assert said.condition.startswith(author)
    assert said.condition.endswith(f" {reference}")
    assert said.command == command
    visible = said.status(application=APP).message[: messages.VISIBLE]
    assert author in visible
    assert DIAGNOSE in visible or f"run: {command}" in visible


def test_long_name_of_an_author_stays_visible():
    name = "istio-integrator-limits-of-kubeflow"
    message = POLICY.replace("m-app-limits", name)
    said = of_answer(422, message, "Namespace kubeflow")
    assert said.status(application=APP).message == (
        f"{DIAGNOSE}; {name} refuses Namespace kubeflow; of namespaces, app changes its mark only"
    )


def test_missing_right_is_said_before_the_command():
    said = of_answer(403, "pods " + DENIED.format("list", "pods", ""), "")
    assert said.status(application=APP).message == (
        "missing permission: list pods; run: juju trust istio-integrator --scope=cluster"
    )
