"""Run a charm's file as a hook, and write what it cost: `counted.py FILE`, without the package."""

import collections
import json
import os
import pathlib
import resource
import runpy
import sys
from typing import Any


def main(program: str) -> None:
    """Run the program, with a client of Kubernetes whose requests are counted."""
    requests: collections.Counter[str] = collections.Counter()

    def note(request: Any) -> None:
        requests[f"{request.method} {request.url.path}"] += 1

    def connect() -> Any:
        import lightkube  # noqa: PLC0415 - a part of what is measured

        from istio_integrator.kube import cluster  # noqa: PLC0415

        config = lightkube.KubeConfig.from_file(os.environ["BENCH_KUBECONFIG"]).get()
        api = cluster.Cluster(lightkube.Client(config=config))
        api.client._client._client.event_hooks["request"].append(note)  # noqa: SLF001
        return api

    if pathlib.Path(program).with_name("istio_integrator").exists():
        from istio_integrator.kube import cluster  # noqa: PLC0415

        cluster.connect = connect
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        # `ru_maxrss` has what the parent had when it forked.
        status = pathlib.Path("/proc/self/status").read_text()
        memory = int(status.partition("VmHWM:")[2].split()[0]) / 1024
        told = {"cpu": used.ru_utime + used.ru_stime, "memory": memory, "requests": requests}
        pathlib.Path(os.environ["WORLD"], "told").write_text(json.dumps(told))


main(sys.argv[1])
