"""Write docs/reference from the sources that hold the truth.

Usage: python docs/generate.py [--check]   (--check: say what differs, change nothing, exit 1)
"""

from __future__ import annotations

import functools
import pathlib
import re
import sys
import textwrap
from typing import Any

import alerts
import compatibility
import installations
import messages
import options
import program
import tables
import terraform_module
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent


def configuration() -> str:
    """Describe the options of `juju config`."""
    known: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "config.yaml").read_text())
    pods = options.pods(known["options"])
    sections = [
        f"## {name}\n\n{option['type']}, default {tables.value(option['default'])}\n\n"
        f"{option['description'].strip()}\n" + (f"\nPods: {pods[name]}.\n" if pods[name] else "")
        for name, option in known["options"].items()
    ]
    return (
        "# Configuration\n\n"
        "You can set options with `juju config istio-integrator OPTION=VALUE`. Each takes effect\n"
        "at once. If a value is wrong, the unit is Blocked and names the option, and the cluster\n"
        "does not change until you correct it. You need the first five for a first deployment.\n\n"
        "The line *Pods* names the pods that an option affects. *New pods* are those of served\n"
        "namespaces when they are created: running pods keep what they have. No option replaces\n"
        "a notebook or a pod without an owner.\n\n" + "\n".join(sections)
    )


def actions() -> str:
    """Describe the actions of `juju run`."""
    known: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "actions.yaml").read_text())
    sections: list[str] = []
    for name, action in sorted(known.items()):
        parameters = action.get("params", {})
        rows = [
            (f"`{key}`", value["type"], tables.value(value.get("default")), value["description"])
            for key, value in parameters.items()
        ]
        body = tables.table(("parameter", "type", "default", "meaning"), rows) if rows else ""
        sections.append(f"## {name}\n\n{action['description'].strip()}\n\n{body}".rstrip() + "\n")
    head = "# Actions\n\nRun with `juju run istio-integrator/leader ACTION [PARAMETER=VALUE]`.\n\n"
    return head + "\n".join(sections)


def access() -> str:
    """Describe the files of rbac/: each right with its reason."""
    sections: list[str] = []
    files = ("roles.yaml", "gateway-namespace.yaml")
    documents = [part for file in files for part in _shipped(file).split("\n---\n")]
    for document in documents:
        role: dict[str, Any] = yaml.safe_load(document)
        if "rules" not in role:
            continue
        meta = role["metadata"]
        where = f", in `{meta['namespace']}`" if "namespace" in meta else ""
        rules = zip(_reasons(document), role["rules"], strict=True)
        listed = [
            f"{reason}- {_resources(rule)}: {', '.join(rule['verbs'])}\n" for reason, rule in rules
        ]
        sections.append(f"## {meta['name']}\n\n{role['kind']}{where}\n{''.join(listed)}")
    head = (
        "# Access\n\nThe rights of `rbac/roles.yaml` and, last, `rbac/gateway-namespace.yaml`, "
        "for an application\n`istio-integrator` in the model `kubeflow` and the gateway "
        "`istio-ingress/istio-ingressgateway`.\n`juju trust` gives all of them and more. See "
        "[Deploy without `--trust`](../how-to/without-trust.md).\n"
    )
    return "\n".join([head, *sections, _limits()])


def _limits() -> str:
    """Describe what rbac/admission-policy.yaml leaves of the rights, by its own messages."""
    policy = next(yaml.safe_load_all(_shipped("admission-policy.yaml")))
    said = [f"- {each['message']}\n" for each in policy["spec"]["validations"]]
    head = (
        f"## {policy['metadata']['name']}\n\n{policy['kind']}, in `rbac/admission-policy.yaml`, "
        "for administrators who want it\n\n"
    )
    return head + "".join(said)


def _shipped(file: str) -> str:
    """Read a file of rbac/ with the names that its head gives as an example."""
    text = (ROOT / "rbac" / file).read_text()
    for placeholder, name in (
        ("MODEL", "kubeflow"),
        ("APPLICATION", "istio-integrator"),
        ("NAMESPACE", "istio-ingress"),
        ("SERVICE", "istio-ingressgateway"),
    ):
        text = text.replace(placeholder, name)
    return text


