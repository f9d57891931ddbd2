"""Which pods have their application wait for its proxy, and which get a native one."""

from __future__ import annotations

from typing import Any

from tests.functional.admission_cases.case import (
    APPLIED,
    CONFIG,
    HELD,
    HELD_KEY,
    HELD_LINE,
    HOLD,
    KEY,
    NATIVE,
    NO_SIDECAR,
    PORTS,
    SNAKE,
    TO_COMPLETION,
    Case,
    container,
    filler,
    held,
    native,
)


def merged(name: str, before: str, after: str) -> Case:
    return Case(
        id=f"hold, {name}",
        annotations={CONFIG: before},
        want=("hold",),
        want_annotations={CONFIG: after},
    )


def left(name: str, value: str, reason: str) -> Case:
    return Case(id=f"left, {name}", annotations={CONFIG: value}, skipped=(f"hold:{reason}",))


HOLDS = (
    held("hold, no configuration"),
    held(
        "hold, beside other labels and annotations",
        labels={"app": "web"},
        annotations={"example.com/a": "1"},
    ),
    held("hold, in a profile", namespace="profiles"),
    held("hold, in a labelled namespace", namespace="labelled"),
    held("hold, to completion without native sidecars", spec=TO_COMPLETION),
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
    merged("empty", "", HOLD),
    merged("only blanks", " \n\t\r\n ", HOLD),
    merged("JSON", '{"concurrency": 2}', f'{{{HELD_KEY}, "concurrency": 2}}'),
    merged("an empty JSON object", "{}", f"{{{HELD_KEY}}}"),
    merged("an empty JSON object over lines", " { \n } \n", f" {{{HELD_KEY} \n }} \n"),
    merged(
        "JSON over lines",
        '\n{\n  "concurrency": 2\n}\n',
        f'\n{{{HELD_KEY}, \n  "concurrency": 2\n}}\n',
    ),
    merged("a flow mapping of YAML", "{concurrency: 2,}", f"{{{HELD_KEY}, concurrency: 2,}}"),
    merged("a flow mapping with a comment", "{ # x\n}", f"{{{HELD_KEY},  # x\n}}"),
    merged("a block mapping", "concurrency: 2\n", f"{HELD_LINE}concurrency: 2\n"),
    merged(
        "a mapping of mappings",
        "tracing:\n  sampling: 1\nconcurrency: 2",
        f"{HELD_LINE}tracing:\n  sampling: 1\nconcurrency: 2",
    ),
    merged("an indented mapping", "\n  a: 1\n  b: 2\n", f"\n  {HELD_LINE}  a: 1\n  b: 2\n"),
    merged("a quoted key", '"a b": 1', f'{HELD_LINE}"a b": 1'),
    merged("a singly quoted key", "'a': 1", f"{HELD_LINE}'a': 1"),
    merged("comments first", "# x: 1\n  # y\na: 1", f"# x: 1\n  # y\n{HELD_LINE}a: 1"),
    merged("a document start", "---\na: 1", f"---\n{HELD_LINE}a: 1"),
    merged(
        "a commented document start",
        "# x\n--- # y\n\n# z\na: 1",
        f"# x\n--- # y\n\n# z\n{HELD_LINE}a: 1",
    ),
    merged("a document start before JSON", "--- {a: 1}", f"--- {{{HELD_KEY}, a: 1}}"),
    merged("an end of the document", "a: 1\n...\n", f"{HELD_LINE}a: 1\n...\n"),
    merged("line ends of Windows", "a: 1\r\nb: 2\r\n", f"{HELD_LINE}a: 1\r\nb: 2\r\n"),
    merged(
        "a key that ends alike",
        f"my-{KEY}: 1",
        f"{HELD_LINE}my-{KEY}: 1",
    ),
    merged("the key's name as a value", f"a: {KEY}", f"{HELD_LINE}a: {KEY}"),
    merged("other alphabets", 'a: "äöü 雪 🙂"\n', f'{HELD_LINE}a: "äöü 雪 🙂"\n'),
    left("false", f"{KEY}: false", "ConfigSaysItself"),
    left("true", f"concurrency: 2\n{KEY}: true\n", "ConfigSaysItself"),
    left("false in JSON", f'{{"{KEY}":false}}', "ConfigSaysItself"),
    left("false in a flow mapping", f"{{a: 1, {KEY} : false}}", "ConfigSaysItself"),
    left(
        "the other spelling of protobuf",
        "hold_application_until_proxy_starts: false",
        "ConfigSaysItself",
    ),
    merged("an empty JSON object with a comment", "{} # x", f"{{{HELD_KEY}}} # x"),
    merged("an empty JSON object and an end", "{}\n...\n", f"{{{HELD_KEY}}}\n...\n"),
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
    merged("as long as may be", "a: " + "x" * 32765, f"{HELD_LINE}a: " + "x" * 32765),
)

