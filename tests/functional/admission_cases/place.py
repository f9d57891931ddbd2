"""Which pods are kept out of the mesh, taken in, or left as they are."""

from __future__ import annotations

from tests.functional.admission_cases.case import (
    APPLICATION,
    APPLIED,
    HELD,
    MESH_PROBE,
    NO_SIDECAR,
    SIDECAR,
    TO_COMPLETION,
    Case,
    container,
    excluded,
    filler,
    held,
    native,
)

EXCLUSION = (
    excluded(
        "modeloperator",
        labels={"operator.juju.is/name": "modeloperator", "operator.juju.is/target": "model"},
    ),
    excluded("modeloperator with its older label", labels={"juju-modeloperator": "modeloperator"}),
    excluded("the charm's own pod", labels={"app.kubernetes.io/name": APPLICATION}),
    Case(
        id="the charm's own pod that says false already",
        labels={"app.kubernetes.io/name": APPLICATION, **NO_SIDECAR},
        skipped=("excluded:PodSaysItself",),
    ),
    excluded(
        "the charm's own pod, where only places are given",
        settings="place-only",
        labels={"app.kubernetes.io/name": APPLICATION},
    ),
    excluded(
        "the charm's own pod gets nothing else",
        settings="everything",
        labels={"app.kubernetes.io/name": APPLICATION},
    ),
    held(
        "another application's pod is no pod of the charm",
        labels={"app.kubernetes.io/name": f"{APPLICATION}-2"},
    ),
    held(
        "a pod that looks like modeloperator in a profile",
        namespace="profiles",
        labels={"operator.juju.is/name": "modeloperator"},
    ),
    excluded("excluded by one value", labels={"tier": "outside"}, skipped=("hold:NotInjected",)),
    excluded(
        "excluded by the other value",
        labels={"tier": "edge"},
        annotations={"mine": "1"},
        skipped=("hold:NotInjected",),
    ),
    held("only one part of the selector fits", labels={"tier": "edge", "keep": ""}),
    held(
        "excluded, but the pod wants its sidecar",
        labels={"tier": "edge", **SIDECAR},
        skipped=("excluded:PodSaysItself",),
    ),
    held(
        "excluded, but the pod's annotation wants a sidecar",
        labels={"tier": "edge"},
        annotations=SIDECAR,
        skipped=("excluded:PodSaysItself",),
    ),
    held(
        "excluded, but the pod names a revision",
        labels={"tier": "edge", "istio.io/rev": "canary"},
        skipped=("excluded:PodSaysItself",),
    ),
    excluded(
        "excluded, and its annotation agrees",
        labels={"tier": "edge"},
        annotations=NO_SIDECAR,
        skipped=("hold:NotInjected",),
    ),
    excluded("excluded where nothing else is done", settings="neither", labels={"alone": ""}),
    held("excluded pods are the model's only", namespace="labelled", labels={"tier": "edge"}),
    excluded(
        "excluded on the node's network",
        labels={"tier": "edge"},
        spec={"hostNetwork": True},
        skipped=("hold:HostNetwork",),
    ),
    excluded(
        "excluded where annotations have no place left",
        labels={"tier": "edge"},
        annotations=filler(len(APPLIED) + len("excluded") - 1),
        is_marked=False,
        skipped=("hold:NotInjected",),
    ),
    excluded(
        "excluded where annotations have just place",
        labels={"tier": "edge"},
        annotations=filler(len(APPLIED) + len("excluded")),
        skipped=("hold:NotInjected",),
    ),
    Case(id="nothing is wanted", settings="neither"),
)

LEFTOVER = '{"initContainers": ["istio-init"], "containers": ["istio-proxy"]}'
"""What the injector has written into a pod whose YAML became a template."""

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
        spec={"containers": [container("main", "a:1"), container("istio-proxy", "b:1")]},
        skipped=("all:HasProxy",),
    ),
    held(
        "the injector's mark is there, and no proxy",
        annotations={"sidecar.istio.io/status": LEFTOVER},
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
    held("the pod's label beats its annotation", labels=SIDECAR, annotations=NO_SIDECAR),
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
    *(
        Case(
            id=f"asks what istiod injects: {name}",
            settings=settings,
            namespace=namespace,
            labels={MESH_PROBE: "true", **labels},
            skipped=("all:MeshProbe",),
        )
        for name, settings, namespace, labels in (
            ("held otherwise", "hold", "model", {}),
            ("excluded otherwise", "hold", "model", {"tier": "edge"}),
            ("in a labelled namespace", "hold", "labelled", {}),
            ("selected otherwise", "revision", "model", {"team": "any"}),
            ("everything otherwise", "everything", "model", {}),
        )
    ),
)

OWN_PROXY = container("istio-proxy", "auto", resources={"requests": {"cpu": "5m"}})
CUSTOM = {"containers": [container("main", "a:1"), OWN_PROXY]}

CUSTOMISED = (
    held("customised, held", spec=CUSTOM),
    excluded(
        "customised, excluded",
        labels={"tier": "outside"},
        spec=CUSTOM,
        skipped=("hold:NotInjected",),
    ),
    Case(
        id="customised, selected",
        settings="selected",
        labels={"team": "ml"},
        spec=CUSTOM,
        want=("inject", "hold"),
        want_labels=SIDECAR,
        want_annotations=HELD,
    ),
    native("customised, to completion", settings="native", spec={**CUSTOM, **TO_COMPLETION}),
    native(
        "customised among the init containers",
        settings="native",
        spec={"initContainers": [{**OWN_PROXY, "restartPolicy": "Always"}], **TO_COMPLETION},
    ),
    held(
        "customised, and the injector's mark is there",
        annotations={"sidecar.istio.io/status": LEFTOVER},
        spec=CUSTOM,
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
    held("not selected", settings="selected", labels={"team": "ml", "stage": "old"}),
    excluded(
        "selected and excluded",
        settings="selected",
        labels={"team": "ml", "never": ""},
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
    held(
        "selected, and names a revision",
        settings="selected",
        labels={"team": "ml", "istio.io/rev": "x"},
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
    excluded(
        "excluded where a revision is injected",
        settings="revision",
        labels={"app.kubernetes.io/name": APPLICATION, "team": "any"},
    ),
)
