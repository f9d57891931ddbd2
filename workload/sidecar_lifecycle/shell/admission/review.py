"""Conversion of an AdmissionReview to its answer, without I/O."""

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
"""Limit per review, as each comma may add a label or a container; 100 containers have 4,000."""
LARGEST_PATCH = 512 * 1024
"""In bytes: twice the limit that Kubernetes sets for the annotations of an object."""
_WARNING = "istio-integrator left the pod as it is, "

REPORTED = (
    Reason.ANNOTATIONS_FULL,
    Reason.CONFIG_NOT_MERGEABLE,
    Reason.CONFIG_TOO_LONG,
    Reason.PORTS_NOT_MERGEABLE,
)
"""Reasons that the creator of the pod gets as warnings."""


class Resource(msgspec.Struct, gc=False):
    """The resource of a request."""

    group: str = ""
    version: str = ""
    resource: str = ""


class AdmissionRequest(msgspec.Struct, gc=False, rename="camel"):
    """The fields of an admission request that are used here."""

    uid: str
    operation: str
    resource: Resource
    sub_resource: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class AdmissionReview(msgspec.Struct, gc=False, rename="camel"):
    """A request of the API server."""

    api_version: str
    kind: str
    request: AdmissionRequest


class ReviewAnswer(NamedTuple):
    """An HTTP response and its values for the metrics."""

    status: int
    body: bytes
    outcome: str
    """`patched`, `unchanged`, `not-ours`, `not-understood` or `malformed`."""
    mutation: mutate.Mutation | None = None


_REVIEW = msgspec.json.Decoder(AdmissionReview)
_ENCODER = msgspec.json.Encoder()

# Deeply nested input raises RecursionError, and invalid UTF-8 UnicodeDecodeError.
_BAD_INPUT = (msgspec.MsgspecError, RecursionError, ValueError)


def answer_review(
    body: bytes | bytearray, settings: pods.Settings, kind: namespaces.Kind
) -> ReviewAnswer:
    """Answer a review; a pod that can't be decoded is admitted unchanged, with a warning."""
    try:
        review = _REVIEW.decode(body)
    except _BAD_INPUT as error:
        return _explain_malformed(f"this is no AdmissionReview: {error}")
    if review.api_version != API_VERSION or review.kind != "AdmissionReview":
        return _explain_malformed(
            f"{review.api_version} {review.kind} is not spoken, {API_VERSION} is"
        )
    if body.count(b",") > MOST_COMMAS:
        return _admit_unchanged(
            review.request.uid, f"the review has more than {MOST_COMMAS} commas"
        )
    return _review(review.request, settings, kind)


def _review(
    request: AdmissionRequest, settings: pods.Settings, kind: namespaces.Kind
) -> ReviewAnswer:
    resource = request.resource
    is_pod = (resource.group, resource.resource) == ("", "pods") and not request.sub_resource
    if request.operation != "CREATE" or not is_pod:
        return _allow(request.uid, "not-ours")
    try:
        pod = types.decode_json(request.object, types.Pod)
    except _BAD_INPUT as error:
        return _admit_unchanged(request.uid, f"it could not read it: {error}")
    mutation = mutate.mutate(pod, settings, kind)
    patch = _ENCODER.encode(mutation.patch) if mutation.patch else b""
    if len(patch) > LARGEST_PATCH:
        return _admit_unchanged(
            request.uid, f"what it would add has more than {LARGEST_PATCH} bytes"
        )
    warnings = [
        _shorten(f"istio-integrator: no {skip.change}: {skip.message}")
        for skip in mutation.skipped
        if skip.reason in REPORTED
    ]
    outcome = "patched" if patch else "unchanged"
    return _allow(request.uid, outcome, mutation, patch=patch, warnings=warnings)


def _admit_unchanged(uid: str, why: str) -> ReviewAnswer:
    return _allow(uid, "not-understood", warnings=[_shorten(f"{_WARNING}{why}")])


def _allow(
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


def _explain_malformed(message: str) -> ReviewAnswer:
    return ReviewAnswer(400, _shorten(message).encode(errors="replace"), "malformed")


def _shorten(message: str) -> str:
    # The API server may truncate warnings of more than 256 characters.
    return message if len(message) <= 250 else f"{message[:247]}..."
