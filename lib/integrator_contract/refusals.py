"""Requests that admission control rejected, and the author of the rejection.

An API server applies webhooks, policies, quotas and built-in admission plugins of several teams.
Such a rejection says nothing about istiod or this charm's webhook.
"""

from __future__ import annotations

import dataclasses
import re

from . import dry_run

LONGEST_WORDS = 400
"""Characters kept of a rejection's text."""
_LONGEST_READ = 4000
"""Characters of an answer that are read: it may quote an object of any size."""

_ISTIO = re.compile(r"(?:.*\.)?istio\.io")
_TEXTS = {
    # k8s.io/apiserver pkg/admission/plugin/webhook/errors/statuserror.go, ToStatusErr.
    r'admission (?P<kind>webhook) (?P<name>"[^"]+") denied the request(?:: | without explanation)'
    r"(?P<words>.*)": "",
    # k8s.io/apiserver pkg/admission/plugin/webhook/errors.go, ErrCallingWebhook.
    r'failed calling (?P<kind>webhook) (?P<name>"[^"]+"): (?P<words>.*)': "",
    # k8s.io/apiserver pkg/admission/plugin/policy/validating/dispatcher.go and mutating/errors.go.
    r"(?P<kind>(?:(?:Validating|Mutating)AdmissionP|p)olicy) '(?P<name>[^']+)' with binding"
    r" '[^']+' denied request: (?P<words>.*)": "",
    # k8s.io/apiserver pkg/admission/plugin/resourcequota/controller.go.
    r"(?:exceeded|failed) quota: (?P<name>[^\s,:]+)(?P<words>.*)": "ResourceQuota",
    # k8s.io/pod-security-admission admission/admission.go.
    r'violates PodSecurity "(?P<name>[^"]+)": (?P<words>.*)': "Pod Security",
    # OpenShift, apiserver-library-go pkg/securitycontextconstraints/sccadmission/admission.go.
    r"(?P<words>unable to validate against any security context constraint.*)": (
        "a SecurityContextConstraint"
    ),
    # k8s.io/kubernetes plugin/pkg/admission/limitranger/admission.go.
    r"(?P<words>\[?(?:maximum|minimum) \S+(?: \S+)? usage per .*"
    r"|\S{1,63} max limit to request ratio.*)": "a LimitRange",
    r'\A\S+ "[^"]*" is forbidden: (?P<words>.*)': "an admission plugin of Kubernetes",
}
"""Patterns of admission control's answers, and the author's kind if the text does not name it."""
_PATTERNS = [(re.compile(text, re.DOTALL), kind) for text, kind in _TEXTS.items()]
# k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go, forbiddenMessage.
_AUTHORIZER = re.compile(
    r'(?:\S+(?: "[^"]*")? is forbidden: )?User "[^"]*" cannot \S+ (?:resource|path) "'
)

KUBE_APISERVER = "kube-apiserver"
SOME_WEBHOOK = "another team's webhook"
"""The author if a mutating webhook, which the answer does not name, has made a pod invalid."""
_INVALID = re.compile(r'\A\S+ "[^"]*" is invalid: ')
_CAUSES = re.compile(rf"({_INVALID.pattern})\[(.*)\]", re.DOTALL)
_CAUSE = re.compile(r", (?=[a-z]\w*(?:[.\[]\S*)?: [A-Z])")
"""Between the causes of an invalid pod, each of which begins with a field."""
_BEFORE_CAUSE = re.compile(
    r"^(?:\(combined from similar events\): )?(?:Error creating: |create Pod .*? failed error: )"
)
# k8s.io/kubernetes pkg/apis/core/validation: webhooks with older types drop the field.
_LOST_RESTART_POLICY = "without restartPolicy=Always"
# k8s.io/apiserver pkg/admission/plugin/webhook/errors/statuserror.go, NewDryRunUnsupportedErr.
_NO_DRY_RUNS = "does not support dry run"
_GENERATED = (f"{dry_run.NAME}-", "kube-api-access-")
"""Prefixes of generated names: dry-run pods of this charm, and a volume of each pod."""

