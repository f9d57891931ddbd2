"""Calls of a unit's agent about the secrets that it or its application owns."""

from typing import Any

from .calls import Call, CallError
from .state import Secret


def apply_secret_change(call: Call, change: dict[str, Any]) -> None:
    """Make one change of a hook's secrets real."""
    match change["change"]:
        case "add":
            _add(call, change)
        case "set":
            _set(_owned(call, change["secret"]), change)
        case _:
            _remove(call, _owned(call, change["secret"]), change["revision"])


def secret_content(
    call: Call, *, secret: str, label: str, refresh: bool, peek: bool
) -> dict[str, str]:
    """Return the content that the unit tracks, or the latest."""
    found = _find(call, secret, label)
    tracked = found.tracked.get(call.unit_name, found.latest)
    if refresh or tracked not in found.revisions:
        tracked = found.latest
    found.tracked[call.unit_name] = tracked
    call.touch()
    return found.revisions[found.latest if peek else tracked]


def secret_info(call: Call, *, secret: str, label: str) -> dict[str, Any]:
    """Return what the owner sees."""
    found = _find(call, secret, label)
    return {
        found.address.removeprefix("secret:"): {
            "revision": found.latest,
            "label": found.label,
            "owner": "unit" if "/" in found.owner else "application",
            "description": found.description,
            "rotation": found.rotate or "never",
            "expiry": found.expire or None,
            "access": [],
        }
    }


def secret_ids(call: Call) -> list[str]:
    """Secrets of the unit, and of its application where it leads."""
    owners = [call.unit_name, *([call.application.name] if call.is_leader else [])]
    secrets = call.model.secrets.values()
    return sorted(each.address.removeprefix("secret:") for each in secrets if each.owner in owners)


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
        revisions={1: change["content"]},
    )


def _set(secret: Secret, change: dict[str, Any]) -> None:
    for field in ("label", "description", "rotate", "expire"):
        if field in change:
            setattr(secret, field, change[field])
    content = change["content"]
    if content and content != secret.revisions[secret.latest]:
        secret.revisions[secret.latest + 1] = content


def _remove(call: Call, secret: Secret, revision: int) -> None:
    if revision:
        secret.revisions.pop(revision, None)
    if not revision or not secret.revisions:
        call.model.secrets.pop(secret.address, None)


def _find(call: Call, address: str, label: str) -> Secret:
    owners = (call.unit_name, call.application.name)
    for secret in call.model.secrets.values():
        is_meant = secret.address == address if address else label and secret.label == label
        if is_meant and secret.owner in owners:
            return secret
    raise CallError(f'secret "{address or label}" not found')


def _owned(call: Call, address: str) -> Secret:
    found = _find(call, address, "")
    if "/" not in found.owner:
        call.require_leader()
    return found


METHODS = {each.__name__: each for each in (secret_content, secret_info, secret_ids)}
