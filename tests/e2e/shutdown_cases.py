"""Workloads that run to completion, each with what must become of it."""

import dataclasses
from collections.abc import Mapping

from tests.e2e import kubeflow_kinds
from tests.e2e import shutdown_workloads as made
from tests.e2e.shutdown_world import DB_MANAGER, PREFIX


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One workload and its expected end."""

    name: str
    make: made.Make
    """From the world and the name of the case."""
    want: str = "Complete"
    """A condition of a job or the phase of a bare pod."""
    tries: Mapping[str, int] | None = None
    """What the peer must have counted, by suffix of the name; None: nothing to count."""
    pods: int = 1
    """How many pods it comes to."""
    stopped: int | None = None
    """How many of them have their proxy stopped by us; None: each."""
    namespace: str = "model"
    endures: bool = False
    """Its proxy runs on: the state is looked at when all others have ended."""
    holding: str = ""
    """The container that, in the words of the Event, still holds the pod."""
    main: str = "main"
    """The container that ends where the pod endures."""
    sidecar: str = "classic"
    """Or native."""


CASES = (
    # Those whose tries take longest come first.
    Case(
        name="twenty",
        make=made.twenty,
        tries={f"-{number}": 3 for number in range(20)},
        pods=20,
    ),
    Case(name="job-never", make=made.never, tries={"": 1}),
    Case(name="cron", make=made.cron, tries={"": 1}),
    Case(name="bare", make=made.bare, want="Succeeded", tries={"": 1}),
    Case(
        name="tf-on-failure",
        make=made.training("TFJob", "Worker", "OnFailure", "1,0"),
        want="Succeeded",
        tries={"": 2},
    ),
    Case(
        name="tf-exit-code",
        # From 128 on the operator deletes the pod and makes one of the same name.
        make=made.training("TFJob", "Worker", "ExitCode", "130,0"),
        want="Succeeded",
        tries={"": 2},
        pods=2,
    ),
    Case(
        name="pytorch-workers-on-failure",
        make=made.training("PyTorchJob", "Master", "OnFailure", "1,0", workers=1),
        want="Succeeded",
        tries={"": 1, "-worker": 2},
        pods=2,
    ),
    Case(
        name="jobset",
        make=made.job_set,
        want="Completed",
        tries={"": 4, "-after": 1},
        pods=5,
    ),
    Case(name="trainjob", make=made.train_job, tries={"": 2, "-data": 1}, pods=3),
    Case(name="katib-job", make=made.trial(), tries={"": 1, "-metrics": 1}),
    Case(
        # With Katib's default the collector waits for the proxy, too, so nobody's turn comes.
        name="katib-waits-for-all",
        make=made.trial(wait_for_all=True),
        want="Running",
        tries={"": 1, "-metrics": 0},
        stopped=0,
        endures=True,
        main="training-container",
    ),
    Case(
        # The report of a collector that outlives its proxy is lost, and the trial with it.
        name="katib-not-waited-for",
        make=made.trial(
            wait_for_all=True,
            annotations={f"{PREFIX}wait-for-containers": "training-container"},
        ),
        want="Failed",
        tries={"": 1, "-metrics": 0},
        holding=kubeflow_kinds.COLLECTOR,
    ),
    Case(
        # The way out without a change to Katib: the report goes past the proxy.
        name="katib-past-the-proxy",
        make=made.trial(
            wait_for_all=True,
            annotations={
                f"{PREFIX}wait-for-containers": "training-container",
                "traffic.sidecar.istio.io/excludeOutboundPorts": str(DB_MANAGER),
            },
        ),
        tries={"": 1, "-metrics": 1},
        holding=kubeflow_kinds.COLLECTOR,
    ),
    Case(
        name="argo-step",
        make=made.step,
        want="Succeeded",
        tries={"": 1, "-inputs": 1, "-outputs": 1},
    ),
    Case(
        name="argo-graph",
        make=made.graph,
        want="Succeeded",
        tries={"-first": 1, "-retried": 2, "-other": 1, "-last": 1},
        pods=5,
    ),
    Case(
        name="pipelines-step-in-the-mesh",
        make=made.pipelines,
        want="Succeeded",
        tries={"": 1, "-inputs": 1, "-outputs": 1},
    ),
    Case(name="native", make=made.native, tries={"": 1}, stopped=0, sidecar="native"),
    Case(name="by-revision", make=made.by_revision, namespace="by_revision"),
    Case(name="status-port", make=made.status_port, tries={"": 1}),
    Case(name="restart-rule", make=made.restart_rule, want="Succeeded", tries={"": 2}),
)
