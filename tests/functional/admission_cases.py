"""What new pods get: one table, for the pure function, the policy and the webhook alike."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

PREFIX = "istio-integrator.charmhub.io/"
INJECT = "sidecar.istio.io/inject"
NATIVE = "sidecar.istio.io/nativeSidecar"
CONFIG = "proxy.istio.io/config"
PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"
APPLIED = f"{PREFIX}applied"
HOLD = '{"holdApplicationUntilProxyStarts": true}'
KEY = "holdApplicationUntilProxyStarts"

APPLICATION = "istio-integrator"

SETTINGS: dict[str, dict[str, Any]] = {
    "hold": {"excluded-pods": "tier in (outside, edge),!keep"},
    "native": {"native": True},
    "neither": {"hold-application": False, "excluded-pods": "alone"},
    "selected": {
        "membership": "selected",
        "included-pods": "team=ml,stage!=old",
        "excluded-pods": "never",
    },
    "revision": {
        "membership": "selected",
        "included-pods": "team",
        "inject-label": {"istio.io/rev": "canary"},
        "hold-application": False,
    },
    "place-only": {"lifecycle-in-model": False, "excluded-pods": "outside=true", "native": True},
    "rules": {
        "hold-application": False,
        "excluded-pods": "outside",
        "pod-labels": [
            {"pods": "app=web", "add": {"tier": "front", "cost-centre": "7"}},
            {"add": {"tier": "other"}},
        ],
        "pod-annotations": [
            {"pods": "app in (web)", "add": {"example.com/note": 'a "quoted" <b>\n'}},
            {"pods": "tuned", "add": {CONFIG: "concurrency: 1"}},
        ],
        "excluded-outbound-ports": [
            {"pods": "db", "ports": [5432, 6379]},
            {"pods": "cache", "ports": [6379, 11211]},
        ],
        "image-registries": [
            {
                "pods": "mirrored",
                "prefixes": {
                    "docker.io/library": "mirror.example/official",
                    "docker.io": "mirror.example/hub",
                    "quay.io": "mirror.example:5000/quay",
                },
            }
        ],
    },
    "everything": {
        "native": True,
        "pod-labels": [{"add": {"tier": "other"}}],
        "pod-annotations": [{"add": {CONFIG: "concurrency: 1"}}],
        "excluded-outbound-ports": [{"ports": [5432]}],
        "image-registries": [{"pods": "!original", "prefixes": {"docker.io": "mirror.example"}}],
    },
}
"""The settings of the webhook, without `model` and `application`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A pod, and what it gets."""

    id: str
    settings: str = "hold"
    namespace: str = "model"
    """`model`, `profiles`, `labelled`; on an API server also one that is out of scope."""
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    spec: dict[str, Any] = dataclasses.field(default_factory=dict)
    want: tuple[str, ...] = ()
    """What is applied."""
    want_labels: dict[str, str] = dataclasses.field(default_factory=dict)
    """Added or changed ones."""
    want_annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    """Added or changed ones; `applied` is not written here unless the pod had one before."""
    want_images: dict[str, str] = dataclasses.field(default_factory=dict)
    """By container."""
    skipped: tuple[str, ...] = ()
    """As `change:reason`; the policy has nobody to tell these."""

    def pod(self, namespace: str) -> dict[str, Any]:
        """Write the pod as it is sent."""
        metadata: dict[str, Any] = {"name": "case", "namespace": namespace}
        if self.labels:
            metadata["labels"] = self.labels
        if self.annotations:
            metadata["annotations"] = self.annotations
        spec = {"containers": [container("main", "registry.example/app:1")], **self.spec}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels afterwards."""
        return {**self.labels, **self.want_labels}

    @property
    def all_annotations(self) -> dict[str, str]:
        """The annotations afterwards."""
        applied = {APPLIED: ",".join(self.want)} if self.want else {}
        return {**self.annotations, **applied, **self.want_annotations}


def container(name: str, image: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **fields}


