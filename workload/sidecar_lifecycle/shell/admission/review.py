"""From an AdmissionReview to its answer, as bytes, without any I/O."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from integrator_contract import namespaces, pods
from integrator_contract.reasons import Reason
from sidecar_lifecycle.decide import mutate
from sidecar_lifecycle.model import types

API_VERSION = "admission.k8s.io/v1"

MOST_COMMAS = 20_000
"""In a review, as each may bring a label or a container: a hundred containers have some 4,000."""
LARGEST_PATCH = 512 * 1024
"""In bytes: twice the annotations that Kubernetes lets an object have."""
_WARNING = "istio-integrator left the pod as it is, "

REPORTED = (
    Reason.ANNOTATIONS_FULL,
    Reason.CONFIG_NOT_MERGEABLE,
    Reason.CONFIG_TOO_LONG,
    Reason.PORTS_NOT_MERGEABLE,
)
"""Reasons that whoever creates the pod is warned of."""


class Resource(msgspec.Struct, gc=False):
    """What a request is about."""

    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(msgspec.Struct, gc=False, rename="camel"):
    """The parts of an admission request that matter here."""

    uid: str
    operation: str
    resource: Resource
    sub_resource: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class AdmissionReview(msgspec.Struct, gc=False, rename="camel"):
    """A review that the API server asks for."""

    api_version: str
    kind: str
    request: AdmissionRequest


class ReviewAnswer(NamedTuple):
    """An HTTP answer and what to count."""

    status: int
    body: bytes
    outcome: str
    """`patched`, `unchanged`, `not-ours`, `not-understood` or `malformed`."""
    mutation: mutate.Mutation | None = None


_REVIEW = msgspec.json.Decoder(AdmissionReview)
_ENCODER = msgspec.json.Encoder()

# Deeply nested input ends in a RecursionError, broken text in a UnicodeDecodeError.
_BAD_INPUT = (msgspec.MsgspecError, RecursionError, ValueError)


def answer(
    body: bytes | bytearray, settings: pods.Settings, kind: namespaces.Kind
) -> ReviewAnswer:
    """ReviewAnswer a review; a pod that can't be read is allowed as it is, with a warning."""
    try:
        review = _REVIEW.decode(body)
    except _BAD_INPUT as error:
        return _malformed(f"this is no AdmissionReview: {error}")
    if review.api_version != API_VERSION or review.kind != "AdmissionReview":
        return _malformed(f"{review.api_version} {review.kind} is not spoken, {API_VERSION} is")
    if body.count(b",") > MOST_COMMAS:
        return _left(review.request.uid, f"the review has more than {MOST_COMMAS} commas")
    return _reviewed(review.request, settings, kind)


def _reviewed(
    request: AdmissionRequest, settings: pods.Settings, kind: namespaces.Kind
) -> ReviewAnswer:
    resource = request.resource
    is_pod = (resource.group, resource.resource) == ("", "pods") and not request.sub_resource
    if request.operation != "CREATE" or not is_pod:
        return _allowed(request.uid, "not-ours")
    try:
        pod = types.decode_json(request.object, types.Pod)
    except _BAD_INPUT as error:
        return _left(request.uid, f"it could not read it: {error}")
    mutation = mutate.mutate(pod, settings, kind)
    patch = _ENCODER.encode(mutation.patch) if mutation.patch else b""
    if len(patch) > LARGEST_PATCH:
        return _left(request.uid, f"what it would add has more than {LARGEST_PATCH} bytes")
    warnings = [
        _short(f"istio-integrator: no {skip.change}: {skip.message}")
        for skip in mutation.skipped
        if skip.reason in REPORTED
    ]
    outcome = "patched" if patch else "unchanged"
    return _allowed(request.uid, outcome, mutation, patch=patch, warnings=warnings)


def _left(uid: str, why: str) -> ReviewAnswer:
    return _allowed(uid, "not-understood", warnings=[_short(f"{_WARNING}{why}")])


def _allowed(
    uid: str,
    outcome: str,
    mutation: mutate.Mutation | None = None,
    *,
    patch: bytes = b"",
    warnings: Sequence[str] = (),
) -> ReviewAnswer:
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if warnings:
        response["warnings"] = warnings
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    if mutation and mutation.applied:
        response["auditAnnotations"] = {"applied": ",".join(mutation.applied)}
    review = {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
    return ReviewAnswer(200, _ENCODER.encode(review), outcome, mutation)


def _malformed(message: str) -> ReviewAnswer:
    return ReviewAnswer(400, _short(message).encode(errors="replace"), "malformed")


def _short(message: str) -> str:
    # Beyond 256 characters the API server may cut warnings short itself.
    return message if len(message) <= 250 else f"{message[:247]}..."
