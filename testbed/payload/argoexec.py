#!/usr/bin/env python3
"""Play the parts of Argo's executor in a step of a workflow, with a counting peer for a store.

Usage: argoexec.py init                    (fetch the inputs)
       argoexec.py emissary -- COMMAND …   (run the step's own command)
       argoexec.py wait                    (for the command's end, then store the outputs)

As with Argo, the environment says what step it is: `ARGO_TEMPLATE` (JSON; the peer is
`archiveLocation.http.url`, what it counts `name`), and `ARGO_CONTAINER_NAME` the container.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import urllib.request

SHARED = pathlib.Path(os.environ.get("ARGO_VAR_RUN", "/var/run/argo"))
"""The volume that the step's containers share."""
MAIN = "main"
STORING = 2
"""Seconds that it takes to pack the outputs."""


def exit_code(container: str) -> pathlib.Path:
    """Return the file in which a container's exit code is kept."""
    return SHARED / "ctr" / container / "exitcode"


def transfer(what: str) -> int:
    """Tell the store that inputs or outputs have been on their way."""
    template = json.loads(os.environ["ARGO_TEMPLATE"])
    url = f"{template['archiveLocation']['http']['url']}/try/{template['name']}-{what}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            answer.read()
    except OSError as error:
        print(f"{url}: {error}", file=sys.stderr, flush=True)
        return 64
    return 0


def init() -> int:
    """Leave the executor for the emissary, and fetch the inputs."""
    target = SHARED / "argoexec"
    shutil.copyfile(__file__, target)
    target.chmod(0o755)
    return transfer("inputs")


def emissary(command: list[str]) -> int:
    """Run the command and keep its exit code."""
    code = subprocess.run(command, check=False).returncode
    file = exit_code(os.environ["ARGO_CONTAINER_NAME"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(str(code))
    return code


def wait() -> int:
    """Wait for the command's end, and store the outputs, of a failed step too."""
    while not exit_code(MAIN).exists():
        time.sleep(0.2)
    time.sleep(STORING)
    return transfer("outputs")


def main() -> int:
    """Play the part that the arguments name."""
    # As PID 1 a process has no default action for SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    part, *rest = sys.argv[1:]
    if part == "emissary":
        return emissary(rest[1:])
    return {"init": init, "wait": wait}[part]()


if __name__ == "__main__":
    sys.exit(main())
