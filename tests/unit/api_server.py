"""The API server of the unit tests: objects, versions, lists in pages, dry runs and refusals.

Requests reach it by `charm/fake_cluster.py`, which answers lightkube without a socket, and by
`workload/fake_apiserver.py`, which serves HTTP, watches and streams. It has no controllers,
defaults or schemas.
"""

import copy
import datetime
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

Object = dict[str, Any]
Key = tuple[str, str, str, str]
"""API version, plural, namespace and name."""

TIMEOUT = 0
UNREACHABLE = -1
"""In place of a code: no answer in time, and none any more until `unreachable` is set back."""
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_REASONS = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Gone", 422: "Invalid"}
_ADDRESS = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]+))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<part>[^/]+))?"
)


class Refused(Exception):  # noqa: N818
    """Raised by an admission, or before an answer: code and message of the API's answer."""

    def __init__(self, message: str = "fake", code: int = 403, **headers: str) -> None:
        super().__init__(message)
        self.code = code
        self.headers = {key.replace("_", "-"): value for key, value in headers.items()}

    def status(self) -> Object:
        """Return the body of the answer."""
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": self.code}
        reason = "AlreadyExists" if "already exists" in str(self) else _REASONS.get(self.code, "")
        return {**status, "message": str(self), "reason": reason}


class Address(NamedTuple):
    """The path of an object or of a kind."""

    api_version: str
    plural: str
    namespace: str
    name: str
    """Empty for all of them."""
    part: str
    """`log` or `exec`, say; empty for the object itself."""

    @classmethod
    def of(cls, path: str) -> Self:
        """Read the path of a request."""
        match = _ADDRESS.fullmatch(path)
        assert match, path
        names = (match[key] or "" for key in ("plural", "namespace", "name", "part"))
        return cls(match["core"] or match["group"], *names)


class Request(NamedTuple):
    """A request of any transport."""

    method: str
    path: str
    query: Mapping[str, str]
    media: str
    """The media type of the body."""
    body: Object

    @property
    def verb(self) -> str:
        """The verb by which a Role allows it."""
        return _VERBS.get(self.method, "get" if Address.of(self.path).name else "list")


