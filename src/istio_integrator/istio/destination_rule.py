"""Meaning of a DestinationRule's host."""


def find_service(host: str, namespace: str, model: str, domain: str) -> str:
    """Return the model's Service that a rule in a namespace names; `*`: all of them, empty: none.

    A short name means a Service in the rule's own namespace (istio.io, DestinationRule, host).
    """
    if host.startswith("*"):
        return "*" if f"x.{model}.svc.{domain}".endswith(host.removeprefix("*")) else ""
    host = host.removesuffix(f".svc.{domain}").removesuffix(".svc")
    name, dot, place = host.partition(".")
    return name if (place if dot else namespace) == model else ""