def _resources(rule: dict[str, Any]) -> str:
    names = [
        f"`{resource}.{group}`" if group else f"`{resource}`"
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]
    only = rule.get("resourceNames")
    return ", ".join(names) + (f" named {', '.join(f'`{name}`' for name in only)}" if only else "")


def _reasons(document: str) -> list[str]:
    """Take the comment above each rule as a paragraph; it is also that of rules without one."""
    reasons: list[str] = []
    comment: list[str] = []
    for line in document[document.index("\nrules:") :].splitlines():
        if line.startswith("# "):
            comment.append(line.removeprefix("# "))
        elif line.startswith("- apiGroups"):
            reasons.append(f"\n{' '.join(comment)}\n\n" if comment else "")
            comment = []
    if reasons[:1] == [""]:
        raise ValueError(f"rbac: no comment says why:{document}")
    return reasons


def checks() -> str:
    """Describe what the action `diagnose` looks at, as each check says it of itself."""
    from istio_integrator.diagnosis import checks, report  # noqa: PLC0415  (needs src/ on the path)

    known = [
        (
            each.name,
            str(each.find.__doc__).removesuffix(".")
            + (". The leader does so at every event" if each.feeds_status else ""),
            ", ".join(
                f"[{report.read_symptoms()[anchor]['seen']}](../how-to/symptoms.md#{anchor})"
                for anchor in each.symptoms
            )
            or f"no symptom: {each.unfelt}",
        )
        for each in checks.list_checks().values()
    ]
    beside = [
        (
            report.ODD_OBJECTS,
            "Name the objects that cannot be read and that the other checks ignore",
            "",
        ),
        (report.STATUS, "Repeat the problems of the unit's status that no check reports", ""),
    ]
    return (
        "# Checks\n\n"
        "The checks of `juju run istio-integrator/leader diagnose`, in the order of its report.\n"
        "[Find out why it is not working](../how-to/debug.md) shows how to read it.\n\n"
        + tables.table(
            ("check", "what it does", "what people see of it"),
            [*known, *beside],
        )
    )


def symptoms() -> str:
    """Return the page of symptoms with the two lines that `diagnose` prints of each."""
    from istio_integrator.diagnosis import report  # noqa: PLC0415  (needs src/ on the path)

    known = {each["seen"]: each for each in report.read_symptoms().values()}
    head, *sections = (ROOT / "docs/how-to/symptoms.md").read_text().split("\n## ")
    for number, section in enumerate(sections):
        each = known.get(section.partition("\n")[0].replace("`", ""))
        if each is not None:
            lines = [
                textwrap.fill(f"- {key.capitalize()}: {each[key]}", 104, subsequent_indent="  ")
                for key in ("meaning", "remedy")
            ]
            told = "\n".join([*lines, "- Check:"])
            sections[number] = re.sub(
                r"(?:^- Meaning:.*?\n)?^- Check:",
                lambda _, told=told: told,
                section,
                count=1,
                flags=re.DOTALL | re.MULTILINE,
            )
    return "\n## ".join([head, *sections])


def relations() -> str:
    """Return docs/reference/relations.md with the endpoints of metadata.yaml in its table."""
    metadata = yaml.safe_load((ROOT / "metadata.yaml").read_text())
    rows = [
        (
            f"`{name}`",
            f"{side} `{endpoint['interface']}`{_form(endpoint)}",
            endpoint["description"],
        )
        for side in ("provides", "requires", "peers")
        for name, endpoint in metadata[side].items()
    ]
    listed = tables.table(("endpoint", "side, interface", "what for"), rows)
    text = (ROOT / "docs/reference/relations.md").read_text()
    return re.sub(r"\| endpoint \|.*\n(?:\|.*\n)+", lambda _: listed, text, count=1)


def _form(endpoint: dict[str, Any]) -> str:
    """Say how an endpoint's data are written, and how many relations it takes."""
    versions = ", ".join(endpoint.get("versions", ()))
    written = f" (serialized-data-interface {versions})" if versions else ""
    return written + (", one" if endpoint.get("limit") == 1 else "")