class ApiServer:
    """Objects by their keys, each with a version that grows with every write."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.version = 100
        self.requests: list[Any] = []
        """Each in its order, as `describe` writes it."""
        self.failing: dict[int, int] = {}
        """Codes of the requests that fail, by their place in `requests`, each once."""
        self.failures: list[tuple[str, int, dict[str, str]]] = []
        """(path part, status, headers): the next request that matches gets it once."""
        self.denied: Callable[[str, str], bool] = lambda method, path: False
        self.unreachable = False
        self.interference: list[Callable[[], Any]] = []
        """What other clients do before the next update or patch is carried out."""
        self.answers: dict[str, bytes] = {}
        """To GET requests for an object, instead of it, by path."""
        self.spelled: dict[str, str] = {}
        """What replaces a text in each answer, such as JSON that Python could not write."""
        self._applied: dict[Key, Object] = {}

    # What transports and other clients do.

    def serve(self, request: Request) -> bytes:
        """Carry out a request and return the body of the answer.

        Raises:
            Refused: The answer has another code than 200 or 201.
        """
        self.accept(request)
        self.refuse(request)
        return self.carry_out(request)

    def accept(self, request: Request) -> None:
        """Count a request, of a list that for its first page, and raise `Refused` if it fails."""
        if "continue" not in request.query:
            self.requests.append(self.describe(request))
            self._fail(self.failing.pop(len(self.requests) - 1, None))
            self.check(request)

    def refuse(self, request: Request) -> None:
        """Raise `Refused` for a request, or a page, that a test wants to fail."""
        for failure in [each for each in self.failures if each[0] in request.path][:1]:
            self.failures.remove(failure)
            raise Refused("Injected", failure[1], **failure[2])
        if self.denied(request.method, request.path):
            raise Refused("Forbidden")

    def carry_out(self, request: Request) -> bytes:
        """Do what a request asks for, and return the body of the answer."""
        if request.method == "GET" and request.path in self.answers:
            return self.answers[request.path]
        return self.encode(self._answer(request))

    def encode(self, answer: Object) -> bytes:
        """Write an object as answers have it."""
        text = json.dumps(answer)
        for placeholder, instead in self.spelled.items():
            text = text.replace(placeholder, instead)
        return text.encode()

    def keep(self, key: Key, item: Object) -> Object:
        """Create or replace an object; a replaced object keeps its UID and age."""
        self.version += 1
        before, metadata = self.objects.get(key), item["metadata"]
        # A later object is younger, also within one second.
        now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=self.version)
        created = {
            "uid": f"uid-{self.version}",
            "creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        for field, value in created.items():
            metadata.setdefault(field, before["metadata"][field] if before else value)
        metadata["resourceVersion"] = str(self.version)
        self.objects[key] = item
        self.publish(key, item, before)
        return item

    def drop(self, key: Key) -> Object:
        """Delete an object at once."""
        before = self.objects.pop(key)
        self.version += 1
        self.publish(key, None, before)
        return before

    # What a transport adds.

    def describe(self, request: Request) -> Any:
        """Return how `requests` lists a request."""
        return request.method, request.path

    def check(self, request: Request) -> None:
        """Raise `Refused` for a request that is counted."""

    def admit(self, key: Key, item: Object, *, is_new: bool) -> Object:
        """Return an object as admission changes it, or raise `Refused`."""
        return item

    def note(self, verb: str, key: Key, *, dry_run: bool) -> None:
        """Hear of a request to write."""

    def publish(self, key: Key, item: Object | None, before: Object | None) -> None:
        """Hear of a change; without an object it is a deletion."""

    # Carrying out.

    def _fail(self, code: int | None) -> None:
        if code == UNREACHABLE:
            self.unreachable = True
        if code is not None or self.unreachable:
            raise Refused("the server says no", UNREACHABLE if self.unreachable else code or 0)

    def _answer(self, request: Request) -> Object:
        *names, part = Address.of(request.path)
        key, verb, body = (names[0], names[1], names[2], names[3]), request.verb, request.body
        if part == "eviction":
            verb, body = "delete", body.get("deleteOptions", {})
        elif part:
            raise Refused("no pod runs here", 404)
        if verb == "list":
            return self._list(key, request.query)
        if verb == "create":
            return self._create(key, body, dry_run="dryRun" in request.query)
        while verb in ("patch", "update") and self.interference:
            self.interference.pop(0)()
        live = self.objects.get(key)
        if live is None and request.media != APPLY:
            raise Refused(f'{key[1]} "{key[3]}" not found', 404)
        if verb == "get":
            return live or {}
        wanted = body.get("preconditions" if verb == "delete" else "metadata") or {}
        for field in ("uid", "resourceVersion"):
            if live and wanted.get(field) and wanted[field] != live["metadata"][field]:
                raise Refused("the object has been modified", 409)
        if verb == "delete":
            return self._delete(key)
        return self._update(key, live, request)

    def _list(self, key: Key, query: Mapping[str, str]) -> Object:
        items = [
            item
            for found, item in self.objects.items()
            if found[:2] == key[:2] and is_selected(item, key[2], query)
        ]
        # The first page may be empty although others follow (k8s.io/api, ListOptions.limit).
        is_first = "limit" in query and "continue" not in query
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 0)) or len(items)
        end = 0 if is_first else start + limit
        more = str(end) if is_first or end < len(items) else ""
        metadata = {"resourceVersion": str(self.version), "continue": more}
        page = {"metadata": metadata, "items": items[start:end]}
        return {"kind": "List", "apiVersion": "v1", **page}

    def _create(self, key: Key, item: Object, *, dry_run: bool) -> Object:
        metadata = item["metadata"]
        metadata["name"] = metadata.get("name") or metadata["generateName"] + "x7k2p"
        if key[2] and metadata.setdefault("namespace", key[2]) != key[2]:
            raise Refused("the namespace of the object does not match the request", 400)
        if metadata.get("resourceVersion"):
            raise Refused("resourceVersion should not be set on objects to be created", 400)
        key = (*key[:3], metadata["name"])
        item = self.admit(key, item, is_new=True)
        if key in self.objects:
            raise Refused(f'{key[1]} "{key[3]}" already exists', 409)
        self.note("create", key, dry_run=dry_run)
        return item if dry_run else self.keep(key, item)

    def _update(self, key: Key, live: Object | None, request: Request) -> Object:
        body, dry_run = request.body, "dryRun" in request.query
        if request.media == APPLY:
            base = without(live or {"metadata": {}}, self._applied.get(key, {}), body)
            item = merged(base, body)
        elif request.media == MERGE:
            item = merged(live, body)
        elif request.verb == "update" and live:
            kind = {field: live[field] for field in ("apiVersion", "kind") if field in live}
            item = {**kind, **body}
        else:
            raise Refused("Unsupported Media Type", 415)
        self.note(request.verb, key, dry_run=dry_run)
        item = self.admit(key, item, is_new=live is None)
        if dry_run:
            return item
        if request.media == APPLY:
            self._applied[key] = copy.deepcopy(body)
        kept = self.keep(key, item)
        if live and live["metadata"].get("finalizers") and not kept["metadata"].get("finalizers"):
            return self.drop(key) if "deletionTimestamp" in kept["metadata"] else kept
        return kept

    def _delete(self, key: Key) -> Object:
        self.note("delete", key, dry_run=False)
        live = self.objects[key]
        if not live["metadata"].get("finalizers"):
            return self.drop(key)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return self.keep(key, merged(live, {"metadata": {"deletionTimestamp": now}}))


def is_selected(item: Object, namespace: str, query: Mapping[str, str]) -> bool:
    """Tell whether a list or watch has an object, by its namespace and the selectors."""
    labels = query.get("labelSelector", "")
    fields = filter(None, query.get("fieldSelector", "").split(","))
    return (
        namespace in ("", item["metadata"].get("namespace"))
        and has_labels(item, labels)
        and all(_has_field(part, item) for part in fields)
    )


def has_labels(item: Object, selector: str) -> bool:
    """Tell whether an object is selected by `a=b,c`, as requests write it."""
    labels = item["metadata"].get("labels", {})
    for part in filter(None, selector.split(",")):
        key, equals, value = part.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    return True


def _has_field(part: str, item: Object) -> bool:
    key, _, value = part.replace("!=", "=").partition("=")
    found: Any = item
    for step in key.split("."):
        found = found.get(step) or {}
    return ((found or "") != value) is ("!=" in part)


def merged(live: Any, patch: Any) -> Any:
    """Merge a patch into an object (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(live) if isinstance(live, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def without(live: Any, applied: Any, wanted: Any) -> Any:
    """Take away what the same manager applied before and does not want any more."""
    if not isinstance(live, dict) or not isinstance(applied, dict):
        return live
    return {
        key: without(value, applied.get(key), (wanted or {}).get(key))
        for key, value in live.items()
        if key not in applied or key in (wanted or {})
    }