NAMED = (
    merged(
        "named by a comment first", f"# {KEY}: false\na: 1\n", f"# {KEY}: false\n{HELD_LINE}a: 1\n"
    ),
    merged(
        "named by a comment behind", f"a: 1 # {KEY}: false\n", f"{HELD_LINE}a: 1 # {KEY}: false\n"
    ),
    merged("named by a comment last", f"a: 1\n# {KEY}: false", f"{HELD_LINE}a: 1\n# {KEY}: false"),
    merged(
        "named by a nested key",
        f"  proxyMetadata:\n    {KEY}: 'false'\n  concurrency: 2",
        f"  {HELD_LINE}  proxyMetadata:\n    {KEY}: 'false'\n  concurrency: 2",
    ),
    merged(
        "named by a nested key in its other spelling",
        f"proxyMetadata:\n  {SNAKE}: 'false'\n",
        f"{HELD_LINE}proxyMetadata:\n  {SNAKE}: 'false'\n",
    ),
    merged(
        "named by a text of lines",
        f"proxyMetadata:\n  A: |\n    {KEY}: false\n",
        f"{HELD_LINE}proxyMetadata:\n  A: |\n    {KEY}: false\n",
    ),
    merged(
        "named by a nested flow mapping",
        f"proxyMetadata: {{{KEY}: 'false'}}\n",
        f"{HELD_LINE}proxyMetadata: {{{KEY}: 'false'}}\n",
    ),
    merged(
        "named by another document",
        f"a: 1\n---\n{KEY}: false\n",
        f"{HELD_LINE}a: 1\n---\n{KEY}: false\n",
    ),
    merged(
        "named by a nested key of JSON",
        f'{{"proxyMetadata": {{"A": "}}", "{KEY}": "false"}}, "concurrency": 2}}',
        f'{{{HELD_KEY}, "proxyMetadata": {{"A": "}}", "{KEY}": "false"}}, "concurrency": 2}}',
    ),
    merged(
        "named by a comment in JSON",
        f'{{\n  # "{KEY}": false,\n  "a": 1 # {SNAKE}\n}}',
        f'{{{HELD_KEY}, \n  # "{KEY}": false,\n  "a": 1 # {SNAKE}\n}}',
    ),
    merged(
        "named by a comment behind JSON",
        f'{{"a": 1}} # {KEY}: false',
        f'{{{HELD_KEY}, "a": 1}} # {KEY}: false',
    ),
    merged("named by a value of JSON", f'{{"a": "{KEY}"}}', f'{{{HELD_KEY}, "a": "{KEY}"}}'),
    merged("named by a part of a key", f"{{my-{KEY}: 1}}", f"{{{HELD_KEY}, my-{KEY}: 1}}"),
    left("false behind a comment", f"# {KEY}: true\na: 1\n{KEY}: false", "ConfigSaysItself"),
    left(
        "false behind a nested key",
        f"proxyMetadata:\n  {KEY}: 'x'\n{KEY} : false\n",
        "ConfigSaysItself",
    ),
    left(
        "false behind a nested key of JSON",
        f'{{"proxyMetadata": {{"A": "{{", "{KEY}": "x"}}, "{KEY}": false}}',
        "ConfigSaysItself",
    ),
    left("nothing for a value", f"{{a: 1, {KEY}}}", "ConfigSaysItself"),
    left("an explicit key behind another", f"a: 1\n? {KEY}\n: false\n", "ConfigUnclear"),
    left("a merge key", f"a: 1\n<<: {{{KEY}: false}}\n", "ConfigUnclear"),
    left("a merge key in a flow mapping", f"{{a: 1, <<: {{{SNAKE}: false}}}}", "ConfigUnclear"),
    left("a name within a text of JSON", f'{{"a": "not {KEY}: false"}}', "ConfigUnclear"),
    merged(
        "named by a key that is nested deeply",
        f"{'{a: ' * 9}{{{KEY}: 1}}{'}' * 9}",
        f"{{{HELD_KEY}, a: {'{a: ' * 8}{{{KEY}: 1}}{'}' * 9}",
    ),
    left(
        "a name in a long flow mapping",
        f"{{a: {'x' * 4096}, b: {{{KEY}: 1}}}}",
        "ConfigUnclear",
    ),
    merged(
        "named far to the right",
        f"{' ' * 65}a: 1 # {KEY}",
        f"{' ' * 65}{HELD_LINE}{' ' * 65}a: 1 # {KEY}",
    ),
)

