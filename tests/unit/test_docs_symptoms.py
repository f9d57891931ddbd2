"""The page of symptoms has what `diagnose` points to, and quotes what the code says."""

import pathlib
import re
import runpy
from collections.abc import Iterator

import markdown_it
import pytest
import yaml
from mdit_py_plugins.anchors import anchors_plugin

from istio_integrator.messages import Template
from tests.unit.cases import cases

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/symptoms.md"
SYMPTOMS = yaml.safe_load((ROOT / "src/istio_integrator/diagnosis/symptoms.yaml").read_text())
"""What `diagnose` says of each symptom."""
CHECK, SAYS = "- Check:", "- Message:"
BESIDE = ("odd objects", "status")
"""What a report has besides its checks."""


def checks() -> Iterator[tuple[str, str]]:
    """Yield each check with what people see of it, as the generated page has them."""
    page = (ROOT / "docs/reference/checks.md").read_text()
    for row in page.partition("| --- |")[2].splitlines()[1:]:
        name, *_, seen = row.strip("| ").split(" | ")
        if name not in BESIDE:
            yield name, seen


def sections() -> Iterator[tuple[str, str]]:
    """Yield the anchor of each heading with the text below it."""
    text = PAGE.read_text()
    lines = text.splitlines()
    parser = markdown_it.MarkdownIt().use(anchors_plugin, max_level=6)
    starts = [
        (str(token.attrs["id"]), token.map[0])
        for token in parser.parse(text)
        if token.tag == "h2" and token.type == "heading_open" and token.map
    ]
    ends = [*(line for _, line in starts[1:]), len(lines)]
    for (anchor, start), end in zip(starts, ends, strict=True):
        yield anchor, "\n".join(lines[start:end])


def quoted(section: str, what: str) -> list[str]:
    """Read what an item of the section has between backticks."""
    item = re.search(rf"^{what}(.*(?:\n  .*)*)", section, re.MULTILINE)
    return re.findall(r"`([^`]+)`", " ".join(item[1].split())) if item else []


SECTIONS = dict(sections())


SEEN = dict(checks())
POINTS = {name: set(re.findall(r"symptoms\.md#([^)]+)", seen)) for name, seen in SEEN.items()}
"""The headings of each check."""


@pytest.mark.parametrize("name", SEEN)
def test_check_points_to_a_heading_or_says_why_there_is_none(name):
    assert bool(POINTS[name]) != bool(re.match("no symptom: .", SEEN[name]))
    assert POINTS[name] <= SECTIONS.keys()


@pytest.mark.parametrize("anchor", SECTIONS)
def test_heading_names_the_checks_that_point_to_it(anchor):
    pointing = {name for name, headings in POINTS.items() if anchor in headings}
    assert set(quoted(SECTIONS[anchor], CHECK)) - {"status"} == pointing
    assert pointing or f"{CHECK} none" in SECTIONS[anchor]


@pytest.mark.parametrize("said", [each for each in Template if each.value.symptom])
def test_heading_quotes_the_status_that_leads_to_it(said):
    quotes = quoted(SECTIONS[said.value.symptom], SAYS)
    assert any(is_quoted(quote, said.value.condition) for quote in quotes)


def is_quoted(quote: str, text: str) -> bool:
    """Tell whether a text has the parts of a quote, with anything in place of each `…`."""
    return re.search(".*".join(map(re.escape, quote.split("…"))), text) is not None


def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.syspath_prepend(ROOT / "docs")
    messages = runpy.run_path(str(ROOT / "docs/messages.py"))
    return [message.text for message in messages["all_of"](ROOT)]


def test_what_a_check_is_quoted_with_is_what_the_code_says(monkeypatch):
    texts = said(monkeypatch)
    unsaid = [
        quote
        for section in SECTIONS.values()
        for quote in quoted(section, SAYS)
        if not any(is_quoted(quote, text) for text in texts)
    ]
    assert sum(len(quoted(section, SAYS)) for section in SECTIONS.values()) > 30
    assert unsaid == []


def test_every_section_has_a_cause_and_most_a_command():
    assert [each for each, text in SECTIONS.items() if "- Cause" not in text] == []
    assert [each for each, text in SECTIONS.items() if "```console" not in text] == []


