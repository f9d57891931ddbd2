"""The author of a rejected request, read from the API server's message."""

import pytest

from integrator_contract import refusals
from tests.unit.cases import cases

AUTHOR = 'webhook "validate.kyverno.svc-fail"'
DENIED = 'admission webhook "validate.kyverno.svc-fail" denied the request: policy Pod/x/y: no'
PODS = 'pods "x" is forbidden: '
USED = "requested: pods=1, used: pods=3, limited: pods=3"
LIMIT = "maximum memory usage per Container is 1Gi, but limit is 2Gi"
LIMITS = f"[minimum cpu usage per Pod is 1, but request is 100m, {LIMIT}]"
RATIO = "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"
CONSTRAINT = "unable to validate against any security context constraint: [x]"
ACCOUNT = "error looking up service account x/y: not found"
MISSING_RIGHT = (
    f'{PODS}User "system:serviceaccount:m:a" cannot create resource "pods" in API group ""'
)


@cases(
    ("code", "message", "author", "words"),
    webhook=(400, DENIED, 'webhook "validate.kyverno.svc-fail"', "policy Pod/x/y: no"),
    webhook_with_words_in_lines=(
        *(
            400,
            'admission webhook "a.b" denied the request: \n\npolicy Pod/x/y:\n  r' + "\nr" * 300,
        ),
        *('webhook "a.b"', "policy Pod/x/y: " + "r " * 192),
    ),
    webhook_without_words=(
        *(400, 'admission webhook "a.b" denied the request without explanation'),
        *('webhook "a.b"', ""),
    ),
    policy=(
        422,
        f"{PODS}ValidatingAdmissionPolicy 'no-hold' with binding 'b' denied request: not here",
        *("ValidatingAdmissionPolicy no-hold", "not here"),
    ),
    policy_of_the_mesh=(
        *(422, "MutatingAdmissionPolicy 'a.istio.io' with binding 'b' denied request: no"),
        *("MutatingAdmissionPolicy a.istio.io", "no"),
    ),
    mutating_policy=(422, "policy 'a' with binding 'b' denied request: no", "policy a", "no"),
    webhook_that_quotes=(
        *(403, 'admission webhook "a.b" denied the request: failed calling webhook "c.d": no'),
        *('webhook "a.b"', 'failed calling webhook "c.d": no'),
    ),
    quota=(403, f"{PODS}exceeded quota: small, {USED}", "ResourceQuota small", USED),
    quota_of_limits=(
        *(403, f"{PODS}failed quota: small: must specify limits.cpu for: main"),
        *("ResourceQuota small", "must specify limits.cpu for: main"),
    ),
    pod_security=(
        *(403, f'{PODS}violates PodSecurity "restricted:latest": runAsNonRoot != true'),
        *("Pod Security restricted:latest", "runAsNonRoot != true"),
    ),
    limit_range=(403, f"{PODS}{LIMIT}", "a LimitRange", LIMIT),
    limit_ranges=(403, f"{PODS}{LIMITS}", "a LimitRange", LIMITS),
    limit_of_the_ratio=(403, f"{PODS}{RATIO}", "a LimitRange", RATIO),
    openshift=(403, f"{PODS}{CONSTRAINT}", "a SecurityContextConstraint", CONSTRAINT),
    plugin=(403, f"{PODS}{ACCOUNT}", "an admission plugin of Kubernetes", ACCOUNT),
)
def test_author_and_words_are_read(code: int, message: str, author: str, words: str) -> None:
    refusal = refusals.read_refusal(code, message)
    assert refusal is not None
    assert (refusal.author, refusal.words) == (author, words)
    assert not refusal.is_istio
    assert not refusal.is_unreachable


def test_webhook_that_does_not_answer_is_told_apart() -> None:
    message = 'failed calling webhook "a.b": failed to call webhook: Post "https://a": refused'
    refusal = refusals.read_refusal(500, message)
    assert refusal is not None
    assert refusal.is_unreachable
    assert str(refusal).startswith('webhook "a.b" does not answer: failed to call')
    assert str(refusals.Refusal(author="a", words="")) == "a refuses"


@cases(
    ("message", "reason"),
    replica_set=(f"Error creating: {DENIED}", f"{AUTHOR} refuses: policy Pod/x/y: no"),
    stateful_set=(
        f"create Pod web-0 in StatefulSet web failed error: {DENIED}",
        f"{AUTHOR} refuses: policy Pod/x/y: no",
    ),
    combined=(
        "(combined from similar events): Error creating: no pod web-x7k2p today",
        "no pod web today",
    ),
    invalid=(
        'Error creating: Pod "web-x7k2p" is invalid: spec: Required value',
        "kube-apiserver refuses: spec: Required value",
    ),
    long=(f"Error creating: {'x ' * 300}", "x " * 200),
)
def test_event_of_a_pod_that_was_not_created_says_why(message: str, reason: str) -> None:
    assert refusals.read_event(message, "web") == reason


@cases(
    ("text", "shown"),
    value=("a x-0123456789ab b", "a (not shown) b"),
    cut=("a x-0123456789abcdef0", "a (not shown)"),
    too_short=("a x-0123456789a b", "a x-0123456789a b"),
    data=(f"key {'QUJD' * 20}== b", "key (not shown) b"),
    shorter_data=("QUJD" * 19, "QUJD" * 19),
)
def test_secrets_are_not_shown(text: str, shown: str) -> None:
    assert refusals.hide_secrets(text) == shown