def patched(pod: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """Apply a JSON patch of the kinds that the rule writes."""
    pod = json.loads(json.dumps(pod))
    for operation in patch:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        target: Any = pod
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        # To add where there is null is to replace it.
        assert (target.get(last) is not None) == (operation["op"] == "replace")
        target[last] = operation["value"]
    return pod


def held(name: str, before: str, after: str) -> Case:
    return Case(
        id=f"hold, {name}",
        annotations={CONFIG: before},
        want=("hold",),
        want_annotations={CONFIG: after},
    )


def left(name: str, value: str, reason: str) -> Case:
    return Case(id=f"left, {name}", annotations={CONFIG: value}, skipped=(f"hold:{reason}",))


NO_SIDECAR = {INJECT: "false"}
SIDECAR = {INJECT: "true"}
TO_COMPLETION = {"restartPolicy": "Never"}
HELD = {CONFIG: HOLD}
HELD_LINE = f"{KEY}: true\n"
HELD_KEY = f'"{KEY}": true'

EXCLUSION = (
    Case(
        id="modeloperator",
        labels={"operator.juju.is/name": "modeloperator", "operator.juju.is/target": "model"},
        want=("excluded",),
        want_labels=NO_SIDECAR,
    ),
    Case(
        id="modeloperator with its older label",
        labels={"juju-modeloperator": "modeloperator"},
        want=("excluded",),
        want_labels=NO_SIDECAR,
    ),
    Case(
        id="the charm's own pod",
        labels={"app.kubernetes.io/name": APPLICATION},
        want=("excluded",),
        want_labels=NO_SIDECAR,
    ),
    Case(
        id="the charm's own pod that says false already",
        labels={"app.kubernetes.io/name": APPLICATION, **NO_SIDECAR},
        skipped=("excluded:PodSaysItself",),
    ),
    Case(
        id="the charm's own pod, where only places are given",
        settings="place-only",
        labels={"app.kubernetes.io/name": APPLICATION},
        want=("excluded",),
        want_labels=NO_SIDECAR,
    ),
    Case(
        id="the charm's own pod gets nothing else",
        settings="everything",
        labels={"app.kubernetes.io/name": APPLICATION},
        want=("excluded",),
        want_labels=NO_SIDECAR,
    ),
    Case(
        id="another application's pod is no pod of the charm",
        labels={"app.kubernetes.io/name": f"{APPLICATION}-2"},
        want=("hold",),
        want_annotations=HELD,
    ),
    Case(
        id="a pod that looks like modeloperator in a profile",
        namespace="profiles",
        labels={"operator.juju.is/name": "modeloperator"},
        want=("hold",),
        want_annotations=HELD,
    ),
    Case(
        id="excluded by one value",
        labels={"tier": "outside"},
        want=("excluded",),
        want_labels=NO_SIDECAR,
        skipped=("hold:NotInjected",),
    ),
    Case(
        id="excluded by the other value",
        labels={"tier": "edge"},
        annotations={"mine": "1"},
        want=("excluded",),
        want_labels=NO_SIDECAR,
        skipped=("hold:NotInjected",),
    ),
    Case(
        id="only one part of the selector fits",
        labels={"tier": "edge", "keep": ""},
        want=("hold",),
        want_annotations=HELD,
    ),
    Case(
        id="excluded, but the pod wants its sidecar",
        labels={"tier": "edge", **SIDECAR},
        want=("hold",),
        want_annotations=HELD,
        skipped=("excluded:PodSaysItself",),
    ),
    Case(
        id="excluded, but the pod's annotation wants a sidecar",
        labels={"tier": "edge"},
        annotations=SIDECAR,
        want=("hold",),
        want_annotations=HELD,
        skipped=("excluded:PodSaysItself",),
    ),
    Case(
        id="excluded, but the pod names a revision",
        labels={"tier": "edge", "istio.io/rev": "canary"},
        want=("hold",),
        want_annotations=HELD,
        skipped=("excluded:PodSaysItself",),
    ),
    Case(
        id="excluded, and its annotation agrees",
        labels={"tier": "edge"},
        annotations=NO_SIDECAR,
        want=("excluded",),
        want_labels=NO_SIDECAR,
        skipped=("hold:NotInjected",),
    ),
    Case(
        id="excluded where nothing else is done",
        settings="neither",
        labels={"alone": ""},
        want=("excluded",),
        want_labels=NO_SIDECAR,
    ),
    Case(
        id="excluded pods are the model's only",
        namespace="labelled",
        labels={"tier": "edge"},
        want=("hold",),
        want_annotations=HELD,
    ),
    Case(
        id="excluded on the node's network",
        labels={"tier": "edge"},
        spec={"hostNetwork": True},
        want=("excluded",),
        want_labels=NO_SIDECAR,
        skipped=("hold:HostNetwork",),
    ),
    Case(id="nothing is wanted", settings="neither"),
)

UNTOUCHED = (
    Case(
        id="a proxy is there",
        labels={"tier": "outside"},
        spec={"containers": [container("main", "a:1"), container("istio-proxy", "b:1")]},
        skipped=("all:HasProxy",),
    ),
    Case(
        id="a native proxy is there",
        spec={
            "initContainers": [container("istio-proxy", "b:1", restartPolicy="Always")],
            "containers": [container("main", "a:1")],
        },
        skipped=("all:HasProxy",),
    ),
    Case(
        id="a gateway by istiod's template",
        labels=SIDECAR,
        annotations={"inject.istio.io/templates": "gateway"},
        spec={"containers": [container("istio-proxy", "auto")]},
        skipped=("all:HasProxy",),
    ),
    Case(
        id="the injector was there",
        annotations={"sidecar.istio.io/status": "{}"},
        skipped=("all:HasProxy",),
    ),
    Case(
        id="the pod's label wants no sidecar",
        labels=NO_SIDECAR,
        skipped=("hold:NotInjected",),
    ),
    Case(
        id="the pod's annotation wants no sidecar",
        annotations=NO_SIDECAR,
        skipped=("hold:NotInjected",),
    ),
    Case(
        id="the pod's label beats its annotation",
        labels=SIDECAR,
        annotations=NO_SIDECAR,
        want=("hold",),
        want_annotations=HELD,
    ),
    Case(
        id="on the node's network",
        spec={"hostNetwork": True},
        skipped=("hold:HostNetwork",),
    ),
    Case(
        id="in the model, where only places are given",
        settings="place-only",
        spec=TO_COMPLETION,
    ),
)

HOLDS = (
    Case(id="hold, no configuration", want=("hold",), want_annotations=HELD),
    Case(
        id="hold, beside other labels and annotations",
        labels={"app": "web"},
        annotations={"example.com/a": "1"},
        want=("hold",),
        want_annotations=HELD,
    ),
    Case(
        id="hold, in a profile",
        namespace="profiles",
        want=("hold",),
        want_annotations=HELD,
    ),
    Case(
        id="hold, in a labelled namespace",
        namespace="labelled",
        want=("hold",),
        want_annotations=HELD,
    ),
    Case(
        id="hold, to completion without native sidecars",
        spec=TO_COMPLETION,
        want=("hold",),
        want_annotations=HELD,
    ),
    Case(
        id="hold, once more",
        annotations={**HELD, APPLIED: "hold"},
        skipped=("hold:ConfigSaysItself",),
    ),
    Case(
        id="hold, after somebody applied something",
        annotations={APPLIED: "excluded,hold"},
        want=("hold",),
        want_annotations={**HELD, APPLIED: "excluded,hold"},
    ),
    Case(
        id="hold, after others were applied",
        annotations={APPLIED: "labels"},
        want=("hold",),
        want_annotations={**HELD, APPLIED: "labels,hold"},
    ),
    held("empty", "", HOLD),
    held("only blanks", " \n\t\r\n ", HOLD),
    held("JSON", '{"concurrency": 2}', f'{{{HELD_KEY}, "concurrency": 2}}'),
    held("an empty JSON object", "{}", f"{{{HELD_KEY}}}"),
    held("an empty JSON object over lines", " { \n } \n", f" {{{HELD_KEY} \n }} \n"),
    held(
        "JSON over lines",
        '\n{\n  "concurrency": 2\n}\n',
        f'\n{{{HELD_KEY}, \n  "concurrency": 2\n}}\n',
    ),
    held("a flow mapping of YAML", "{concurrency: 2,}", f"{{{HELD_KEY}, concurrency: 2,}}"),
    held("a flow mapping with a comment", "{ # x\n}", f"{{{HELD_KEY},  # x\n}}"),
    held("a block mapping", "concurrency: 2\n", f"{HELD_LINE}concurrency: 2\n"),
    held(
        "a mapping of mappings",
        "tracing:\n  sampling: 1\nconcurrency: 2",
        f"{HELD_LINE}tracing:\n  sampling: 1\nconcurrency: 2",
    ),
    held("an indented mapping", "\n  a: 1\n  b: 2\n", f"\n  {HELD_LINE}  a: 1\n  b: 2\n"),
    held("a quoted key", '"a b": 1', f'{HELD_LINE}"a b": 1'),
    held("a singly quoted key", "'a': 1", f"{HELD_LINE}'a': 1"),
    held("comments first", "# x: 1\n  # y\na: 1", f"# x: 1\n  # y\n{HELD_LINE}a: 1"),
    held("a document start", "---\na: 1", f"---\n{HELD_LINE}a: 1"),
    held(
        "a commented document start",
        "# x\n--- # y\n\n# z\na: 1",
        f"# x\n--- # y\n\n# z\n{HELD_LINE}a: 1",
    ),
    held("a document start before JSON", "--- {a: 1}", f"--- {{{HELD_KEY}, a: 1}}"),
    held("an end of the document", "a: 1\n...\n", f"{HELD_LINE}a: 1\n...\n"),
    held("line ends of Windows", "a: 1\r\nb: 2\r\n", f"{HELD_LINE}a: 1\r\nb: 2\r\n"),
    held(
        "a key that ends alike",
        f"my-{KEY}: 1",
        f"{HELD_LINE}my-{KEY}: 1",
    ),
    held("the key's name as a value", f"a: {KEY}", f"{HELD_LINE}a: {KEY}"),
    held("other alphabets", 'a: "äöü 雪 🙂"\n', f'{HELD_LINE}a: "äöü 雪 🙂"\n'),
    left("false", f"{KEY}: false", "ConfigSaysItself"),
    left("true", f"concurrency: 2\n{KEY}: true\n", "ConfigSaysItself"),
    left("false in JSON", f'{{"{KEY}":false}}', "ConfigSaysItself"),
    left("false in a flow mapping", f"{{a: 1, {KEY} : false}}", "ConfigSaysItself"),
    left(
        "the other spelling of protobuf",
        "hold_application_until_proxy_starts: false",
        "ConfigSaysItself",
    ),
    held("an empty JSON object with a comment", "{} # x", f"{{{HELD_KEY}}} # x"),
    held("an empty JSON object and an end", "{}\n...\n", f"{{{HELD_KEY}}}\n...\n"),
    left("an empty JSON object and a rest", "{} a: 1", "ConfigNotMergeable"),
    left("a list", "- a: 1", "ConfigNotMergeable"),
    left("a scalar", "just text", "ConfigNotMergeable"),
    left("only comments", "# nothing\n", "ConfigNotMergeable"),
    left("an anchor first", "&a a: 1", "ConfigNotMergeable"),
    left("an explicit key", "? a\n: 1", "ConfigNotMergeable"),
    left("a directive", "%YAML 1.1\n---\na: 1", "ConfigNotMergeable"),
    left("a key that JSON's way has no blank after", '"a":1', "ConfigNotMergeable"),
    left("old line ends", "# a\rb: 1\nc: 2", "ConfigNotMergeable"),
    left("an escape in a key", '{"a\\u0062": 1}', "ConfigNotMergeable"),
    left("two document starts", "---\n--- {a: 1}", "ConfigNotMergeable"),
    left("a tab before it", "\t{a: 1}", "ConfigNotMergeable"),
    left("too long", "a: " + "x" * 32766, "ConfigTooLong"),
    held("as long as may be", "a: " + "x" * 32765, f"{HELD_LINE}a: " + "x" * 32765),
)

NATIVES = (
    Case(
        id="native, to completion",
        settings="native",
        spec=TO_COMPLETION,
        want=("native",),
        want_annotations={NATIVE: "true"},
        skipped=("hold:NativeSidecar",),
    ),
    Case(
        id="native, until success",
        settings="native",
        spec={"restartPolicy": "OnFailure"},
        annotations={CONFIG: "concurrency: 2"},
        want=("native",),
        want_annotations={NATIVE: "true"},
        skipped=("hold:NativeSidecar",),
    ),
    Case(id="native, for ever", settings="native", want=("hold",), want_annotations=HELD),
    Case(
        id="native, the pod does not want it",
        settings="native",
        spec=TO_COMPLETION,
        annotations={NATIVE: "false"},
        want=("hold",),
        want_annotations=HELD,
        skipped=("native:PodSaysItself",),
    ),
    Case(
        id="native, the pod wants it itself",
        annotations={NATIVE: "true"},
        skipped=("hold:NativeSidecar",),
    ),
    Case(
        id="native, without a sidecar",
        settings="native",
        labels=NO_SIDECAR,
        spec=TO_COMPLETION,
        skipped=("native:NotInjected", "hold:NotInjected"),
    ),
    Case(
        id="native, on the node's network",
        settings="native",
        spec={**TO_COMPLETION, "hostNetwork": True},
        skipped=("native:HostNetwork", "hold:HostNetwork"),
    ),
)

SELECTED = (
    Case(
        id="selected",
        settings="selected",
        labels={"team": "ml"},
        want=("inject", "hold"),
        want_labels=SIDECAR,
        want_annotations=HELD,
    ),
    Case(
        id="not selected",
        settings="selected",
        labels={"team": "ml", "stage": "old"},
        want=("hold",),
        want_annotations=HELD,
    ),
    Case(
        id="selected and excluded",
        settings="selected",
        labels={"team": "ml", "never": ""},
        want=("excluded",),
        want_labels=NO_SIDECAR,
        skipped=("hold:NotInjected",),
    ),
    Case(
        id="selected, but the label says no",
        settings="selected",
        labels={"team": "ml", **NO_SIDECAR},
        skipped=("inject:PodSaysItself", "hold:NotInjected"),
    ),
    Case(
        id="selected, but the annotation says no",
        settings="selected",
        labels={"team": "ml"},
        annotations=NO_SIDECAR,
        skipped=("inject:PodSaysItself", "hold:NotInjected"),
    ),
    Case(
        id="selected, and names a revision",
        settings="selected",
        labels={"team": "ml", "istio.io/rev": "x"},
        want=("hold",),
        want_annotations=HELD,
        skipped=("inject:PodSaysItself",),
    ),
    Case(
        id="selected, on the node's network",
        settings="selected",
        labels={"team": "ml"},
        spec={"hostNetwork": True},
        skipped=("inject:HostNetwork", "hold:HostNetwork"),
    ),
    Case(
        id="selected for a revision",
        settings="revision",
        labels={"team": "any"},
        want=("inject",),
        want_labels={"istio.io/rev": "canary"},
    ),
    Case(
        id="excluded where a revision is injected",
        settings="revision",
        labels={"app.kubernetes.io/name": APPLICATION, "team": "any"},
        want=("excluded",),
        want_labels=NO_SIDECAR,
    ),
)

RULES = (
    Case(
        id="labels for every pod",
        settings="rules",
        want=("labels",),
        want_labels={"tier": "other"},
    ),
    Case(
        id="labels and annotations of selected pods, the first rule first",
        settings="rules",
        labels={"app": "web"},
        want=("annotations", "labels"),
        want_labels={"tier": "front", "cost-centre": "7"},
        want_annotations={"example.com/note": 'a "quoted" <b>\n'},
    ),
    Case(
        id="labels that are there stay",
        settings="rules",
        labels={"tier": "mine"},
        skipped=("labels:PodSaysItself",),
    ),
    Case(
        id="one label is there, one is not",
        settings="rules",
        labels={"app": "web", "tier": "mine"},
        annotations={"example.com/note": "mine"},
        want=("labels",),
        want_labels={"cost-centre": "7"},
        skipped=("annotations:PodSaysItself",),
    ),
    Case(
        id="an excluded pod gets its labels, not its ports",
        settings="rules",
        labels={"outside": "", "db": ""},
        want=("excluded", "labels"),
        want_labels={**NO_SIDECAR, "tier": "other"},
        skipped=("ports:NotInjected",),
    ),
    Case(
        id="ports",
        settings="rules",
        labels={"db": "", "tier": "x"},
        want=("ports",),
        want_annotations={PORTS: "5432,6379"},
        skipped=("labels:PodSaysItself",),
    ),
    Case(
        id="ports of two rules",
        settings="rules",
        labels={"db": "", "cache": "", "tier": "x"},
        want=("ports",),
        want_annotations={PORTS: "5432,6379,11211"},
        skipped=("labels:PodSaysItself",),
    ),
    Case(
        id="ports beside the pod's own",
        settings="rules",
        labels={"db": "", "tier": "x"},
        annotations={PORTS: "80 , 5432"},
        want=("ports",),
        want_annotations={PORTS: "80 , 5432,6379"},
        skipped=("labels:PodSaysItself",),
    ),
    Case(
        id="ports that are all there",
        settings="rules",
        labels={"db": "", "tier": "x"},
        annotations={PORTS: "6379,5432"},
        skipped=("ports:PodSaysItself", "labels:PodSaysItself"),
    ),
    Case(
        id="ports where the annotation is blank",
        settings="rules",
        labels={"db": "", "tier": "x"},
        annotations={PORTS: " "},
        want=("ports",),
        want_annotations={PORTS: "5432,6379"},
        skipped=("labels:PodSaysItself",),
    ),
    Case(
        id="images",
        settings="rules",
        labels={"mirrored": "", "tier": "x"},
        spec={
            "initContainers": [container("i", "quay.io/a/b:1")],
            "containers": [
                container("short", "python"),
                container("hub", "bitnami/redis:7"),
                container("full", "docker.io/library/nginx@sha256:" + "0" * 64),
                container("local", "localhost/x"),
                container("other", "ghcr.io/docker.io/x"),
                container("port", "docker.io:443/x"),
            ],
        },
        want=("images",),
        want_images={
            "i": "mirror.example:5000/quay/a/b:1",
            "short": "mirror.example/official/python",
            "hub": "mirror.example/hub/bitnami/redis:7",
            "full": "mirror.example/official/nginx@sha256:" + "0" * 64,
        },
        skipped=("labels:PodSaysItself",),
    ),
    Case(
        id="images of pods that are not selected",
        settings="rules",
        labels={"tier": "x"},
        spec={"containers": [container("main", "python:3")]},
        skipped=("labels:PodSaysItself",),
    ),
    Case(
        id="images in a pod with duplicate names in its lists",
        settings="rules",
        labels={"mirrored": "", "tier": "x"},
        spec={
            "containers": [
                container(
                    "main",
                    "python:3",
                    env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
                    ports=[{"containerPort": 80}, {"containerPort": 80, "name": "again"}],
                )
            ]
        },
        want=("images",),
        want_images={"main": "mirror.example/official/python:3"},
        skipped=("labels:PodSaysItself",),
    ),
    Case(
        id="everything, for ever",
        settings="everything",
        spec={"containers": [container("main", "python:3")]},
        want=("annotations", "ports", "hold", "images", "labels"),
        want_labels={"tier": "other"},
        want_annotations={PORTS: "5432", CONFIG: f"{HELD_LINE}concurrency: 1"},
        want_images={"main": "mirror.example/library/python:3"},
    ),
    Case(
        id="everything, to completion",
        settings="everything",
        labels={"original": ""},
        spec=TO_COMPLETION,
        want=("annotations", "ports", "native", "labels"),
        want_labels={"tier": "other"},
        want_annotations={PORTS: "5432", CONFIG: "concurrency: 1", NATIVE: "true"},
        skipped=("hold:NativeSidecar",),
    ),
)

CASES: tuple[Case, ...] = (*EXCLUSION, *UNTOUCHED, *HOLDS, *NATIVES, *SELECTED, *RULES)
