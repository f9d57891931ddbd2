"""The processes of a charm, and how the agent ends them."""

import os
import signal
import threading

from testbed.juju.agent import process
from tests.waiting import eventually


def test_signal_that_interrupts_nothing_ends_the_hook(tmp_path):
    started = tmp_path / "started"
    dispatch = tmp_path / "dispatch"
    dispatch.write_text(f"#!/bin/sh\ntouch {started}\nsleep 20\n")
    dispatch.chmod(0o755)
    runner = process.Runner(lambda *_: None)
    is_over = threading.Event()

    def elsewhere():
        eventually(started.exists)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
        is_over.wait()

    thread = threading.Thread(target=elsewhere)
    before = signal.signal(signal.SIGTERM, lambda *_: runner.terminate())
    try:
        thread.start()
        variables = {"PATH": os.environ["PATH"], "JUJU_DISPATCH_PATH": "hooks/start"}
        result = runner.run(tmp_path, variables, "start")
    finally:
        signal.signal(signal.SIGTERM, before)
        is_over.set()
        thread.join()
    assert result.returncode == -signal.SIGTERM