@cases(
    ("name", "is_istio"),
    injector=("namespace.sidecar-injector.istio.io", True),
    validation=("rev.validation.istio.io", True),
    longer=("istio.io.example.com", False),
    other=("notistio.io", False),
)
def test_only_webhooks_of_istio_speak_for_istiod(name: str, *, is_istio: bool) -> None:
    refusal = refusals.read_refusal(400, f'admission webhook "{name}" denied the request: no')
    assert refusal is not None
    assert refusal.is_istio == is_istio


@pytest.mark.parametrize("code", [401, 403])
def test_missing_right_is_no_refusal(code: int) -> None:
    assert refusals.is_missing_right(code, MISSING_RIGHT)
    assert refusals.read_refusal(code, MISSING_RIGHT) is None
    assert refusals.is_missing_right(code, "Unauthorized") is (code == 401)
    assert not refusals.is_missing_right(500, MISSING_RIGHT)


def test_policy_that_quotes_the_authorizer_is_a_refusal() -> None:
    message = f'admission webhook "a.b" denied the request: {MISSING_RIGHT}'
    assert not refusals.is_missing_right(403, message)
    refusal = refusals.read_refusal(403, message)
    assert refusal is not None
    assert refusal.author == 'webhook "a.b"'


@cases(
    ("code", "message"),
    gone=(404, 'pods "x" not found'),
    conflict=(409, 'Operation cannot be fulfilled on pods "x"'),
    invalid=(422, 'Pod "x" is invalid: spec.containers: Required value'),
)
def test_other_answers_are_no_refusals(code: int, message: str) -> None:
    assert refusals.read_refusal(code, message) is None


INVALID = 'Pod "{}" is invalid: spec.containers[1].name: Duplicate value: "istio-proxy"'
DUPLICATE = 'spec.containers[1].name: Duplicate value: "istio-proxy"'
LOST = 'Pod "x" is invalid: spec.initContainers[0].startupProbe: Forbidden: may not be set for'


@cases(
    ("code", "message", "author", "words"),
    invalid=(422, INVALID.format("x"), "kube-apiserver", DUPLICATE),
    patch=(500, "Internal error:\n x", "kube-apiserver", "Internal error: x"),
    too_large=(413, "too large" * 50, "kube-apiserver", ("too large" * 50)[:400]),
    dropped=(
        *(422, f"{LOST} init containers without restartPolicy=Always"),
        "another team's webhook",
        f"{LOST} init containers without restartPolicy=Always".partition("invalid: ")[2],
    ),
    bad_request=(400, "pod rejected: no", "kube-apiserver", "pod rejected: no"),
    policy=(400, DENIED, 'webhook "validate.kyverno.svc-fail"', "policy Pod/x/y: no"),
)
def test_rejection_of_a_pod_has_an_author(code: int, message: str, author: str, words: str):
    refusal = refusals.read_refusal_of_pod(code, message)
    assert refusal is not None
    assert (refusal.author, refusal.words) == (author, words)


@cases(
    "answer",
    right=(403, MISSING_RIGHT),
    busy=(429, "too many requests"),
    gone=(404, 'namespaces "x" not found'),
    there=(409, 'object is being deleted: pods "x" already exists'),
    away=(503, "the server is currently unable to handle the request"),
    no_dry_runs=(400, 'admission webhook "a.b" does not support dry run'),
)
def test_answer_that_is_not_about_the_pod_has_no_author(answer: tuple[int, str]) -> None:
    assert refusals.read_refusal_of_pod(*answer) is None


CAUSES = 'Pod "{}" is invalid: {}'
CAUSE_A = 'spec.resources.requests[cpu]: Invalid value: "5m": no, never'
CAUSE_B = 'spec.resources.requests[memory]: Invalid value: "16Mi": must be 40Mi'
CAUSE_C = "metadata.name: Required value"
LONG = "a-name-of-sixty-characters-that-a-controller-gives-its-pods-"


@cases(
    ("prefix", "text", "cut"),
    quoted=("train-", 'pods "train-x7k2p" is forbidden', 'pods "train" is forbidden'),
    each=("a.b-", "Pod/m/a.b-zz9vw, a.b-bcdfg.", "Pod/m/a.b, a.b."),
    other_names=("train-", "train-older train-x7k2pq train-abcde", None),
    long=(LONG, f"{LONG[:58]}x7k2p", LONG[:58]),
    no_prefix=("", "no train-x7k2p", None),
    of_this_charm=("", "istio-integrator-dry-run-x7k2p", "istio-integrator-dry-run"),
    causes=(
        "train-",
        CAUSES.format("train-x7k2p", f"[{CAUSE_B}, {CAUSE_A}, {CAUSE_C}]"),
        CAUSES.format("train", f"{CAUSE_C}, {CAUSE_A}, {CAUSE_B}"),
    ),
    volume=("train-", "volume kube-api-access-x7k2p", "volume kube-api-access"),
)
def test_random_ends_of_names_are_cut(prefix: str, text: str, cut: str | None) -> None:
    assert refusals.cut_generated(text, prefix) == (text if cut is None else cut)
