"""The injectors' webhook configurations, as Istio's own charts render them."""

from typing import Any

from tests.unit.charm.objects import make


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Tell whether a selector of the API server holds for labels."""
    for expression in selector.get("matchExpressions", ()):
        value = labels.get(expression["key"])
        held = {
            "In": value in expression.get("values", ()),
            "NotIn": value not in expression.get("values", ()),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[expression["operator"]]
        if not held:
            return False
    return True


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    expression: dict[str, Any] = {"key": key, "operator": operator}
    return {**expression, "values": list(values)} if values else expression


def configuration(name: str, revision: str, tag: str, namespace: str) -> dict[str, Any]:
    """Write the configuration of a revision, or of a tag of it."""
    service = f"istiod-{revision}" if revision else "istiod"
    label = tag or revision or "default"
    injection, rev, inject = "istio-injection", "istio.io/rev", "sidecar.istio.io/inject"
    none = (_expression(rev, "DoesNotExist"), _expression(injection, "DoesNotExist"))
    wanted = _expression(inject, "NotIn", "false")
    hooks = [
        (
            "rev.namespace.",
            (_expression(rev, "In", label), _expression(injection, "DoesNotExist")),
            (wanted,),
        ),
        ("rev.object.", none, (wanted, _expression(rev, "In", label))),
    ]
    if label == "default":
        hooks += [
            ("namespace.", (_expression(injection, "In", "enabled"),), (wanted,)),
            ("object.", none, (_expression(inject, "In", "true"), none[0])),
        ]
    labels = {"app": "sidecar-injector", "istio.io/rev": revision or "default"}
    return make(
        "MutatingWebhookConfiguration",
        name,
        "",
        labels={**labels, **({"istio.io/tag": tag} if tag else {})},
        webhooks=[
            {
                "name": f"{prefix}sidecar-injector.istio.io",
                "clientConfig": {
                    "service": {"name": service, "namespace": namespace, "path": "/inject"}
                },
                "namespaceSelector": {"matchExpressions": list(namespaces)},
                "objectSelector": {"matchExpressions": list(pods)},
            }
            for prefix, namespaces, pods in hooks
        ],
    )


def install_remote(
    cluster: Any,
    *,
    url: str = "https://istiod.example:15017/inject",
    revision: str = "",
    tag: str = "",
    name: str = "",
    **behaviour: Any,
) -> None:
    """Install what the remote profile renders for an injector by URL; the istiod is elsewhere."""
    suffix = f"-{revision}" if revision else ""
    written = configuration(name or f"istio-sidecar-injector{suffix}", revision, tag, "")
    for hook in written["webhooks"]:
        hook["clientConfig"] = {"url": url}
    cluster.add(written)
    cluster.remote[url] = {"alive": True, "revision": revision or "default", **behaviour}
