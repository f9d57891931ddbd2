"""What a step of the demo or of the end-to-end tests works with, and how it says what it saw."""

import contextlib
import dataclasses
from collections.abc import Awaitable, Iterable, Iterator
from typing import TypeVar

from testbed import kubernetes
from testbed.kit import clusters, istiod, juju, objects, observer, timeline, workloads

T = TypeVar("T")

MARKS = {"note": "·", "seen": "✓", "failed": "✗", "missed": "!"}
"""How a line begins: an action, an observation, an observed failure, and what was not observed."""


@dataclasses.dataclass
class Stage:
    """A cluster, the charm's Juju, and who watches; what is said goes to standard output."""

    kind: clusters.Kind
    api: kubernetes.Api
    juju: juju.Juju
    charms: clusters.Charms
    observer: observer.Observer
    # Objects of the cluster before the charm, for the comparison at the end.
    before: objects.Snapshot = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.istiod = istiod.Istiod(self.api)

    @property
    def model(self) -> str:
        """The model's namespace."""
        return self.juju.model

    @property
    def image(self) -> str:
        """Reference of the application image on the node."""
        return self.charms.payload_image

    @property
    def classic(self) -> workloads.Labels:
        """Annotations that ask for a classic sidecar where istiod would make a native one."""
        return workloads.CLASSIC if self.kind.native else {}

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Say what the block is about."""
        print(f"\n{title}", flush=True)
        yield

    def say(self, kind: str, text: str) -> None:
        """Say one line, of a kind that has a mark."""
        print(f"{self.observer.now:7.1f} s  {MARKS[kind]} {text}", flush=True)

    def figure(self, name: str, value: str) -> None:
        """Say a measured value."""
        self.note(f"{name}: {value}")

    def chart(
        self,
        title: str,
        pods: Iterable[timeline.PodLine],
        start: float,
        marks: Iterable[tuple[float, str]] = (),
    ) -> None:
        """Draw what the pods did from the start until now, where there is something to draw on."""

    def note(self, text: str) -> None:
        """Say what is being done."""
        self.say("note", text)

    def seen(self, text: str) -> None:
        """Say what was observed."""
        self.say("seen", text)

    def failed(self, text: str) -> None:
        """Say which failure of a job was observed."""
        self.say("failed", text)

    async def expect(self, text: str, waiting: Awaitable[T]) -> T:
        """Wait for something, and say that it was observed."""
        result = await waiting
        self.seen(text)
        return result

    def require(self, text: str, condition: object) -> None:
        """Observe what must be true right now."""
        if not condition:
            raise observer.NotObserved(f"not so: {text}")
        self.seen(text)

    def pods_of(self, application: str, namespace: str = "") -> list[timeline.PodLine]:
        """An application's pods that stay, in the model unless a namespace is given."""
        pods = self.observer.timeline.select(namespace or self.model, prefix=f"{application}-")
        return [pod for pod in pods if not pod.is_going]

    def is_ready(self, application: str, namespace: str = "", *, in_mesh: bool = False) -> bool:
        """Whether all of an application's pods are Ready, and have a sidecar if they must."""
        pods = self.pods_of(application, namespace)
        return bool(pods) and all(pod.is_ready and (pod.proxy or not in_mesh) for pod in pods)
