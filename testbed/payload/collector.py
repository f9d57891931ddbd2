"""Wait for a trial's training as Katib's metrics collector does, then report to a counting peer.

Usage: collector.py -t TRIAL -m METRIC -o-type TYPE -s-db HOST:PORT -path FILE
                    [-format FORMAT] [-w true|false]

The containers of a trial's pod share their processes, of which the first of each container has no
parent. With `-w true`, Katib's default, all of them must have ended, the proxy's too; with
`-w false` the one that was wrapped to leave a mark.
"""

import argparse
import pathlib
import signal
import sys
import time
import urllib.request

PROC = pathlib.Path("/proc")
COMPLETED = "completed"
PARSING = 2
"""Seconds between the end of the training and the report."""


def first_processes(proc: pathlib.Path) -> dict[int, str]:
    """Return process numbers and command lines of the other containers' first processes."""
    own = (proc / "self").resolve().name
    found: dict[int, str] = {}
    for folder in proc.glob("[0-9]*"):
        # Number 1 is the pod's own, which ends with it.
        if folder.name in ("1", own):
            continue
        try:
            # The name in brackets may contain anything.
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == "0":
            found[int(folder.name)] = b" ".join(words).decode(errors="replace")
    return found


def wait(
    proc: pathlib.Path,
    marks: pathlib.Path,
    found: dict[int, str],
    everyone: bool,
    pause: float = 0.5,
) -> bool:
    """Wait, and tell whether the training has left its mark."""
    wrapped = f"echo {COMPLETED} > {marks}/"
    main = next((number for number, line in found.items() if wrapped in line), None)
    if main is None:
        print(f"no process leaves a mark in {marks}: {found}", file=sys.stderr, flush=True)
        return False
    awaited = set(found) if everyone else {main}
    while awaited:
        time.sleep(pause)
        awaited = {number for number in awaited if (proc / str(number)).exists()}
    try:
        return (marks / f"{main}.pid").read_text().strip() == COMPLETED
    except OSError:
        return False


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in ("-t", "-m", "-o-type", "-s-db"):
        parser.add_argument(name, required=True)
    parser.add_argument("-path", required=True, type=pathlib.Path)
    parser.add_argument("-format", default="TEXT")
    parser.add_argument("-w", default="true", choices=("true", "false"))
    return parser.parse_args()


def main() -> int:
    """Wait and report."""
    args = _arguments()
    # As PID 1 a process has no default action for SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if not wait(PROC, args.path.parent, first_processes(PROC), args.w == "true"):
        print("the training has failed", file=sys.stderr, flush=True)
        return 1
    time.sleep(PARSING)
    size = args.path.stat().st_size
    url = f"http://{args.s_db}/try/{args.t}-metrics"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            answer.read()
    except OSError as error:
        print(f"the report is not taken: {error}", file=sys.stderr, flush=True)
        return 1
    print(f"{size} bytes of metrics reported", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
