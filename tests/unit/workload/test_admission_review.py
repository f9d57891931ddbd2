"""AdmissionReviews of any kind: an answer each time, never a crash, never a refused pod."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sidecar_lifecycle.shell import admission_settings as settings
from sidecar_lifecycle.shell.admission import review

KNOWN = settings.load('{"application": "a", "model": "m"}')
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}


def request(**fields):
    return {
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


def ask(**fields):
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": request(**fields),
    }
    return review.answer(json.dumps(body).encode(), KNOWN, "model")


def response(answer):
    body = json.loads(answer.body)
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    return body["response"]


def test_a_pod_is_answered_with_a_patch_of_what_changes():
    answer = ask()

    assert answer.outcome == "patched"
    found = response(answer)
    assert (found["uid"], found["allowed"], found["patchType"]) == ("u-1", True, "JSONPatch")
    assert found["auditAnnotations"] == {"applied": "hold"}
    patch = json.loads(base64.b64decode(found["patch"]))
    assert [operation["path"] for operation in patch] == ["/metadata/annotations"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"operation": "UPDATE"}, id="update"),
        pytest.param({"subResource": "ephemeralcontainers"}, id="subresource"),
        pytest.param({"resource": {"group": "apps", "resource": "pods"}}, id="group"),
        pytest.param({"resource": {"group": "", "resource": "services"}}, id="resource"),
    ],
)
def test_what_is_no_creation_of_a_pod_is_allowed_untouched(fields):
    answer = ask(**fields)

    assert answer.outcome == "not-ours"
    assert response(answer) == {"uid": "u-1", "allowed": True}


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(None, id="none"),
        pytest.param([], id="list"),
        pytest.param({}, id="empty"),
        pytest.param({**POD, "spec": {"containers": {}}}, id="containers"),
        pytest.param({**POD, "metadata": {"labels": {"a": 1}}}, id="label"),
        pytest.param({**POD, "metadata": {"annotations": ["a"]}}, id="annotations"),
    ],
)
def test_a_pod_that_cannot_be_read_is_allowed_with_a_warning(pod):
    answer = ask(object=pod)

    assert answer.outcome == "not-understood"
    found = response(answer)
    assert found["allowed"] is True
    assert "patch" not in found
    assert "left the pod as it is" in found["warnings"][0]


def test_whoever_creates_the_pod_is_warned_of_a_hold_that_is_not_possible():
    annotations = {"proxy.istio.io/config": "- a list"}
    answer = ask(object={**POD, "metadata": {"annotations": annotations}})

    assert answer.outcome == "unchanged"
    assert "no hold" in response(answer)["warnings"][0]


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param({"labels": {"sidecar.istio.io/inject": "false"}}, id="not injected"),
        pytest.param(
            {"annotations": {"proxy.istio.io/config": "holdApplicationUntilProxyStarts: false"}},
            id="says itself",
        ),
        pytest.param({"annotations": {"kubernetes.io/config.mirror": "0123"}}, id="mirror"),
    ],
)
def test_nobody_is_warned_of_a_hold_that_is_not_meant_for_the_pod(pod):
    answer = ask(object={**POD, "metadata": pod})

    assert answer.mutation.skipped
    assert "warnings" not in response(answer)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"{" * 100_000,
        b"[" * 100_000,
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
        b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}}',
    ],
)
def test_what_is_no_review_is_a_bad_request_that_says_why(body):
    answer = review.answer(body, KNOWN, "model")

    assert (answer.status, answer.outcome) == (400, "malformed")
    assert answer.body.startswith(b"this is no AdmissionReview")


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(
            '{"metadata": {}, "spec": {"containers": [' + "{}," * 20_001 + "{}]}}", id="many"
        ),
        pytest.param(
            '{"metadata": {"annotations": {"traffic.sidecar.istio.io/excludeOutboundPorts": "'
            + r"\u0001" * 200_000
            + '"}}, "spec": {"containers": [{}]}}',
            id="much to answer",
        ),
        pytest.param(
            '{"metadata": {"labels": {"a": ' + "[" * 20_000 + "]" * 20_000 + "}}}", id="deep"
        ),
        pytest.param(
            r'{"metadata": {"name": "\ud800"}, "spec": {"containers": []}}', id="surrogate"
        ),
        pytest.param('{"metadata": {"name": ' + "1" * 5000 + "}}", id="long number"),
    ],
)
def test_a_pod_beyond_a_bound_is_allowed_as_it_is_or_no_review(pod):
    ports = settings.load(
        '{"application": "a", "model": "m", "excluded-outbound-ports": [{"ports": [1]}]}'
    )
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    text = json.dumps({**body, "request": request(object="@")}).replace('"@"', pod)

    answer = review.answer(text.encode(), ports, "model")

    if answer.status == 200:
        found = response(answer)
        assert (found["allowed"], answer.outcome) == (True, "not-understood")
        assert "left the pod as it is" in found["warnings"][0]
        assert "patch" not in found
    else:
        assert answer.outcome == "malformed"


def test_another_version_of_reviews_is_a_bad_request():
    body = {"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}
    text = json.dumps({**body, "request": request()}).encode()

    assert review.answer(text, KNOWN, "model").status == 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "spec", "labels", "annotations", "containers", "name", "image", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(pod=JSON, kind=st.sampled_from(["model", "profiles", "labelled"]))
def test_any_object_is_allowed(pod, kind):
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    text = json.dumps({**body, "request": request(object=pod)}).encode()

    answer = review.answer(text, KNOWN, kind)

    # JSON has neither NaN nor Infinity, which Python writes.
    if answer.status == 200:
        assert response(answer)["allowed"] is True
    else:
        assert any(word in text for word in (b"NaN", b"Infinity"))


@given(cut=st.integers(0, 500), byte=st.integers(0, 255), at=st.integers(0, 500))
def test_a_damaged_review_is_answered(cut, byte, at):
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    text = bytearray(json.dumps({**body, "request": request()}).encode())
    text[at % len(text)] = byte

    for damaged in (bytes(text), bytes(text[:cut])):
        answer = review.answer(damaged, KNOWN, "model")
        assert answer.status in (200, 400)
        if answer.status == 200:
            assert response(answer)["allowed"] is True


@pytest.mark.parametrize(("length", "said"), [(249, 249), (250, 250), (251, 250), (900, 250)])
def test_warning_is_no_longer_than_the_api_server_takes(length, said):
    short = review._short("x" * length)
    assert len(short) == said
    assert short.endswith("...") is (length > 250)
