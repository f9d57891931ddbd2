"""What can go wrong in the charm, each with what the operator needs to know."""

from __future__ import annotations

from integrator_contract import refusals


class CharmError(Exception):
    """Base of every error that the charm turns into a status."""


class ConfigError(CharmError):
    """Options that do not follow their grammar.

    Args:
        problems: One line per option, naming the option, the value and what is accepted.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class ApiError(CharmError):
    """The API server refused a request."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")

    @property
    def is_about_the_object(self) -> bool:
        """Whether what an object says is refused, by a webhook (400) or by its schema (422)."""
        return self.code in (400, 422)


class ForbiddenError(ApiError):
    """The authorizer denies the charm a request: a missing right."""


class RefusedError(ApiError):
    """Admission control refused an object: a webhook, a policy, a quota or an admission plugin."""

    def __init__(
        self, code: int, message: str, refusal: refusals.Refusal, reference: str = ""
    ) -> None:
        super().__init__(code, message)
        self.refusal = refusal
        self.reference = reference

    def __str__(self) -> str:
        """Name the object, who refused it, and why."""
        return f"{self.reference}: {self.refusal}" if self.reference else str(self.refusal)

    @property
    def is_about_the_object(self) -> bool:
        """Whether the refusal is about what the object says, whatever code its author chose."""
        return not self.refusal.is_unreachable


class ConflictError(ApiError):
    """Somebody else changed the object between our reading and our writing it."""


class InvalidError(ApiError):
    """The API server does not accept what an object says."""


class KindAbsentError(ApiError):
    """The API server does not serve this kind: a CRD is missing or an API is switched off."""


class UnreachableError(CharmError):
    """The API server did not answer."""


class GarbledError(UnreachableError):
    """The API server answered something that can't be read."""


class TooDeepError(GarbledError):
    """The API server answered something that nests more than a decoder can follow."""


class ForeignError(CharmError):
    """An object that the charm needs exists and belongs to somebody else.

    Args:
        reference: Kind and name, with the namespace where there is one.
        owner: What the object's labels say about its owner, empty when they say nothing.
    """

    def __init__(self, reference: str, owner: str = "") -> None:
        self.reference = reference
        self.owner = owner
        self.belongs = f"belongs to {owner}" if owner else "was not made by this charm"
        super().__init__(f"{reference} exists and {self.belongs}")


class LifecycleError(CharmError):
    """The workload did not answer a question, or answered it with an error."""
