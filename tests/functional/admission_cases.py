"""Changes to new pods: one table for the pure function and for the webhook."""

import dataclasses
import json
from typing import Any

from tests.kubernetes_objects import pod

PREFIX = "istio-integrator.charmhub.io/"
INJECT = "sidecar.istio.io/inject"
NATIVE = "sidecar.istio.io/nativeSidecar"
CONFIG = "proxy.istio.io/config"
PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts"
TEMPLATES = "inject.istio.io/templates"
STATUS = "sidecar.istio.io/status"
APPLIED = f"{PREFIX}applied"
MESH_PROBE = f"{PREFIX}mesh-probe"
KEY = "holdApplicationUntilProxyStarts"
HOLD = f'{{"{KEY}": true}}'

APPLICATION = "istio-integrator"

SETTINGS: dict[str, dict[str, Any]] = {
    "hold": {"excluded-pods": "tier in (outside, edge),!keep", "included-pods": "team=ml"},
    "native": {"native": True},
    "mesh-holds": {"hold-application": False, "mesh-holds": True},
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
    "ambient": {
        "data-plane": "ambient",
        "native": True,
        "excluded-pods": "tier=db",
        "pod-labels": [{"pods": "app=web", "add": {"tier": "front"}}],
        "excluded-outbound-ports": [{"ports": [5432]}],
    },
    "ambient-selected": {
        "data-plane": "ambient",
        "membership": "selected",
        "included-pods": "team=ml",
        "excluded-pods": "never",
        "inject-label": {"istio.io/dataplane-mode": "ambient"},
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
                },
            },
            {"pods": "mirrored", "prefixes": {"quay.io": "mirror.example:5000/quay"}},
        ],
    },
    "training": {"hold-application": False, "pod-traffic": True},
    "training-held": {"pod-traffic": True},
    "everything": {
        "native": True,
        "pod-labels": [{"add": {"tier": "other"}}],
        "pod-annotations": [{"add": {CONFIG: "concurrency: 1", PORTS: "80"}}],
        "excluded-outbound-ports": [{"ports": [5432]}],
        "image-registries": [{"pods": "!original", "prefixes": {"docker.io": "mirror.example"}}],
    },
}
"""The settings of the webhook, without `model` and `application`."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A pod, the settings that it meets, and what it gets."""

    id: str
    _: dataclasses.KW_ONLY
    settings: str = "hold"
    namespace: str = "model"
    """`model`, `profiles`, `labelled`; on an API server also one that is out of scope."""
    labels: dict[str, str] = dataclasses.field(default_factory=dict)
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    spec: dict[str, Any] = dataclasses.field(default_factory=dict)
    want: tuple[str, ...] = ()
    """The changes that are applied."""
    want_labels: dict[str, str] = dataclasses.field(default_factory=dict)
    """Added or changed ones."""
    want_annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    """Added or changed ones; `applied` is not written here unless the pod had one before."""
    want_images: dict[str, str] = dataclasses.field(default_factory=dict)
    """By container."""
    want_first: str = ""
    """The container that is moved to the front."""
    is_marked: bool = True
    """Whether the annotation that lists the changes fits."""
    skipped: tuple[str, ...] = ()
    """As `change:reason`."""

    def pod(self, namespace: str) -> dict[str, Any]:
        """Write the pod as it is sent."""
        said = {"labels": self.labels, "annotations": self.annotations}
        metadata = {key: value for key, value in said.items() if value}
        main = container("main", "registry.example/app:1")
        return pod("case", namespace, metadata, **{"containers": [main], **self.spec})

    def wanted(self, namespace: str) -> dict[str, Any]:
        """Write the pod as it is afterwards."""
        pod = self.pod(namespace)
        pod["metadata"] |= {"labels": self.all_labels, "annotations": self.all_annotations}
        spec = pod["spec"]
        for field in {"initContainers", "containers"} & set(spec):
            spec[field] = [
                {**one, "image": self.want_images.get(one["name"], one["image"])}
                for one in spec[field]
            ]
        spec["containers"] = self.in_order(spec["containers"])
        return pod

    def in_order(self, containers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Put the containers into the order that they have afterwards."""
        if not self.want_first:
            return containers
        return sorted(containers, key=lambda each: each["name"] != self.want_first)

    @property
    def all_labels(self) -> dict[str, str]:
        """The labels afterwards."""
        return {**self.labels, **self.want_labels}

    @property
    def all_annotations(self) -> dict[str, str]:
        """The annotations afterwards."""
        applied = {APPLIED: ",".join(self.want)} if self.want and self.is_marked else {}
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
        if operation["op"] == "move":
            assert operation["from"].rpartition("/")[0] == operation["path"].rpartition("/")[0]
            target.insert(int(last), target.pop(int(operation["from"].rpartition("/")[2])))
            continue
        # To add where there is null is to replace it.
        assert (target.get(last) is not None) == (operation["op"] == "replace")
        target[last] = operation["value"]
    return pod


NO_SIDECAR = {INJECT: "false"}
SIDECAR = {INJECT: "true"}
OUT_OF_AMBIENT = {"istio.io/dataplane-mode": "none"}
IN_AMBIENT = {"istio.io/dataplane-mode": "ambient"}
TO_COMPLETION = {"restartPolicy": "Never"}
HOST_NETWORK = {"hostNetwork": True}
HELD = {CONFIG: HOLD}
HELD_LINE = f"{KEY}: true\n"
HELD_KEY = f'"{KEY}": true'
FILLER = "example.com/filler"
MOST_BYTES = 256 * 1024
"""Of all annotations together, their keys included: the API server takes no more."""


def filler(room: int, **annotations: str) -> dict[str, str]:
    """Write annotations, in letters of two bytes, that leave so many bytes free."""
    left = MOST_BYTES - room - len(FILLER) - sum(map(len, [*annotations, *annotations.values()]))
    return {**annotations, FILLER: "é" * (left // 2) + "e" * (left % 2)}


def left(name: str, *skipped: str, **fields: Any) -> Case:
    """A pod that nothing is applied to."""
    return Case(name, skipped=skipped, **fields)


def excluded(name: str, *skipped: str, **fields: Any) -> Case:
    """A pod that is kept out of the mesh."""
    return Case(name, want=("excluded",), want_labels=NO_SIDECAR, skipped=skipped, **fields)


def held(name: str, *skipped: str, **fields: Any) -> Case:
    """A pod without a configuration of its proxy, which is held."""
    return Case(name, want=("hold",), want_annotations=HELD, skipped=skipped, **fields)


def native(name: str, **fields: Any) -> Case:
    """A pod that asks for a native sidecar, behind which nothing has to be held."""
    wanted = {NATIVE: "true"}
    skipped = ("hold:NativeSidecar",)
    return Case(name, want=("native",), want_annotations=wanted, skipped=skipped, **fields)


def selected(name: str, *skipped: str, **fields: Any) -> Case:
    """A pod that is taken into the mesh, and held."""
    given = {"settings": "selected", "labels": {"team": "ml"}, **fields}
    if skipped:
        return left(name, *skipped, **given)
    wanted = {"want_labels": SIDECAR, "want_annotations": HELD}
    return Case(name, want=("inject", "hold"), **wanted, **given)


OWN = {"app.kubernetes.io/name": APPLICATION}
EDGE = {"tier": "edge"}
NOT_INJECTED = "hold:NotInjected"
SAYS_ITSELF = "excluded:PodSaysItself"

EXCLUSION = (
    excluded(
        "modeloperator",
        labels={"operator.juju.is/name": "modeloperator", "operator.juju.is/target": "model"},
    ),
    excluded("modeloperator with its older label", labels={"juju-modeloperator": "modeloperator"}),
    excluded("the charm's own pod", labels=OWN),
    left("the charm's own pod that says false already", SAYS_ITSELF, labels=OWN | NO_SIDECAR),
    excluded(
        "the charm's own pod, where only places are given", settings="place-only", labels=OWN
    ),
    excluded("the charm's own pod gets nothing else", settings="everything", labels=OWN),
    held(
        "another application's pod is no pod of the charm",
        labels={"app.kubernetes.io/name": f"{APPLICATION}-2"},
    ),
    held(
        "a pod that looks like modeloperator in a profile",
        namespace="profiles",
        labels={"operator.juju.is/name": "modeloperator"},
    ),
    excluded("excluded by one value", NOT_INJECTED, labels={"tier": "outside"}),
    held("only one part of the selector fits", labels=EDGE | {"keep": ""}),
    held("excluded, but the pod wants its sidecar", SAYS_ITSELF, labels=EDGE | SIDECAR),
    held(
        "excluded, but the pod's annotation wants a sidecar",
        SAYS_ITSELF,
        labels=EDGE,
        annotations=SIDECAR,
    ),
    held(
        "excluded, but the pod names a revision",
        SAYS_ITSELF,
        labels=EDGE | {"istio.io/rev": "canary"},
    ),
    held("excluded pods are the model's only", namespace="labelled", labels=EDGE),
    excluded("excluded on the node's network", "hold:HostNetwork", labels=EDGE, spec=HOST_NETWORK),
    excluded(
        "excluded where annotations have no place left",
        NOT_INJECTED,
        labels=EDGE,
        annotations=filler(len(APPLIED) + len("excluded") - 1),
        is_marked=False,
    ),
    excluded(
        "excluded where annotations have just place",
        NOT_INJECTED,
        labels=EDGE,
        annotations=filler(len(APPLIED) + len("excluded")),
    ),
    left("nothing is wanted", settings="neither"),
)

LEFTOVER = {STATUS: '{"initContainers": ["istio-init"], "containers": ["istio-proxy"]}'}
"""The injector's annotation in a template that was copied from a pod."""
MAIN = container("main", "a:1")
PROXIED = {"containers": [MAIN, container("istio-proxy", "b:1")]}

UNTOUCHED = (
    left("a proxy is there", "all:HasProxy", labels={"tier": "outside"}, spec=PROXIED),
    left(
        "a native proxy is there",
        "all:HasProxy",
        spec={
            "initContainers": [container("istio-proxy", "b:1", restartPolicy="Always")],
            "containers": [MAIN],
        },
    ),
    left(
        "a gateway by istiod's template",
        "all:HasProxy",
        labels=SIDECAR,
        annotations={TEMPLATES: "gateway"},
        spec={"initContainers": [MAIN], "containers": [container("istio-proxy", "auto")]},
    ),
    held("the injector's mark is there, and no proxy", annotations=LEFTOVER),
    left("the pod's label wants no sidecar", NOT_INJECTED, labels=NO_SIDECAR),
    left("the pod's annotation wants no sidecar", NOT_INJECTED, annotations=NO_SIDECAR),
    held("the pod's label beats its annotation", labels=SIDECAR, annotations=NO_SIDECAR),
    excluded("on the node's network", "hold:HostNetwork", spec=HOST_NETWORK),
    excluded(
        "for Windows", "hold:Windows", spec={"nodeSelector": {"kubernetes.io/os": "windows"}}
    ),
    left("in the model, where only places are given", settings="place-only", spec=TO_COMPLETION),
    left("asks what istiod injects", "all:MeshProbe", labels={MESH_PROBE: "true", **EDGE}),
)

OWN_PROXY = container("istio-proxy", "auto", resources={"requests": {"cpu": "5m"}})
CUSTOM = {"containers": [MAIN, OWN_PROXY]}

CUSTOMISED = (
    held("customised, held", spec=CUSTOM),
    selected("customised, selected", spec=CUSTOM),
    native("customised, to completion", settings="native", spec=CUSTOM | TO_COMPLETION),
    native(
        "customised among the init containers",
        settings="native",
        spec={"initContainers": [{**OWN_PROXY, "restartPolicy": "Always"}], **TO_COMPLETION},
    ),
)

NOT_TAKEN_IN = ("inject:PodSaysItself", NOT_INJECTED)

SELECTED = (
    selected("selected"),
    held("not selected", settings="selected", labels={"team": "ml", "stage": "old"}),
    selected("selected, but the annotation says no", *NOT_TAKEN_IN, annotations=NO_SIDECAR),
    held(
        "selected, and names a revision",
        "inject:PodSaysItself",
        settings="selected",
        labels={"team": "ml", "istio.io/rev": "x"},
    ),
    excluded(
        "selected, on the node's network",
        "hold:HostNetwork",
        settings="selected",
        labels={"team": "ml"},
        spec=HOST_NETWORK,
    ),
    Case(
        "selected for a revision",
        settings="revision",
        labels={"team": "any"},
        want=("inject",),
        want_labels={"istio.io/rev": "canary"},
    ),
)

MERGED = {
    "empty": ("", HOLD),
    "JSON": ('{"concurrency": 2}', f'{{{HELD_KEY}, "concurrency": 2}}'),
    "an empty JSON object with a comment": ("{} # x", f"{{{HELD_KEY} }} # x"),
    "a flow mapping of YAML": ("{concurrency: 2,}", f"{{{HELD_KEY}, concurrency: 2,}}"),
    "a block mapping": ("concurrency: 2\n", f"{HELD_LINE}concurrency: 2\n"),
    "an indented mapping": ("\n  a: 1\n  b: 2\n", f"\n  {HELD_LINE}  a: 1\n  b: 2\n"),
    "a document start": ("# x\n--- # y\n\na: 1", f"# x\n--- # y\n\n{HELD_LINE}a: 1"),
    "a document start before JSON": ("--- {a: 1}", f"--- {{{HELD_KEY}, a: 1}}"),
    "line ends of Windows": ("a: 1\r\nb: 2\r\n", f"{HELD_LINE}a: 1\r\nb: 2\r\n"),
    "named by a key that ends alike": (f"{{my-{KEY}: 1}}", f"{{{HELD_KEY}, my-{KEY}: 1}}"),
    "named by a comment and a nested key": (
        f"# {KEY}: false\nproxyMetadata:\n  {KEY}: 'false'\n",
        f"# {KEY}: false\n{HELD_LINE}proxyMetadata:\n  {KEY}: 'false'\n",
    ),
    "as long as may be": (f"a: {'x' * 2007}", f"{HELD_LINE}a: {'x' * 2007}"),
}
"""Configurations of proxies before and after the hold is merged; unit tests generate others."""
LEFT = {
    "ConfigSaysItself": {
        "false": f"a: 1\n{KEY}: false",
        "true in JSON": f'{{"{KEY}":true}}',
        "the other spelling of protobuf": "hold_application_until_proxy_starts: false",
        "a key with an escape": f'{{"a": 1, "\\u0068{KEY[1:]}": false}}',
    },
    "ConfigNotMergeable": {
        "a scalar": "just text",
        "only comments": "# nothing\n",
        "a merge key": f"a: 1\n<<: {{{KEY}: false}}\n",
        "a tab before it": "\t{a: 1}",
    },
    "ConfigTooLong": {
        "too long": f"a: {'x' * 2046}",
        "too long with the hold": f"statusPort: 15021\na: {'x' * 1990}",
        "too long with the hold, flow": f'{{statusPort: 15021, a: "{"x" * 2022}"}}',
    },
}
"""Configurations that stay as they are, by the reason."""


def merged(name: str, before: str, after: str) -> Case:
    return Case(
        f"hold, {name}",
        annotations={CONFIG: before},
        want=("hold",),
        want_annotations={CONFIG: after},
    )


HOLDS = (
    held("hold, no configuration"),
    held("hold, where the namespace is the member and no pod is selected", labels={"team": "ml"}),
    held("hold, to completion without native sidecars", spec=TO_COMPLETION),
    Case(
        "hold, after others were applied",
        annotations={APPLIED: "labels,hold"},
        want=("hold",),
        want_annotations={**HELD, APPLIED: "labels,hold"},
    ),
    merged("only blanks", " \n\t\r\n ", HOLD),
)
CONFIGURATIONS = (
    *(merged(name, before, after) for name, (before, after) in MERGED.items()),
    *(
        left(f"left, {name}", f"hold:{reason}", annotations={CONFIG: text})
        for reason, texts in LEFT.items()
        for name, text in texts.items()
    ),
)

FULL = (
    left(
        "hold, where it would pass what annotations may have",
        "hold:AnnotationsFull",
        annotations=filler(len(CONFIG) + len(HOLD) + len(APPLIED) + len("hold") - 1),
    ),
    Case(
        "as many annotations as are counted",
        settings="everything",
        annotations={f"example.com/{number}": "é" * 120 for number in range(1000)},
        want=("annotations", "ports", "hold", "labels"),
        want_labels={"tier": "other"},
        want_annotations={PORTS: "80,5432", CONFIG: f"{HELD_LINE}concurrency: 1"},
    ),
    left(
        "hold, among more annotations than are looked at",
        "hold:AnnotationsFull",
        annotations={f"a{number}": "" for number in range(1001)},
    ),
)

GRPC_AGENT = {TEMPLATES: "grpc-agent"}
PROBE = {"httpGet": {"path": "/", "port": 9801}}


def helped(**fields: Any) -> dict[str, Any]:
    """Write a pod's spec with a native init container."""
    return {"initContainers": [container("helper", "a:1", restartPolicy="Always", **fields)]}


NATIVES = (
    native("native, to completion", settings="native", spec=TO_COMPLETION),
    native(
        "native, until success",
        settings="native",
        spec={"restartPolicy": "OnFailure"},
        annotations={CONFIG: "concurrency: 2"},
    ),
    held("native, for ever", settings="native"),
    held(
        "native, the pod does not want it",
        "native:PodSaysItself",
        settings="native",
        spec=TO_COMPLETION,
        annotations={NATIVE: "false"},
    ),
    left("native, the pod wants it itself", "hold:NativeSidecar", annotations={NATIVE: "true"}),
    excluded(
        "native, on the node's network",
        "native:HostNetwork",
        "hold:HostNetwork",
        settings="native",
        spec=TO_COMPLETION | HOST_NETWORK,
    ),
    *(
        native(
            f"native, cannot start with a classic proxy: {name}",
            settings="native",
            spec=helped(**fields),
        )
        for name, fields in (
            ("a startup probe", {"startupProbe": PROBE}),
            ("a hook", {"lifecycle": {"postStart": {"tcpSocket": {"port": 9801}}}}),
        )
    ),
    native(
        "native, waits for its head in an init container",
        settings="native",
        spec={"initContainers": [container(each, "a:1") for each in ("setup", "wait-gcs-ready")]},
    ),
    held(
        "native, can start with a classic proxy",
        settings="native",
        annotations={"sidecar.istio.io/rewriteAppHTTPProbers": "false"},
        spec=helped(startupProbe=PROBE),
    ),
    held(
        "native, the template has none",
        "native:OtherTemplate",
        settings="native",
        annotations=GRPC_AGENT,
        spec=TO_COMPLETION,
    ),
    held(
        "native, the pod wants it and its template has none",
        annotations={**GRPC_AGENT, NATIVE: "true"},
    ),
    *(
        native(
            f"native, by the template's name: {name}",
            settings="native",
            annotations={TEMPLATES: text},
            spec=TO_COMPLETION,
        )
        for name, text in (("alone", "sidecar"), ("with blanks", " sidecar "))
    ),
    # Another template may customise istio-proxy among the containers, where no native one is.
    *(
        held(
            f"native, another template too: {name}",
            "native:OtherTemplate",
            settings="native",
            annotations={TEMPLATES: text},
            spec=spec,
        )
        for name, text, spec in (
            ("after", "sidecar,grpc-simple", TO_COMPLETION),
            ("before", "grpc-simple , sidecar", TO_COMPLETION),
            ("blocked by a probe", "sidecar,grpc-simple", helped(startupProbe=PROBE)),
        )
    ),
    left(
        "native, the pod wants it and adds a template",
        "hold:NativeSidecar",
        annotations={TEMPLATES: "sidecar,grpc-simple", NATIVE: "true"},
    ),
)

CHARM, DB, PROXY = (container(name, f"{name}:1") for name in ("charm", "db", "istio-proxy"))
RAY = {"ray.io/node-type": "worker"}
NOT_HELD = f'{{"{KEY}": false}}'


def unit(*containers: dict[str, str]) -> dict[str, list[dict[str, str]]]:
    init = [container(each, "a:1") for each in ("setup", "charm-init")]
    return {"initContainers": init, "containers": list(containers)}


UNIT = unit(CHARM, DB)

# Juju's units and KubeRay's pods: their controller addresses the first container.
ADDRESSED = (
    left("a unit is not held", "hold:FirstContainer", spec=UNIT),
    left("Ray's pod is not held", "hold:FirstContainer", namespace="profiles", labels=RAY),
    native(
        "Ray's pod that runs to completion is native",
        settings="native",
        labels=RAY,
        spec=TO_COMPLETION,
    ),
    Case(
        "a unit declines the mesh's hold",
        settings="mesh-holds",
        spec=UNIT,
        want=("no-hold",),
        want_annotations={CONFIG: NOT_HELD},
    ),
    left(
        "a unit with a native sidecar has nothing to decline",
        settings="mesh-holds",
        annotations={NATIVE: "true"},
        spec=UNIT,
    ),
    left(
        "a unit without sidecar has nothing to decline",
        settings="mesh-holds",
        labels=NO_SIDECAR,
        spec=UNIT,
    ),
    left("another pod keeps the mesh's hold", settings="mesh-holds", spec={"containers": [CHARM]}),
    Case(
        "a unit's charm comes before its proxy",
        annotations={APPLIED: "no-hold"},
        spec=unit(PROXY, DB, CHARM),
        want=("order",),
        want_annotations={APPLIED: "no-hold,order"},
        want_first="charm",
        skipped=("all:HasProxy",),
    ),
    Case(
        "Ray's container comes before its proxy",
        labels=RAY,
        spec={"containers": [PROXY, container("worker", "a:1"), DB]},
        want=("order",),
        want_first="worker",
        skipped=("all:HasProxy",),
    ),
    left("a unit whose charm is first", "all:HasProxy", spec=unit(CHARM, PROXY, DB)),
    left("another pod's proxy stays first", "all:HasProxy", spec={"containers": [PROXY, DB]}),
    left(
        "in the model, where only places are given, a proxy stays first",
        "all:HasProxy",
        settings="place-only",
        spec=unit(PROXY, CHARM),
    ),
)


def ambient(name: str, settings: str, labels: dict[str, str], want: str, *skipped: str) -> Case:
    """A pod of a model in ambient mode, where nothing goes through a proxy of its own."""
    modes = {"excluded": OUT_OF_AMBIENT, "inject": IN_AMBIENT, "labels": {"tier": "front"}}
    return Case(
        f"ambient: {name}",
        settings=settings,
        labels=labels,
        want=(want,) if want else (),
        want_labels=modes.get(want, {}),
        skipped=skipped,
    )


UNHELD = ("ports:Ambient", "hold:Ambient")
AMBIENT = (
    Case(
        "ambient: on the node's network",
        settings="ambient",
        spec=HOST_NETWORK,
        want=("excluded",),
        want_labels=OUT_OF_AMBIENT,
        skipped=("ports:HostNetwork", "hold:HostNetwork"),
    ),
    left(
        "ambient: a pod that runs to completion asks for no native sidecar",
        "ports:Ambient",
        "native:Ambient",
        "hold:Ambient",
        settings="ambient",
        spec=TO_COMPLETION,
    ),
    *(
        ambient(name, "ambient", labels, want, *skipped, *UNHELD)
        for name, labels, want, *skipped in (
            ("an excluded pod", {"tier": "db"}, "excluded"),
            (
                "an excluded pod that would have no sidecar either",
                {"tier": "db", **NO_SIDECAR},
                "excluded",
            ),
            (
                "an excluded pod that says itself where it is",
                {"tier": "db", **IN_AMBIENT},
                "",
                SAYS_ITSELF,
            ),
            (
                "an excluded pod that asks for a sidecar",
                {"tier": "db", **SIDECAR},
                "",
                SAYS_ITSELF,
            ),
            ("what is no matter of proxies goes on", {"app": "web"}, "labels"),
        )
    ),
    *(
        ambient(name, "ambient-selected", labels, want, *skipped, "hold:Ambient")
        for name, labels, want, *skipped in (
            ("a selected pod", {"team": "ml"}, "inject"),
            ("a selected pod that is excluded", {"team": "ml", "never": ""}, "excluded"),
            (
                "a selected pod that asks for a sidecar",
                {"team": "ml", **SIDECAR},
                "",
                "inject:PodSaysItself",
            ),
        )
    ),
)

NOTE = {"example.com/note": 'a "quoted" <b>\n'}
NOTE_BYTES = sum(map(len, (*NOTE, *NOTE.values(), APPLIED, "annotations")))
WEB = {"tier": "front", "cost-centre": "7"}
"""The labels for web servers."""


def ports(name: str, want: str, before: str = "", *skipped: str, **labels: str) -> Case:
    """A pod whose proxy is to leave ports alone, and that has what rules add to its labels."""
    return Case(
        f"ports{name}",
        settings="rules",
        labels={"db": "", "tier": "x", **labels},
        annotations={PORTS: before} if before else {},
        want=("ports",) if want else (),
        want_annotations={PORTS: want} if want else {},
        skipped=(*skipped, "labels:PodSaysItself"),
    )


def images(name: str, spec: dict[str, Any], **want: str) -> Case:
    """A pod whose images come from a mirror, with the images that change."""
    return Case(
        f"images{name}",
        settings="rules",
        labels={"mirrored": "", "tier": "x"},
        spec=spec,
        want=("images",),
        want_images=want,
        skipped=("labels:PodSaysItself",),
    )


RULES = (
    Case(
        "labels and annotations of selected pods, the first rule first",
        settings="rules",
        labels={"app": "web"},
        want=("annotations", "labels"),
        want_labels=WEB,
        want_annotations=NOTE,
    ),
    Case(
        "one label is there, one is not",
        settings="rules",
        labels={"app": "web", "tier": "mine"},
        annotations={"example.com/note": "mine"},
        want=("labels",),
        want_labels={"cost-centre": "7"},
        skipped=("annotations:PodSaysItself",),
    ),
    Case(
        "an excluded pod gets its labels, not its ports",
        settings="rules",
        labels={"outside": "", "db": ""},
        want=("excluded", "labels"),
        want_labels={**NO_SIDECAR, "tier": "other"},
        skipped=("ports:NotInjected",),
    ),
    ports("", "5432,6379"),
    ports(" of two rules", "5432,6379,11211", cache=""),
    ports(" beside the pod's own", "63790 , 5432,6379", "63790 , 5432"),
    ports(" that are all there", "", "6379,5432", "ports:PodSaysItself"),
    ports(" where the annotation is blank", "5432,6379", " "),
    *(
        ports(
            f" beside a list with an empty place, {value!r}", "", value, "ports:PortsNotMergeable"
        )
        for value in ("80,", ",80", "80, ,81")
    ),
    Case(
        "annotations that have a byte too little",
        settings="rules",
        labels={"app": "web"},
        annotations=filler(NOTE_BYTES - 1),
        spec=HOST_NETWORK,
        want=("excluded", "labels"),
        want_labels=WEB | NO_SIDECAR,
        is_marked=False,
        skipped=("annotations:AnnotationsFull",),
    ),
    images(
        " beside a proxy whose image istiod fills in",
        {"containers": [container("main", "python"), container("istio-proxy", "auto")]},
        main="mirror.example/official/python",
    ),
    images(
        "",
        {
            "initContainers": [container("i", "quay.io/a/b:1")],
            "containers": [
                container("short", "python"),
                container("hub", "bitnami/redis:7"),
                container("full", "docker.io/library/nginx@sha256:" + "0" * 64),
                container("local", "localhost/x"),
                container("other", "ghcr.io/docker.io/x"),
                container("port", "docker.io:443/x"),
                container("port-of-a-short-name", "mirror:5000/x"),
                container("tag", "python:3.12"),
                container("dots", "." * 300),
                container("localhost", "localhost"),
            ],
        },
        i="mirror.example:5000/quay/a/b:1",
        short="mirror.example/official/python",
        hub="mirror.example/hub/bitnami/redis:7",
        full="mirror.example/official/nginx@sha256:" + "0" * 64,
        tag="mirror.example/official/python:3.12",
        dots="mirror.example/official/" + "." * 300,
        localhost="mirror.example/official/localhost",
    ),
    left(
        "images of pods that are not selected",
        "labels:PodSaysItself",
        settings="rules",
        labels={"tier": "x"},
        spec={"containers": [container("main", "python:3")]},
    ),
    Case(
        "everything, for ever",
        settings="everything",
        spec={"containers": [container("main", "python:3")]},
        want=("annotations", "ports", "hold", "images", "labels"),
        want_labels={"tier": "other"},
        want_annotations={PORTS: "80,5432", CONFIG: f"{HELD_LINE}concurrency: 1"},
        want_images={"main": "mirror.example/library/python:3"},
    ),
    Case(
        "everything, to completion",
        settings="everything",
        labels={"original": ""},
        spec=TO_COMPLETION,
        want=("annotations", "ports", "native", "labels"),
        want_labels={"tier": "other"},
        want_annotations={PORTS: "80,5432", CONFIG: "concurrency: 1", NATIVE: "true"},
        skipped=("hold:NativeSidecar",),
    ),
)

POD_TRAFFIC = f"{PREFIX}pod-traffic"
MUTUAL_TLS = {POD_TRAFFIC: "mutual-tls"}
PYTORCH = {"training.kubeflow.org/job-name": "bert"}
ENDLESS = '"proxyMetadata": {"ISTIO_META_IDLE_TIMEOUT": "0s"}'


def trains(name: str, labels: dict[str, str], **fields: Any) -> Case:
    """A pod of a training job, which calls other pods by mutual TLS."""
    given: dict[str, Any] = {"settings": "training", "namespace": "profiles", **fields}
    want = ("pod-traffic", "idle-timeout")
    annotations = {CONFIG: f"{{{ENDLESS}}}"}
    return Case(
        name,
        labels=labels,
        want=want,
        want_labels=MUTUAL_TLS,
        want_annotations=annotations,
        **given,
    )


ELSEWHERE = tuple(
    trains(f"trains, {label}, in {namespace}", {label: "bert"}, namespace=namespace)
    for label, namespace in {
        "training.kubeflow.org/job-name": "profiles",
        "ray.io/cluster": "labelled",
    }.items()
)
"""Pods of other served namespaces, which the API server's worlds have with other settings."""
TRAINING = (
    *(
        trains(f"trains, {label}", {label: "bert", "app": "x"}, namespace="model")
        for label in (
            "training.kubeflow.org/job-name",
            "jobset.sigs.k8s.io/jobset-name",
            "ray.io/cluster",
            "leaderworkerset.sigs.k8s.io/name",
            "volcano.sh/job-name",
            "spark-app-selector",
        )
    ),
    Case(
        "trains, held and with a configuration of its own",
        settings="training-held",
        labels=PYTORCH,
        annotations={CONFIG: "concurrency: 1"},
        want=("pod-traffic", "hold", "idle-timeout"),
        want_labels=MUTUAL_TLS,
        want_annotations={CONFIG: f"{ENDLESS[1:14]}{ENDLESS[15:]}\n{HELD_LINE}concurrency: 1"},
    ),
    Case(
        "trains, with metadata of its own",
        settings="training",
        labels=PYTORCH,
        annotations={CONFIG: "proxyMetadata: {A: b}"},
        want=("pod-traffic",),
        want_labels=MUTUAL_TLS,
        skipped=("idle-timeout:ConfigSaysItself",),
    ),
    Case(
        "any pod whose own label asks for it",
        settings="training",
        labels=MUTUAL_TLS,
        want=("idle-timeout",),
        want_annotations={CONFIG: f"{{{ENDLESS}}}"},
    ),
    left(
        "declines to be changed",
        "pod-traffic:PodSaysItself",
        settings="training",
        labels={**PYTORCH, POD_TRAFFIC: "unchanged"},
    ),
    left(
        "asks for mutual TLS without a sidecar",
        "idle-timeout:NotInjected",
        settings="training",
        labels={**MUTUAL_TLS, **NO_SIDECAR},
    ),
    left(
        "trains without a sidecar",
        "pod-traffic:NotInjected",
        settings="training",
        labels={**PYTORCH, **NO_SIDECAR},
    ),
    excluded(
        "trains on the node's network",
        "pod-traffic:HostNetwork",
        settings="training",
        labels=PYTORCH,
        spec=HOST_NETWORK,
    ),
    left("no training", settings="training", labels={"job-name": "bert", "app": "x"}),
    left(
        "trains where pod-networks is none", settings="neither", labels={**PYTORCH, **MUTUAL_TLS}
    ),
)

OBJECTS = (*TRAINING, *EXCLUSION, *UNTOUCHED, *CUSTOMISED, *HOLDS, *FULL, *NATIVES, *ADDRESSED)
OBJECTS += (*SELECTED, *AMBIENT, *RULES)
"""Pods whose fields matter, and not how the text in an annotation is written."""
# istiod's proxy comes first in it, and then its container moves.
UNIT_THAT_HOLDS = left(
    "a unit that says itself whether it is held",
    "no-hold:ConfigSaysItself",
    settings="mesh-holds",
    annotations=HELD,
    spec=UNIT,
)
CASES = (*OBJECTS, *ELSEWHERE, *CONFIGURATIONS, UNIT_THAT_HOLDS)