_SECRET = re.compile(r"x-[0-9a-f]{12,}|[A-Za-z0-9+/]{80,}=*", re.IGNORECASE)


def hide_secrets(text: str) -> str:
    """Replace random values of the charm's Record, cut or whole, and the data of Secrets."""
    return _SECRET.sub("(not shown)", text)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that a webhook, a policy, a quota or an admission plugin rejected."""

    author: str
    """Kind and name, such as `webhook "validate.kyverno.svc"` or `ResourceQuota small`."""
    words: str
    is_istio: bool = False
    """Whether Istio's webhook rejected it: only then is the answer about istiod."""
    is_unreachable: bool = False
    """Whether the webhook did not answer, as opposed to rejecting the request."""

    def __str__(self) -> str:
        verb = "does not answer" if self.is_unreachable else "refuses"
        return f"{self.author} {verb}: {self.words}" if self.words else f"{self.author} {verb}"


def is_missing_right(code: int, message: str) -> bool:
    """Tell whether the authorizer denied a request: a missing right, not a rejection.

    The words count only in the authorizer's position: a policy may quote them.
    """
    return code == 401 or (code == 403 and _AUTHORIZER.match(message) is not None)


def read_refusal(code: int, message: str) -> Refusal | None:
    """Read the author of a rejection; None for a missing right or a schema error."""
    message = message[:_LONGEST_READ]
    if is_missing_right(code, message):
        return None
    for pattern, kind in _PATTERNS:
        if found := pattern.search(message):
            return _make_refusal(found.groupdict(), kind, found[0])
    return None


def read_refusal_of_pod(code: int, message: str) -> Refusal | None:
    """Read the author of a pod's rejection, which may be kube-apiserver itself.

    None: the answer is not about the pod, such as that of a webhook that supports no dry runs.
    """
    found = read_refusal(code, message)
    if found or code not in (400, 413, 422, 500) or _NO_DRY_RUNS in message:
        return found
    author = SOME_WEBHOOK if _LOST_RESTART_POLICY in message else KUBE_APISERVER
    words = _INVALID.sub("", message[:_LONGEST_READ])
    return Refusal(author=author, words=" ".join(words.split())[:LONGEST_WORDS])


def read_event(message: str, creator: str) -> str:
    """Return the reason in an Event FailedCreate why `creator` could not create a pod."""
    words = cut_generated(_BEFORE_CAUSE.sub("", message), f"{creator}-")
    return str(
        read_refusal_of_pod(422 if _INVALID.match(words) else 403, words) or words[:LONGEST_WORDS]
    )


def cut_generated(text: str, prefix: str = "") -> str:
    """Cut the random ends of generated names, so that the answers to retries are equal.

    `prefix` is a pod's `generateName`, of which names keep 58 characters (k8s.io/apiserver
    pkg/storage/names; the letters are those of k8s.io/apimachinery pkg/util/rand). The causes of
    an invalid pod, which have no order, are sorted.
    """
    if found := _CAUSES.fullmatch(text):
        text = found[1] + ", ".join(sorted(_CAUSE.split(found[2])))
    prefixes = "|".join(re.escape(each) for each in (prefix[:58], *_GENERATED) if each)
    pattern = rf"({prefixes})[bcdfghjklmnpqrstvwxz2456789]{{5}}\b"
    return re.sub(pattern, lambda found: found[1].rstrip("-"), text)


def _make_refusal(groups: dict[str, str], kind: str, text: str) -> Refusal:
    kind, name = groups.get("kind") or kind, groups.get("name") or ""
    return Refusal(
        author=f"{kind} {name}".strip(),
        words=" ".join(groups["words"].split()).lstrip(",: ")[:LONGEST_WORDS],
        is_istio=kind == "webhook" and _ISTIO.fullmatch(name.strip('"')) is not None,
        is_unreachable=text.startswith("failed calling webhook"),
    )