def test_what_diagnose_says_of_a_symptom_is_on_the_page():
    pointed = {*set[str]().union(*POINTS.values())}
    pointed |= {each.value.symptom for each in Template if each.value.symptom}
    assert SYMPTOMS.keys() == pointed
    for anchor, each in SYMPTOMS.items():
        text = " ".join(SECTIONS[anchor].replace("`", "").split())
        assert text.startswith(f"## {each['seen']} ")
        assert f"- Meaning: {each['meaning']} - Remedy: {each['remedy']} - Check:" in text


def first_hit(words: str) -> str:
    """Find words as grep does, without case, in README.md and then in pages: page and heading."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        heading = ""
        for line in page.read_text().splitlines():
            heading = line.lstrip("# ").replace("`", "") if line.startswith("#") else heading
            if words.lower() in line.lower():
                return f"{page.stem}: {heading}"
    return ""


@cases(
    ("words", "answer"),
    tfjob=("TFJob never completes", "1/2 NotReady"),
    trial=("Katib trial never completes", "1/2 NotReady"),
    step=("pipeline step stuck", "1/2 NotReady"),
    uninjected=("0/7 pods in mesh", "A pod without istio-proxy"),
    analyzed=("IST0102", "A pod without istio-proxy"),
    no_proxy=("is missing the Istio proxy", "A pod without istio-proxy"),
    upstream=("disconnect/reset before headers", "upstream connect error"),
    failed_connection=("503 UF", "upstream connect error"),
    retries=("503 URX", "upstream connect error"),
    terminated=("503 UC", "upstream connect error"),
    reset=("upstream_reset_before_response_started{connection", "upstream connect error"),
    unhealthy=("503 UH", "no healthy upstream"),
    no_cluster=("503 NC", "no healthy upstream"),
    no_route=("404 NR", "404 at the gateway"),
    logged=("404 NR route_not_found", "404 at the gateway"),
    page=("is not a valid page", "404 at the gateway"),
    notebook=("404 on notebook", "404 at the gateway"),
    denied_outside=("403 UAEX", "403 at the gateway"),
    logged_outside=("403 UAEX ext_authz_denied", "403 at the gateway"),
    token=("Jwt is missing", "403 at the gateway"),
    denied=("rbac_access_denied_matched_policy", "RBAC: access denied"),
    pending=("LoadBalancer pending", "Connection refused at the gateway"),
    browser=("ERR_CONNECTION_REFUSED", "Connection refused at the gateway"),
    port=("ERR_SSL_PROTOCOL_ERROR", "Connection refused at the gateway"),
    no_pods=("gateway has no pods", "Connection refused at the gateway"),
    loop=("login loop", "Login redirect loop"),
    redirects=("ERR_TOO_MANY_REDIRECTS", "Login redirect loop"),
    plain=("redirect to http", "Login redirect loop"),
    image=("ImagePullBackOff of the webhook", "failed calling webhook"),
    deadline=("context deadline exceeded", "failed calling webhook"),
    timeout=("webhook timeout", "failed calling webhook"),
    probe=("Readiness probe failed", "failed calling webhook"),
    quota=("exceeded quota", "denied the request"),
    init=("pod stuck Init", "An init container without network"),
    validation=("istio-validation", "An init container without network"),
    trust=("NET::ERR_CERT_AUTHORITY_INVALID", "x509: certificate signed by unknown authority"),
    certificate=("certificate not trusted", "x509: certificate signed by unknown authority"),
    rendezvous=("rendezvous timed out", "rendezvous timed out"),
    address=("MASTER_ADDR", "rendezvous timed out"),
    collective=("Watchdog caught collective operation timeout", "rendezvous timed out"),
    modeloperator=("modeloperator CrashLoop", "modeloperator in CrashLoopBackOff"),
    hook=("hook failed", "From what you see to the answer"),
)
def test_words_that_people_type_lead_to_their_answer(words, answer):
    assert first_hit(words) == f"symptoms: {answer}"


@cases(
    ("words", "answer"),
    istiods=("two istiods", "join-an-existing-istio: Several istiods"),
    undo=("undo", "clean-up: Clean up"),
    back=("roll back", "clean-up: Clean up"),
)
def test_words_about_other_tasks_lead_to_their_pages(words, answer):
    assert first_hit(words) == answer
