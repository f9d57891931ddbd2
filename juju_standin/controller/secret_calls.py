"""Calls of a unit's agent about secrets."""

from typing import Any

from .calls import Call, CallError
from .state import Revision, Secret


def apply_secret_change(call: Call, change: dict[str, Any]) -> None:
    """Make one change of a hook's secrets real."""
    match change["change"]:
        case "add":
            _add(call, change)
        case "set":
            _set(call, _owned(call, change["secret"]), change)
        case "remove":
            _remove(call, _owned(call, change["secret"]), change["revision"])
        case "grant":
            grants = _owned(call, change["secret"]).grants
            grants.extend({change["target"]} - set(grants))
        case _:
            secret = _owned(call, change["secret"])
            secret.grants = [target for target in secret.grants if target != change["target"]]


def secret_content(
    call: Call, *, secret: str, label: str, refresh: bool, peek: bool
) -> dict[str, str]:
    """The content that the unit tracks, or the latest."""
    found = _find(call, secret, label)
    owner_is_us = found.owner in (call.unit_name, call.application.name)
    if not owner_is_us and not {call.unit_name, call.application.name} & set(found.grants):
        raise CallError("permission denied")
    tracked = found.consumers.setdefault(call.unit_name, {"revision": found.latest, "label": ""})
    if label and secret and not owner_is_us:
        tracked["label"] = label
    if refresh or tracked["revision"] not in found.revisions:
        tracked["revision"] = found.latest
    call.touch()
    return found.revisions[found.latest if peek else tracked["revision"]].content


def secret_info(call: Call, *, secret: str, label: str) -> dict[str, Any]:
    """What the owner sees."""
    found = _find(call, secret, label)
    if found.owner not in (call.unit_name, call.application.name):
        raise CallError(f'secret "{found.address}" not found')
    return {
        found.address.removeprefix("secret:"): {
            "revision": found.latest,
            "label": found.label,
            "owner": "unit" if "/" in found.owner else "application",
            "description": found.description,
            "rotation": found.rotate or "never",
            "expiry": found.expire or None,
            "access": [{"target": target, "role": "view"} for target in found.grants],
        }
    }


def secret_ids(call: Call) -> list[str]:
    """Secrets of the unit, and of its application where it leads."""
    owners = {call.unit_name} | ({call.application.name} if call.is_leader else set())
    return sorted(
        secret.address.removeprefix("secret:")
        for secret in call.model.secrets.values()
        if secret.owner in owners
    )


def secret_event_done(call: Call, *, kind: str, secret: str) -> None:
    """The hook about a secret has run."""
    call.unit.secret_events = [
        event
        for event in call.unit.secret_events
        if (event["kind"], event["secret"]) != (kind, secret)
    ]
    call.touch()


def _add(call: Call, change: dict[str, Any]) -> None:
    owner = call.unit_name if change["owner"] == "unit" else call.application.name
    label = change.get("label", "")
    if label and any(s.owner == owner and s.label == label for s in call.model.secrets.values()):
        raise CallError(f'secret with label "{label}" already exists')
    call.model.secrets[change["secret"]] = Secret(
        address=change["secret"],
        owner=owner,
        label=label,
        description=change.get("description", ""),
        rotate=change.get("rotate", ""),
        expire=change.get("expire", ""),
        revisions={1: Revision(change["content"])},
    )


def _set(call: Call, secret: Secret, change: dict[str, Any]) -> None:
    for field in ("label", "description", "rotate", "expire"):
        if field in change:
            setattr(secret, field, change[field])
    content = change["content"]
    if not content or content == secret.revisions[secret.latest].content:
        return
    secret.revisions[secret.latest + 1] = Revision(content)
    for name, tracked in secret.consumers.items():
        unit = call.model.unit(name)
        owned = secret.owner in (name, name.rpartition("/")[0])
        event = {
            "kind": "secret-changed",
            "secret": secret.address,
            "label": tracked["label"],
        }
        if unit and not owned and event not in unit.secret_events:
            unit.secret_events.append(event)


def _remove(call: Call, secret: Secret, revision: int) -> None:
    if revision:
        secret.revisions.pop(revision, None)
    if not revision or not secret.revisions:
        call.model.secrets.pop(secret.address, None)


def _find(call: Call, address: str, label: str) -> Secret:
    if address in call.model.secrets:
        return call.model.secrets[address]
    if not address and label:
        for secret in call.model.secrets.values():
            owned = secret.owner in (call.unit_name, call.application.name)
            tracked = secret.consumers.get(call.unit_name, {})
            if (owned and secret.label == label) or tracked.get("label") == label:
                return secret
    raise CallError(f'secret "{address or label}" not found')


def _owned(call: Call, address: str) -> Secret:
    found = _find(call, address, "")
    if found.owner not in (call.unit_name, call.application.name):
        raise CallError(f'secret "{address}" not found')
    if "/" not in found.owner:
        call.require_leader()
    return found


METHODS = {
    function.__name__: function
    for function in (secret_content, secret_info, secret_ids, secret_event_done)
}
