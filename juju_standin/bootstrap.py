"""Start the controller inside a testbed at its first use."""

import fcntl
import sys
import time

from juju_standin.client import Controller, Juju, JujuError
from testbed.running import RunningTestbed

PORT = 17070
"""Juju's own."""

START = 30.0
"""Seconds for the controller's start."""


def controller(testbed: RunningTestbed) -> Controller:
    """Return the testbed's controller, started where it does not run yet.

    Raises:
        JujuError: when it does not start.
        testbed.running.ClusterError: when the testbed is not up, or has no node.
    """
    folder = testbed.state_dir / "juju"
    address = f"{testbed.plan.node}:{PORT}"
    found = Controller(address, folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _answers(found):
            return found
        image = testbed.load_images(["charm"])["charm"]
        process = testbed.spawn(
            [
                sys.executable, "-m", "juju_standin.controller",
                "--state", str(folder),
                "--address", address,
                "--kubeconfig", str(testbed.kubeconfig),
                "--charm-image", image,
            ],
            "juju-controller",
        )  # fmt: skip
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            if _answers(found):
                # The controller outlives this program; Popen would complain about that.
                process.returncode = 0
                return found
            if process.poll() is not None:
                break
            time.sleep(0.1)
    raise JujuError(f"the controller did not start\n{testbed.log_end('juju-controller')}")


def juju(testbed: RunningTestbed, model: str) -> Juju:
    """Return one model of a testbed, which may not exist yet."""
    return Juju(controller(testbed), model)


def _answers(found: Controller) -> bool:
    try:
        found.command("models")
    except (OSError, JujuError):
        return False
    return True
