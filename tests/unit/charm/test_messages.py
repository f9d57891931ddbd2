"""The table of messages, and how a row is shown."""

import ast
import pathlib
import re
import string

import ops
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrator_contract.seen import Cause
from istio_integrator import messages
from istio_integrator.messages import Severity, Template
from tests.unit.cases import cases

APP = "istio-integrator"
SOURCES = pathlib.Path(messages.__file__).parent
WORDS = st.text(st.sampled_from("ab -/.=\n"), max_size=200)


def placeholders(row):
    texts = (row.condition, row.command, row.more)
    return {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}


def calls():
    """Find the calls that make a message of a row, with the names that they fill in."""
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="Template"), attr=row), keywords=keywords
                ):
                    filled = {each.arg for each in keywords}
                    yield pytest.param(row, filled, id=f"{file.name}:{node.lineno}")


@pytest.mark.parametrize(("row", "filled"), [*calls()])
def test_message_fills_in_every_name_of_its_row(row, filled):
    # A mapping that is spread out has no name here.
    assert filled == placeholders(Template[row].value) or None in filled


def test_every_row_is_said():
    sources = "\n".join(file.read_text() for file in SOURCES.rglob("*.py"))
    said = {*re.findall(r"Template\.([A-Z_]+)", sources), *(each.name for each in Cause)}
    assert said == {each.name for each in Template}


@given(WORDS, st.integers(1, 250), WORDS)
def test_command_ends_within_the_visible_characters_and_no_word_is_lost(seen, length, more):
    said = Template.PODS_WAIT(pods="1/2", problem=seen, command="c" * length, more=more)
    message = said.to_status(application=APP).message
    command = re.search(r"run: (c+|juju run \S+ diagnose)", message)
    assert command.end() <= messages.VISIBLE

    def letters(text):
        return re.sub(r"[^ab]", "", text.replace("\\n", ""))

    assert letters(message.replace(command[0], "")).endswith(letters(seen) + letters(more))


REALISTIC = {
    **dict.fromkeys(("application", "applications"), "istio-integrator"),
    **dict.fromkeys(("owner", "caller", "callers"), "kf-production.istio-integrator"),
    **dict.fromkeys(("author", "by"), 'webhook "policies.shop.example.com"'),
    "first": "oidc-gatekeeper on ingress-auth",
    **dict.fromkeys(("namespace", "home", "places"), "kubeflow-production"),
    "istiod": "istio-system",
    "setting": "PILOT_SCOPE_GATEWAY_TO_NAMESPACE",
    **dict.fromkeys(("gateway", "service"), "istio-ingress/istio-ingressgateway"),
    **dict.fromkeys(
        ("reference", "object", "policy", "rule"), "ConfigMap kf-production/istio-mesh"
    ),
    "names": "shop-production/checkout-frontend",
    "workload": "ml-pipeline-scheduledworkflow",
    "command": "kubectl -n kubeflow-production describe pod ml-pipeline-0",
    "endpoint": "gateway-metadata",
    "label": "istio-discovery=enabled",
    **dict.fromkeys(("count", "port", "pods", "routes"), "12"),
}
"""Values as long as those of a cluster; any other is ten characters long."""
SHOWN = [each for each in Template if each.value.severity not in (Severity.NOTE, Severity.DOUBT)]
REMEDY = re.compile(
    r"(?:^|[:;] |or )((?:set|integrate|install|remove|rename|delete|keep|move|deploy)\b[^;,]*)"
)


@pytest.mark.parametrize("row", SHOWN, ids=[each.name for each in SHOWN])
def test_author_and_remedy_of_every_row_are_visible(row):
    about = {name: REALISTIC.get(name, "x" * 10) for name in placeholders(row.value)}
    said = row(**about)
    shown = said.to_status(application=APP, others=2).message[: messages.VISIBLE]
    condition = row.value.condition
    fields = [name for _, name, *_ in string.Formatter().parse(condition) if name]
    # What a row says first is its author, or what it is about.
    assert condition.startswith("istiod ") or all(about[name] in shown for name in fields[:1])
    remedies = REMEDY.findall(said.finding)
    assert "run: " in shown or all(each in shown for each in remedies)


@pytest.mark.parametrize("severity", [each for each in Severity if each is not Severity.DOUBT])
def test_severity_is_the_status_of_juju(severity):
    row = next(each for each in Template if each.value.severity is severity)
    about = dict.fromkeys(placeholders(row.value), "x")
    assert row(**about).to_status(application=APP).name == severity.value


def test_severest_is_shown_and_the_other_problems_counted():
    notes = [Template.MESH(name="istiod 1.30"), Template.ADMISSION_WORKS()]
    assert messages.make_status(notes, application=APP) == ops.ActiveStatus(
        "istiod 1.30 · admission: webhook"
    )
    waiting = [
        *notes,
        Template.CONTAINER_STARTING(),
        Template.CERTIFICATE_AWAITED(applications="ca"),
    ]
    assert messages.make_status(waiting, application=APP) == ops.WaitingStatus(
        "waiting for the lifecycle container; +1 more"
    )
    blocked = [*waiting, Template.CERTIFICATES_NEED_HOSTS(application=APP)]
    assert messages.make_status(blocked, application=APP) == ops.BlockedStatus(
        "certificates needs hosts; run: juju config istio-integrator hosts=NAME; +2 more"
    )


@cases(
    ("seen", "command", "wanted"),
    visible=("c" * 85, "d" * 8, "{seen}; run: {command}; +2 more"),
    not_visible=("c" * 86, "d" * 8, "run: {command}; {seen}; +2 more"),
    escaped=("c\n" * 29, "d" * 8, "run: {command}; {seen}; +2 more"),
    longest_command=("c" * 90, "d" * 46, "run: {command}; {seen}; +2 more"),
    too_long=("c" * 90, "d" * 47, "run: juju run mesh-2/leader diagnose; {seen}; +2 more"),
    long_and_visible=("c" * 10, "d" * 83, "{seen}; run: {command}; +2 more"),
    without_a_command=("c" * 200, "", "{seen}; +2 more"),
    whole=("c" * 991, "", "{seen}; +2 more"),
    cut=("c" * 992, "", "{seen}; +2 mo…"),
)
def test_status_of_a_message(seen, command, wanted):
    said = Template.PODS_HANG(problem=seen, command=command)
    shown = said.to_status(application="mesh-2", others=2).message
    assert shown == wanted.format(seen=seen.replace("\n", "\\n"), command=command)


def test_status_with_escapes_is_cut_as_it_is_shown():
    said = Template.CONFIG_INVALID(problem="\n" * 600).to_status(application=APP)
    assert said.message == "\\n" * 499 + "\\…"


def test_message_without_a_value_of_its_row_is_an_error_at_once():
    with pytest.raises(KeyError, match="event"):
        Template.NOT_IN_MESH_YET(events="istiod")
