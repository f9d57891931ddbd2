"""What an API server that just started answers to new pods, with a policy and without.

kube-apiserver is killed and comes back, several times. From then on dry-run pods are sent without
a pause, to a namespace that the policy matches and to one that it does not, and /readyz is asked.
All times count from the first answer of /readyz that says ready.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import pathlib
import statistics
import sys
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / each) for each in (".", "src", "lib", "workload")]

import lightkube  # noqa: E402
from lightkube.config.kubeconfig import KubeConfig  # noqa: E402

from istio_integrator.admission import policy  # noqa: E402
from istio_integrator.kube import cluster, errors, manifests  # noqa: E402
from testbed import cluster as testbed_cluster  # noqa: E402
from testbed import command_line  # noqa: E402
from tests.functional import admission_cases as table  # noqa: E402
from tests.functional import admission_world  # noqa: E402

SECONDS = 15.0
"""From the kill to the end of a look; the server is ready after some five."""
MATCHED, OTHER = "matched", "other"


@dataclasses.dataclass
class Answers:
    """When a namespace's pods were answered how, in one start."""

    refused: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    created: list[float] = dataclasses.field(default_factory=list)
    untouched: list[float] = dataclasses.field(default_factory=list)
    """Created as if there were no policy."""


def _ask(api: cluster.Cluster, namespace: str, end: float) -> Answers:
    pod = table.Case(id="").pod(namespace)
    answers = Answers()
    while (now := time.monotonic()) < end:
        try:
            created = api.create(pod, dry_run=True)
        except errors.ApiError as error:
            answers.refused.append((now, f"{error.code} {error.message[:60]}"))
        except errors.UnreachableError:
            pass
        else:
            answers.created.append(now)
            if table.APPLIED not in cluster.at(created, "metadata", "annotations"):
                answers.untouched.append(now)
        time.sleep(0.01)
    return answers


def _ready_at(api: cluster.Cluster, end: float) -> float:
    while time.monotonic() < end:
        with contextlib.suppress(Exception):
            answer = api.client._client._client.get("/readyz")  # noqa: SLF001 - only here
            if answer.status_code == 200:
                return time.monotonic()
        time.sleep(0.005)
    raise TimeoutError("the API server did not come back")


def _start(testbed: testbed_cluster.Testbed) -> dict[str, object]:
    with contextlib.ExitStack() as stack:
        config = KubeConfig.from_file(testbed.kubeconfig).get()
        apis = [
            cluster.Cluster(stack.enter_context(lightkube.Client(config=config))) for _ in range(3)
        ]
        testbed.restart("kube-apiserver")
        end = time.monotonic() + SECONDS
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            ready = pool.submit(_ready_at, apis[0], end)
            asked = {
                name: pool.submit(_ask, api, name, end)
                for name, api in zip((MATCHED, OTHER), apis[1:], strict=True)
            }
            return {"ready": ready.result()} | {n: one.result() for n, one in asked.items()}


@contextlib.contextmanager
def _policy(api: cluster.Cluster, version: str) -> Iterator[None]:
    owner = manifests.Manifests(api, model=MATCHED, application=table.APPLICATION)
    wanted = admission_world.wanted("hold", MATCHED)
    namespaces = policy.namespace_selectors(MATCHED, ())
    context = policy.context(wanted, namespaces, owner=owner.owner, version=version)
    owner.apply(policy.FOLDER, context)
    yield
    owner.remove(policy.FOLDER)


def _report(starts: list[dict[str, object]], *, has_policy: bool) -> None:
    print("with the policy" if has_policy else "without a policy")
    for name in (MATCHED, OTHER):
        counts, windows, words = [], [], collections.Counter()
        for start in starts:
            answers, ready = start[name], start["ready"]
            assert isinstance(answers, Answers)
            assert isinstance(ready, float)
            counts.append(len(answers.refused))
            words.update(text for _, text in answers.refused)
            if answers.refused:
                last = max(at for at, _ in answers.refused)
                windows.append(last - ready)
        shown = ", ".join(f"{one:+.2f}" for one in windows) or "none"
        first = statistics.median(min(start[name].created) - start["ready"] for start in starts)
        print(f"  {name:8} refusals {counts}; the last of them, s after ready: {shown}")
        print(f"  {'':8} first pod created {first:+.2f} s after ready (median)")
        untouched = [len(start[name].untouched) for start in starts]
        last = [
            max([0.0, *(at - start["ready"] for at in start[name].untouched)]) for start in starts
        ]
        if name == MATCHED and has_policy:
            late = ", ".join(f"{one:+.2f}" for one in last)
            print(f"  {'':8} untouched {untouched}; the last of them, s after ready: {late}")
        for text, count in words.most_common(4):
            print(f"  {'':8} {count:5} x {text}")


def main() -> None:
    """Print what was answered."""
    parser = command_line.parser(
        "bench/bench_admission_restart.py",
        __doc__,
        "python bench/bench_admission_restart.py --starts 2",
    )
    parser.add_argument("--starts", type=int, default=5, help="of each kind")
    parser.add_argument("--kubernetes", default="", help="an older apiserver", metavar="MINOR")
    arguments = parser.parse_args()
    testbed = testbed_cluster.Testbed("bench-admission-restart")
    wanted = testbed_cluster.Options(control_plane_only=True, kubernetes=arguments.kubernetes)
    testbed.up(wanted)
    try:
        config = KubeConfig.from_file(testbed.kubeconfig).get()
        with lightkube.Client(config=config) as client:
            api = cluster.Cluster(client)
            for name in (MATCHED, OTHER):
                metadata = {"name": name}
                api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            time.sleep(3)
            starts = [_start(testbed) for _ in range(arguments.starts)]
            _report(starts, has_policy=False)
            with _policy(api, "v1beta1" if arguments.kubernetes else "v1"):
                time.sleep(3)
                starts = [_start(testbed) for _ in range(arguments.starts)]
            _report(starts, has_policy=True)
    finally:
        testbed.down()


if __name__ == "__main__":
    main()
