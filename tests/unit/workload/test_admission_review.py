"""AdmissionReviews of any kind: an answer each time, never a crash, never a refused pod."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.shell import settings
from sidecar_lifecycle.shell.admission import review

from tests.unit.cases import cases

KNOWN = settings.admission(
    '{"application": "a", "model": "m", "excluded-outbound-ports": [{"ports": [1]}]}'
)
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}


def request(version="v1", **fields):
    asked = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "m",
        "object": POD,
        "oldObject": None,
        "dryRun": True,
        **fields,
    }
    body = {"apiVersion": f"admission.k8s.io/{version}", "kind": "AdmissionReview"}
    return json.dumps({**body, "request": asked}).encode()


def ask(kind="model", **fields):
    return review.answer(request(**fields), KNOWN, kind)


def response(answer):
    body = json.loads(answer.body)
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    return body["response"]


def test_a_pod_is_answered_with_a_patch_of_what_changes():
    answer = ask()

    assert answer.outcome == "patched"
    found = response(answer)
    assert (found["uid"], found["allowed"], found["patchType"]) == ("u-1", True, "JSONPatch")
    assert found["auditAnnotations"] == {"applied": "ports,hold"}
    patch = json.loads(base64.b64decode(found["patch"]))
    assert [operation["path"] for operation in patch] == ["/metadata/annotations"]


@cases(
    "fields",
    update={"operation": "UPDATE"},
    subresource={"subResource": "ephemeralcontainers"},
    group={"resource": {"group": "apps", "resource": "pods"}},
    resource={"resource": {"group": "", "resource": "services"}},
)
def test_what_is_no_creation_of_a_pod_is_allowed_untouched(fields):
    answer = ask(**fields)

    assert answer.outcome == "not-ours"
    assert response(answer) == {"uid": "u-1", "allowed": True}


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
    long_number=('{"metadata": {"name": ' + "1" * 5000 + "}}", False),
)
def test_a_pod_beyond_a_bound_is_allowed_as_it_is_or_no_review(pod, is_read):
    text = request(object="@").replace(b'"@"', pod.encode())

    answer = review.answer(text, KNOWN, "model")

    if answer.status == 200:
        found = response(answer)
        assert (found["allowed"], answer.outcome) == (True, "not-understood")
        assert "left the pod as it is" in found["warnings"][0]
        assert "patch" not in found
    else:
        assert answer.outcome == "malformed"
        assert not is_read


@cases(
    ("metadata", "warns"),
    no_hold_possible=({"annotations": {"proxy.istio.io/config": "- a list"}}, True),
    not_injected=({"labels": {"sidecar.istio.io/inject": "false"}}, False),
    says_itself=(
        {"annotations": {"proxy.istio.io/config": "holdApplicationUntilProxyStarts: false"}},
        False,
    ),
    mirror=({"annotations": {"kubernetes.io/config.mirror": "0123"}}, False),
)
def test_whoever_creates_the_pod_is_warned_of_a_hold_that_was_meant_for_it(metadata, warns):
    answer = ask(object={**POD, "metadata": metadata})

    assert answer.mutation.skipped
    warnings = response(answer).get("warnings", [])
    assert ["no hold" in each for each in warnings] == [True] * warns


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"null", b"[]", b"\xff\xfe", b"{" * 100_000, b"[" * 100_000),
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}}',
        request(version="v1beta1"),
    ],
)
def test_what_is_no_review_is_a_bad_request_that_says_why(body):
    answer = review.answer(body, KNOWN, "model")

    assert (answer.status, answer.outcome) == (400, "malformed")
    assert answer.body.startswith((b"this is no AdmissionReview", b"admission.k8s.io/v1beta1 "))


KEYS = ["metadata", "spec", "labels", "annotations", "containers", "name", "image", "x"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(pod=JSON, kind=st.sampled_from(["model", "profiles", "labelled"]))
def test_any_object_is_allowed(pod, kind):
    answer = ask(kind, object=pod)

    # JSON has neither NaN nor Infinity, which Python writes.
    if answer.status == 200:
        assert response(answer)["allowed"] is True
    else:
        assert any(word in request(object=pod) for word in (b"NaN", b"Infinity"))


@pytest.mark.parametrize(("length", "said"), [(249, 249), (250, 250), (251, 250), (900, 250)])
def test_warning_is_no_longer_than_the_api_server_takes(length, said):
    short = review._short("x" * length)
    assert len(short) == said
    assert short.endswith("...") is (length > 250)
