"""AdmissionReviews of any kind: an answer each time, never a crash, never a refused pod."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.cases import cases
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
    assert response["auditAnnotations"] == {"applied": "ports,hold"}
    patch = json.loads(base64.b64decode(response["patch"]))
    assert [operation["path"] for operation in patch] == ["/metadata/annotations"]


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


MANY = '{"metadata": {}, "spec": {"containers": [' + "{}," * 20_001 + "{}]}}"
MUCH = (
    '{"metadata": {"annotations": {"traffic.sidecar.istio.io/excludeOutboundPorts": "'
    + r"\u0001" * 200_000
    + '"}}, "spec": {"containers": [{}]}}'
)
DEEP = '{"metadata": {"labels": {"a": ' + "[" * 20_000 + "]" * 20_000 + "}}}"


@cases(
    ("pod", "is_read"),
    none=("null", True),
    list=("[]", True),
    containers=(json.dumps({**POD, "spec": {"containers": {}}}), True),
    label=(json.dumps({**POD, "metadata": {"labels": {"a": 1}}}), True),
    annotations=(json.dumps({**POD, "metadata": {"annotations": ["a"]}}), True),
    # Beyond a bound.
    many_containers=(MANY, True),
    much_to_answer=(MUCH, True),
    deep=(DEEP, False),
    surrogate=(r'{"metadata": {"name": "\ud800"}, "spec": {"containers": []}}', False),
    long_number=('{"metadata": {"name": ' + "1" * 5000 + "}}", True),
)
async def test_a_pod_beyond_a_bound_is_allowed_as_it_is_or_no_review(
    webhook: Webhook, pod: str, is_read: bool
):
    text = request(object="@").replace(b'"@"', pod.encode())

    assert await webhook.status(text) == (200 if is_read else 400)

    assert await is_counted(webhook, "not-understood" if is_read else "malformed")
    if is_read:
        response = json.loads(webhook.answer)["response"]
        assert response["allowed"] is True
        assert "left the pod as it is" in response["warnings"][0]
        assert "patch" not in response


@cases(
    ("metadata", "reason", "warns"),
    no_hold_possible=(
        {"annotations": {"proxy.istio.io/config": "- a list"}},
        *("ConfigNotMergeable", True),
    ),
    not_injected=({"labels": {"sidecar.istio.io/inject": "false"}}, "NotInjected", False),
    says_itself=(
        {"annotations": {"proxy.istio.io/config": "holdApplicationUntilProxyStarts: false"}},
        *("ConfigSaysItself", False),
    ),
    mirror=({"annotations": {"kubernetes.io/config.mirror": "0123"}}, "MirrorPod", False),
)
async def test_whoever_creates_the_pod_is_warned_of_a_hold_that_was_meant_for_it(
    webhook: Webhook, metadata: dict[str, Any], reason: str, warns: bool
):
    response = await webhook.respond(request(object={**POD, "metadata": metadata}))

    assert await webhook.count("skips_total", reason=reason) > 0
    warnings = response.get("warnings", [])
    assert ["no hold" in each for each in warnings] == [True] * warns


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b"\xff\xfe", b"{" * 100_000, b"[" * 100_000),
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}}',
        request(version="admission.k8s.io/v1beta1"),
        request().replace(b"AdmissionReview", b"PodReview"),
    ],
)
async def test_what_is_no_review_is_a_bad_request_that_says_why(webhook: Webhook, body: bytes):
    assert await webhook.status(body) == 400

    assert await is_counted(webhook, "malformed")
    assert webhook.answer.startswith((b"this is no AdmissionReview", b"admission.k8s.io/v1"))


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
    assert webhook.answer.endswith(b"..." if length > 250 else b" is")