def istio_installations() -> str:
    """Describe what the charm makes of each installation of Istio."""
    return installations.page(ROOT)


def all_alerts() -> str:
    """Describe what Prometheus tells people of, and what they do about it."""
    return alerts.page(ROOT)


def all_messages() -> str:
    """List the messages of the status and of diagnose."""
    return messages.page()


def readme() -> str:
    """Return README.md with the versions of the pins in its table, and the public addresses."""
    claimed = compatibility.table(ROOT)
    text = (ROOT / "README.md").read_text()
    text = re.sub(r"\|  \| tried \|.*\n(?:\|.*\n)+", lambda _: claimed, text, count=1)
    found = contact(yaml.safe_load((ROOT / "metadata.yaml").read_text()))
    return re.sub(
        r"(## Contact\n\n).*?\n(?=\nLicensed)", lambda each: each[1] + found, text, flags=re.DOTALL
    )


def contact(metadata: dict[str, Any]) -> str:
    """List the public addresses of metadata.yaml, or say that there is none yet."""
    known = {
        "issues": "Report a problem or ask a question",
        "source": "Source",
        "docs": "Documentation",
        "website": "Charmhub",
    }
    lines = [f"- {what}: <{metadata[key]}>\n" for key, what in known.items() if metadata.get(key)]
    return "".join(lines) or (
        "The project is not published yet: it has no public address for issues, source or\n"
        "documentation. They will be listed here.\n"
    )


def istio_versions() -> str:
    """Return the page of Istio's versions with the profiles that tests run."""
    return compatibility.istio_versions(ROOT)


def versioned(name: str) -> str:
    """Return a file with the product's version, which the workload has, on its line for it."""
    from sidecar_lifecycle import __version__  # noqa: PLC0415  (needs workload/ on the path)

    text = (ROOT / name).read_text()
    return re.sub(r'^(version(?: =|:) )".*"$', rf'\g<1>"{__version__}"', text, flags=re.MULTILINE)


PAGES = {
    "README.md": readme,
    "docs/how-to/symptoms.md": symptoms,
    "docs/reference/access.md": access,
    "docs/reference/alerts.md": all_alerts,
    "docs/reference/checks.md": checks,
    "docs/reference/messages.md": all_messages,
    "docs/reference/istio-installations.md": istio_installations,
    "docs/reference/istio-versions.md": istio_versions,
    "docs/reference/relations.md": relations,
    "docs/reference/configuration.md": configuration,
    "docs/reference/actions.md": actions,
    "docs/reference/command-line.md": program.command_line,
    "docs/reference/metrics.md": program.metrics,
    "terraform/README.md": lambda: terraform_module.readme(ROOT / "terraform"),
    "terraform/product/README.md": lambda: terraform_module.readme(ROOT / "terraform/product"),
    "terraform/variables.tf": lambda: terraform_module.variables(ROOT),
    "terraform/outputs.tf": lambda: terraform_module.outputs(ROOT),
    **{
        name: functools.partial(versioned, name)
        for name in ("pyproject.toml", "workload/rockcraft.yaml")
    },
}


def main() -> int:
    """Write the pages, or with `--check` compare them."""
    sys.path[:0] = [str(ROOT / folder) for folder in ("", "src", "lib", "workload")]
    import testbed.command_line  # noqa: PLC0415  (needs the project on the path)

    parser = testbed.command_line.parser(
        "docs/generate.py",
        "Write docs/reference and other lists from the sources that hold the truth.",
        "python docs/generate.py",
        "python docs/generate.py --check",
    )
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 on change")
    check = parser.parse_args().check
    stale = [name for name, page in PAGES.items() if not _is_current(name, page())]
    for name in stale:
        if not check:
            (ROOT / name).write_text(PAGES[name]())
        print(f"{name} {'differs: run make docs' if check else 'written'}")
    return 1 if check and stale else 0


def _is_current(name: str, text: str) -> bool:
    path = ROOT / name
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
