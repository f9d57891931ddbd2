"""Sleep, then exit with a chosen code; optionally fail the first attempts.

`--fail-first N --attempts FILE` counts the attempts in a file (on a volume, since a restarted
container has a new root file system) and exits with 1 for the first N of them.
"""

import argparse
import pathlib
import signal
import sys
import time


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--exit-code", type=int, default=0)
    parser.add_argument("--fail-first", type=int, default=0, metavar="N")
    parser.add_argument("--attempts", type=pathlib.Path, metavar="FILE")
    args = parser.parse_args()
    if args.fail_first and not args.attempts:
        parser.error("--fail-first needs --attempts FILE")
    return args


def main() -> int:
    """Sleep and return the exit code."""
    args = _arguments()
    # As PID 1 a process has no default action for SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    time.sleep(args.seconds)
    if args.fail_first:
        attempt = 1 + (args.attempts.stat().st_size if args.attempts.exists() else 0)
        with args.attempts.open("a") as attempts:
            attempts.write(".")
        if attempt <= args.fail_first:
            print(f"attempt {attempt} fails", file=sys.stderr, flush=True)
            return 1
    return args.exit_code


if __name__ == "__main__":
    sys.exit(main())
