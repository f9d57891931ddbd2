"""AdmissionReviews of any kind: an answer each time, never a crash, never a refused pod."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integrator_contract.reasons import ADMISSION, Reason
from tests.unit.cases import cases, row
from tests.unit.workload.webhook_world import POD, Webhook, request, serving


@pytest.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with serving(tmp_path) as subject:
        yield subject


async def is_counted(webhook: Webhook, outcome: str) -> bool:
    """Tell whether there was one review, and what became of it."""
    return await webhook.count("reviews_total", namespaces="model", outcome=outcome) == 1


async def test_a_pod_is_answered_with_a_patch_of_what_changes(webhook: Webhook):
    response = await webhook.respond(request())

    assert await is_counted(webhook, "patched")
    assert (response["uid"], response["allowed"]) == ("u-1", True)
    assert response["patchType"] == "JSONPatch"
    assert response["auditAnnotations"] == {"applied": "inject,ports,hold"}
    patch = json.loads(base64.b64decode(response["patch"]))
    changed = ["/metadata/annotations", "/metadata/labels"]
    assert [operation["path"] for operation in patch] == changed


@cases(
    "fields",
    update={"operation": "UPDATE", "uid": "u-2"},
    subresource={"subResource": "ephemeralcontainers"},
    group={"resource": {"group": "apps", "resource": "pods"}},
    resource={"resource": {"group": "", "resource": "services"}},
)
async def test_what_is_no_creation_of_a_pod_is_allowed_untouched(
    webhook: Webhook, fields: dict[str, Any]
):
    uid = fields.get("uid", "u-1")
    assert await webhook.respond(request(**fields)) == {"uid": uid, "allowed": True}
    assert await is_counted(webhook, "not-ours")


EXCLUDED_PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"
MUCH = (
    f'{{"metadata": {{"annotations": {{"{EXCLUDED_PORTS}": "'
    + r"\u0001" * 200_000
    + '"}}, "spec": {"containers": [{}]}}'
)
DEEP = '{"metadata": {"labels": {"a": ' + "[" * 20_000 + "]" * 20_000 + "}}}"


@cases(
    ("pod", "why"),
    none=("null", "it could not read it: Expected `object`, got `null`"),
    list=("[]", "it could not read it: Expected `object`, got `array`"),
    containers=(json.dumps({**POD, "spec": {"containers": {}}}), "it could not read it: "),
    label=(json.dumps({**POD, "metadata": {"labels": {"a": 1}}}), "it could not read it: "),
    annotations=(json.dumps({**POD, "metadata": {"annotations": []}}), "it could not read it: "),
    # Beyond a bound.
    much_to_answer=(MUCH, "what it would add has more than 524288 bytes"),
    deep=(DEEP, None),
    surrogate=(r'{"metadata": {"name": "\ud800"}, "spec": {"containers": []}}', None),
    long_number=('{"metadata": {"name": ' + "1" * 5000 + "}}", "it could not read it: "),
)
async def test_a_pod_beyond_a_bound_is_allowed_as_it_is_or_no_review(
    webhook: Webhook, pod: str, why: str | None
):
    text = request(object="@", uid="u-2").replace(b'"@"', pod.encode())

    assert await webhook.status(text) == (200 if why else 400)

    assert await is_counted(webhook, "not-understood" if why else "malformed")
    if why:
        response = json.loads(webhook.answer)["response"]
        (warning,) = response.pop("warnings")
        assert response == {"uid": "u-2", "allowed": True}
        assert warning.startswith(f"istio-integrator left the pod as it is, {why}")


async def test_review_of_20_000_commas_is_read_and_a_longer_one_is_not(webhook: Webhook):
    text = request(object={**POD, "metadata": {"annotations": {"a": "@"}}}, uid="u-2")
    rest = b"," * (20_000 - text.count(b","))
    assert "patch" in await webhook.respond(text.replace(b"@", rest))
    warning = "istio-integrator left the pod as it is, the review has more than 20000 commas"
    longer = await webhook.respond(text.replace(b"@", rest + b","))
    assert longer == {"uid": "u-2", "allowed": True, "warnings": [warning]}


@cases(
    ("key", "value", "reason", "missed"),
    {"key": "proxy.istio.io/config", "missed": ("hold",)},
    no_hold_possible=row(value="- a list", reason="ConfigNotMergeable"),
    configured_at_length=row(value=f"a: {'b' * 3000}", reason="ConfigTooLong"),
    says_itself=row(
        value="holdApplicationUntilProxyStarts: false", reason="ConfigSaysItself", missed=()
    ),
    no_ports_possible=row(
        key=EXCLUDED_PORTS, value=",", reason="PortsNotMergeable", missed=("ports",)
    ),
    full=row(key="a", value="x" * 262_100, reason="AnnotationsFull", missed=("ports", "hold")),
    mirror=("kubernetes.io/config.mirror", "0123", "MirrorPod", ()),
)
async def test_creator_of_a_pod_is_warned_of_a_change_that_was_meant_for_it(
    webhook: Webhook, key: str, value: str, reason: str, missed: tuple[str, ...]
):
    response = await webhook.respond(
        request(object={**POD, "metadata": {"annotations": {key: value}}})
    )

    assert await webhook.count("skips_total", reason=reason) > 0
    assert await is_counted(webhook, "patched" if "patch" in response else "unchanged")
    why = ADMISSION[Reason(reason)]
    warnings = [f"istio-integrator: no {change}: {why}" for change in missed]
    assert response.get("warnings", []) == warnings


OF_V1 = '"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"'


@cases(
    ("body", "why"),
    {"why": "this is no AdmissionReview: "},
    empty=(b"", "this is no AdmissionReview: Input data was truncated"),
    null=(b"null", "this is no AdmissionReview: Expected `object`, got `null`"),
    list=(b"[]", "this is no AdmissionReview: Expected `object`, got `array`"),
    no_utf_8=row(body=b"\xff\xfe"),
    unfinished_object=row(body=b"{" * 100_000),
    unfinished_list=row(body=b"[" * 100_000),
    no_request=(f"{{{OF_V1}}}".encode(), "this is no AdmissionReview: Object missing required"),
    no_uid=row(body=f'{{{OF_V1}, "request": {{}}}}'.encode()),
    version=(
        request(version="admission.k8s.io/v1beta1"),
        "admission.k8s.io/v1beta1 AdmissionReview is not spoken, admission.k8s.io/v1 is",
    ),
    kind=(
        request().replace(b"AdmissionReview", b"PodReview"),
        "admission.k8s.io/v1 PodReview is not spoken, admission.k8s.io/v1 is",
    ),
)
async def test_what_is_no_review_is_a_bad_request_that_says_why(
    webhook: Webhook, body: bytes, why: str
):
    assert await webhook.status(body) == 400

    assert await is_counted(webhook, "malformed")
    assert webhook.answer.decode().startswith(why)


KEYS = ["metadata", "spec", "labels", "annotations", "containers", "name", "image", "x"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(pod=JSON, kind=st.sampled_from(["model", "profiles", "labelled"]))
async def test_any_object_is_allowed(webhook: Webhook, pod: Any, kind: str):
    text = request(object=pod)

    # JSON has neither NaN nor Infinity, which Python writes.
    if await webhook.status(text, kind) == 200:
        assert json.loads(webhook.answer)["response"]["allowed"] is True
    else:
        assert any(word in text for word in (b"NaN", b"Infinity"))


@pytest.mark.parametrize(("length", "said"), [(249, 249), (250, 250), (251, 250), (900, 250)])
async def test_text_is_no_longer_than_the_api_server_takes(
    webhook: Webhook, length: int, said: int
):
    rest = " AdmissionReview is not spoken, admission.k8s.io/v1 is"
    await webhook.status(request(version="x" * (length - len(rest))))

    assert len(webhook.answer) == said
    assert webhook.answer.endswith(b"..." if length > 250 else rest.encode())
