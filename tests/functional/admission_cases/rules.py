"""What the pod rules do: labels, annotations, ports and images that the operator asks for."""

from __future__ import annotations

from tests.functional.admission_cases.case import (
    APPLIED,
    CONFIG,
    HELD_LINE,
    NATIVE,
    NO_SIDECAR,
    PORTS,
    TO_COMPLETION,
    Case,
    container,
    filler,
)

NOTE = {"example.com/note": 'a "quoted" <b>\n'}
NOTE_BYTES = sum(map(len, (*NOTE, *NOTE.values(), APPLIED, "annotations")))

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
        annotations={PORTS: "63790 , 5432"},
        want=("ports",),
        want_annotations={PORTS: "63790 , 5432,6379"},
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
    *(
        Case(
            id=f"ports beside a list with an empty place, {value!r}",
            settings="rules",
            labels={"db": "", "tier": "x"},
            annotations={PORTS: value},
            skipped=("ports:PortsNotMergeable", "labels:PodSaysItself"),
        )
        for value in (",", " , ,", "80,", ",80", "80, ,81")
    ),
    Case(
        id="annotations that just have place",
        settings="rules",
        labels={"app": "web", "tier": "x", "cost-centre": "x"},
        annotations=filler(NOTE_BYTES),
        spec={"hostNetwork": True},
        want=("annotations",),
        want_annotations=NOTE,
        skipped=("labels:PodSaysItself",),
    ),
    Case(
        id="annotations that have a byte too little",
        settings="rules",
        labels={"app": "web"},
        annotations=filler(NOTE_BYTES - 1),
        spec={"hostNetwork": True},
        want=("labels",),
        want_labels={"tier": "front", "cost-centre": "7"},
        is_marked=False,
        skipped=("annotations:AnnotationsFull",),
    ),
    Case(
        id="images beside a proxy whose image istiod fills in",
        settings="rules",
        labels={"mirrored": "", "tier": "x"},
        spec={"containers": [container("main", "python"), container("istio-proxy", "auto")]},
        want=("images",),
        want_images={"main": "mirror.example/official/python"},
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
                container("tag", "python:3.12"),
                container("dots", "." * 300),
                container("localhost", "localhost"),
            ],
        },
        want=("images",),
        want_images={
            "i": "mirror.example:5000/quay/a/b:1",
            "short": "mirror.example/official/python",
            "hub": "mirror.example/hub/bitnami/redis:7",
            "full": "mirror.example/official/nginx@sha256:" + "0" * 64,
            "tag": "mirror.example/official/python:3.12",
            "dots": "mirror.example/official/" + "." * 300,
            "localhost": "mirror.example/official/localhost",
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
