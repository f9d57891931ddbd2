"""What the operator is told about refusals."""

import re

import ops
import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator import statuses
from istio_integrator.kube import errors, failures

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


APP = "istio-integrator"
DIAGNOSE = f"run: juju run {APP}/leader diagnose"
POLICY = (
    "namespaces \"m\" is forbidden: ValidatingAdmissionPolicy 'm-app-limits' with binding "
    "'m-app-limits' denied request: of namespaces, app changes its mark only"
)


def of_answer(code, message, reference) -> ops.StatusBase:
    return statuses.of_error(failures.error_of(code, message, reference), application=APP)


@pytest.mark.parametrize(
    ("code", "message", "reference", "kind", "author", "command"),
    [
        pytest.param(
            422,
            POLICY,
            "Namespace m",
            ops.BlockedStatus,
            "ValidatingAdmissionPolicy m-app-limits",
            "kubectl get validatingadmissionpolicy m-app-limits -o yaml",
            id="policy",
        ),
        pytest.param(
            400,
            'admission webhook "gateways.azmk8s.io" denied the request: EnvoyFilters are not '
            "supported",
            "EnvoyFilter istio-ingress/istio-integrator.kubeflow.istio-integrator",
            ops.BlockedStatus,
            'webhook "gateways.azmk8s.io"',
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
            id="webhook",
        ),
        pytest.param(
            500,
            'Internal error occurred: failed calling webhook "check.opa.sh": failed to call '
            "webhook: connection refused",
            "Service kubeflow/gateway",
            ops.WaitingStatus,
            'webhook "check.opa.sh" does not answer',
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
            id="webhook-away",
        ),
        pytest.param(
            403,
            'pods "a" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3',
            "Pod kubeflow/a",
            ops.BlockedStatus,
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
    assert type(said) is kind
    assert said.message.startswith(author)
    assert f" {reference}; run: {command}; " in said.message
    visible = statuses.shown(said, application=APP).message[: statuses.VISIBLE]
    assert author in visible
    assert DIAGNOSE in visible or f"run: {command}" in visible


def test_long_name_of_an_author_stays_visible():
    name = "istio-integrator-limits-of-kubeflow"
    message = POLICY.replace("m-app-limits", name)
    said = of_answer(422, message, "Namespace kubeflow")
    assert statuses.shown(said, application=APP).message == (
        f"{DIAGNOSE}; {name} refuses Namespace kubeflow; of namespaces, app changes its mark only"
    )


WORDS = st.text(st.sampled_from("ab -/.=\n"), max_size=200)


@given(WORDS, st.integers(1, 250), WORDS)
def test_command_ends_within_the_visible_characters_and_no_word_is_lost(seen, length, more):
    status = ops.BlockedStatus(f"{seen}; run: {'c' * length}; {more}")
    message = statuses.shown(status, application=APP).message
    said = statuses.parts(message)
    assert message.index("run: ") + len("run: ") + len(said.command) <= statuses.VISIBLE
    assert said.command in ("c" * length, f"juju run {APP}/leader diagnose")

    def letters(text):
        return re.sub(r"[^ab]", "", text.replace("\\n", ""))

    assert letters(said.seen) == letters(seen) + letters(more)


@pytest.mark.parametrize(
    "message",
    [
        "missing permission: list pods; run: juju trust istio-integrator --scope=cluster",
        "waiting for istiod: the cluster has no sidecar injector",
        "x" * 300,
    ],
)
def test_message_that_needs_no_other_order_is_shown_as_it_is(message):
    status = ops.BlockedStatus(message)
    assert statuses.shown(status, application=APP) == status


def test_missing_right_is_said_before_the_command():
    said = of_answer(403, "pods " + DENIED.format("list", "pods", ""), "")
    assert said == ops.BlockedStatus(
        "missing permission: list pods; run: juju trust istio-integrator --scope=cluster"
    )
