"""The names in rbac/ are those that the charm gives."""

import json
import pathlib

import pytest
import yaml

from integrator_contract import names, namespaces
from istio_integrator.admission import webhook
from istio_integrator.asked import gateway
from istio_integrator.asked.gateways.own import ACCOUNT
from istio_integrator.diagnosis.checks import rights as needed_rights
from istio_integrator.kube import manifests
from tests import rights
from tests.unit.charm import fake_cluster
from tests.unit.charm.charm_world import state
from tests.unit.charm.diagnosis.world import add_pod, diagnose

MODEL, APP = "ai", "mesh"
OWNER = names.name_owner(MODEL, APP)
LISTS = {"list", "watch"}


class Nobody:
    """An API server that is not asked."""


def own_names() -> set[str]:
    """Every name that is known before an application is deployed."""
    own = manifests.Manifests(Nobody(), model=MODEL, application=APP)
    name = f"istio-integrator.{OWNER}"
    made = ("admission", "gateway")
    served = namespaces.Served(model=MODEL, owner=OWNER)
    kept = ("convergence",)
    return {
        name,
        f"{name}.https",
        f"{name}.training",
        f"{name}.tenants",
        *(f"{name}.tenants.{kind}" for kind, _ in served.as_selectors()),
        webhook.name_configuration(OWNER),
        *own.secrets.values(),
        *(names.name_object(APP, suffix) for suffix in (*made, *kept)),
        gateway.NAME,
        ACCOUNT,
        f"{MODEL}-{APP}",
        MODEL,
    }


def needs() -> list[needed_rights.Right]:
    roles = needed_rights.read_roles(rights.roles(MODEL, APP), model=MODEL, application=APP)
    return needed_rights.list_rights(roles, model=MODEL)


def limits() -> dict:
    found, _ = yaml.safe_load_all(rights.admission_policy(MODEL, APP))
    return {each["name"]: each["expression"] for each in found["spec"]["variables"]}


def test_roles_name_everything_that_the_charm_makes_and_nothing_else():
    assert {need.name for need in needs() if need.name} == own_names() | {"istio"}


WITHOUT_NAMES = {
    # Made by POST, when the API server does not ask for a name.
    "create pods",
    "create pods/eviction",
    "create configmaps",
    "create events",
    # Others' pods, Events about them, and namespaces: nobody knows their names before.
    "create pods/portforward",
    "create pods/exec",
    "patch pods",
    "delete pods",
    "patch namespaces",
    # Copies of what tenants have, by dry run.
    "create gateways.networking.istio.io",
    "create gateways.gateway.networking.k8s.io",
    "create grpcroutes.gateway.networking.k8s.io",
    # Named after relations, Services and workloads.
    *(
        f"{verb} {resource}"
        for verb in ("create", "patch", "delete")
        for resource in (
            *("virtualservices.networking.istio.io", "destinationrules.networking.istio.io"),
            "httproutes.gateway.networking.k8s.io",
            "authorizationpolicies.security.istio.io",
            "peerauthentications.security.istio.io",
        )
    ),
}


def test_every_right_is_used_by_a_test():
    """Each functional one fails unless the API server's audit log has a request by the right."""
    given = {(each.role, each.target, each.verb) for each in rights.grants()}
    assert rights.tests_by_right().keys() == given
    text = "".join(file.read_text() for file in pathlib.Path("tests").glob("*/test_*.py"))
    assert [
        test for test in {*rights.tests_by_right().values()} if f"def {test}(" not in text
    ] == []


def test_every_right_to_change_something_is_for_names_of_ours_but_these():
    changes = {need.text for need in needs() if need.verb not in {*LISTS, "get"} and not need.name}
    assert changes == WITHOUT_NAMES


def test_no_role_lists_secrets_but_the_gateways_and_none_gets_all_of_them():
    secrets = [need for need in needs() if need.resource == "secrets" and not need.name]
    assert [(need.verb, need.namespace, need.role) for need in secrets] == [
        ("list", MODEL, f"{APP}-own-gateway")
    ]


def test_without_the_optional_roles_nothing_is_executed_and_no_other_pod_is_changed():
    """The oldest peer may execute in, delete and patch every pod, and does not need to."""
    given = [need for need in needs() if not need.role.endswith(("-exec", "-replace"))]
    assert not {"*", "pods/exec", "pods/attach"} & {need.resource for need in given}
    changes = [
        need for need in given if need.resource == "pods" and need.verb not in {*LISTS, "get"}
    ]
    assert {need.role for need in changes} == {f"{APP}-model"}
    assert "delete" not in {need.verb for need in changes}


def test_policy_and_roles_speak_of_the_same_names():
    named: dict[str, set[str]] = {}
    for need in needs():
        if need.name and need.verb in ("create", "update", "patch", "delete"):
            kind = f"{need.resource}.{need.group}" if need.group else need.resource
            named.setdefault(kind, set()).add(need.name)
    # Namespaces are not ours, and Kubernetes lets no policy be about policies.
    policies = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    for kind in ("namespaces", *(f"{each}.admissionregistration.k8s.io" for each in policies)):
        named.pop(kind, None)
    said = {kind: set(names) for kind, names in json.loads(limits()["own"]).items()}
    said["services"] = set(json.loads(limits()["ownServices"]))
    assert said == named


@pytest.mark.parametrize("file", ["roles", "admission_policy"])
def test_names_in_the_files_are_replaced_everywhere(file):
    text = getattr(rights, file)(MODEL, APP)
    said = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert "MODEL" not in said
    assert "APPLICATION" not in said


@pytest.mark.parametrize(("model", "application"), [("m" * 31, "a" * 31), ("m", "a" * 49)])
def test_longest_names_that_are_not_cut_are_those_that_the_page_says(model, application):
    owner = names.name_owner(model, application)
    own = manifests.Manifests(Nobody(), model=model, application=application)
    objects = {*own.secrets.values(), names.name_object(application, "admission-tls")}
    assert owner == f"{model}.{application}"
    assert objects == {
        f"istio-integrator.{owner}",
        f"{application}-record",
        f"{application}-admission-tls",
    }


def test_every_optional_role_is_known_by_the_end_of_its_name():
    roles = yaml.safe_load_all(pathlib.Path("rbac/roles.yaml").read_text())
    ends = {f"-{role['metadata']['name'].rpartition('-')[2]}" for role in roles}
    assert ends - {"-mesh", "-model", "-proxies"} == needed_rights.OPTIONAL.keys()


def test_page_says_of_every_role_what_it_amounts_to():
    page = pathlib.Path("docs/how-to/without-trust.md").read_text()
    _, amounts = page.split("## What the roles amount to")
    ends = {need.role.removeprefix(f"{MODEL}-").removeprefix(APP) for need in needs()}
    assert {end for end in ends if f"| `{end}` |" not in amounts} == set()
    optional = {f"| `{end}` |" for end in needed_rights.OPTIONAL if end != "-gateway"}
    assert {end for end in optional if end not in page} == set()


def test_diagnose_reads_with_its_role_what_checks_need_without_any_option(ctx, fake):
    fake_cluster.install_istio(fake)
    of_options = tuple(end for end in needed_rights.OPTIONAL if end != "-diagnose")
    given, missing = set(), set()
    for need in needs():
        role = missing if need.role.endswith(of_options) else given
        role.add((need.verb, need.resource, need.namespace))
    fake.forbidden |= missing - given
    add_pod(fake, "bare-0", containers=["main"])
    diagnose(ctx, "", state(tenant_policy="off", pod_networks="none"))
    assert "CHECK_FORBIDDEN" not in ctx.action_results["report"]