WIDE = f"{' ' * 64}a: 1\n"
FAR = "".join([WIDE] * 470) + f"# {KEY}"

HEAVY = (
    Case(
        id="heavy, as many pieces as are looked at",
        settings="everything",
        annotations={CONFIG: f"{{a: [{'1,' * 2019}1], {KEY}: true}}"},
        want=("ports", "labels"),
        want_labels={"tier": "other"},
        want_annotations={PORTS: "5432"},
        skipped=("annotations:PodSaysItself", "hold:ConfigSaysItself"),
    ),
    Case(
        id="heavy, a long block mapping far to the right",
        settings="everything",
        annotations={CONFIG: FAR},
        want=("ports", "hold", "labels"),
        want_labels={"tier": "other"},
        want_annotations={PORTS: "5432", CONFIG: f"{' ' * 64}{HELD_LINE}{FAR}"},
        skipped=("annotations:PodSaysItself",),
    ),
    Case(
        id="heavy, as many annotations as are counted",
        settings="everything",
        annotations={f"example.com/{number}": "é" * 120 for number in range(1000)},
        want=("annotations", "ports", "hold", "labels"),
        want_labels={"tier": "other"},
        want_annotations={PORTS: "5432", CONFIG: f"{HELD_LINE}concurrency: 1"},
    ),
)

FULL = (
    Case(
        id="hold, where it would pass what annotations may have",
        annotations=filler(len(CONFIG) + len(HOLD) + len(APPLIED) + len("hold") - 1),
        skipped=("hold:AnnotationsFull",),
    ),
    Case(
        id="hold in a configuration, where it would pass what annotations may have",
        annotations=filler(len(HELD_LINE) + len(APPLIED) + len("hold") - 1, **{CONFIG: "a: 1"}),
        skipped=("hold:AnnotationsFull",),
    ),
    Case(
        id="native, where it would pass what annotations may have",
        settings="native",
        spec=TO_COMPLETION,
        annotations=filler(50),
        skipped=("hold:NativeSidecar", "native:AnnotationsFull"),
    ),
    Case(
        id="hold, among more annotations than are looked at",
        annotations={f"a{number}": "" for number in range(1001)},
        skipped=("hold:AnnotationsFull",),
    ),
)

TEMPLATES = "inject.istio.io/templates"
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
        settings="native",
        spec=TO_COMPLETION,
        annotations={NATIVE: "false"},
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
    held(
        "native, can start with a classic proxy",
        settings="native",
        spec=helped(readinessProbe=PROBE),
    ),
    held(
        "native, cannot start with a classic proxy where native ones do not work",
        spec=helped(startupProbe=PROBE),
    ),
    held(
        "native, the template has none",
        settings="native",
        annotations=GRPC_AGENT,
        spec=TO_COMPLETION,
        skipped=("native:OtherTemplate",),
    ),
    held(
        "native, the pod wants it and its template has none",
        annotations={**GRPC_AGENT, NATIVE: "true"},
    ),
    native(
        "native, by the template's name",
        settings="native",
        annotations={TEMPLATES: "sidecar"},
        spec=TO_COMPLETION,
    ),
)
