"""Run the demo: `python -m demo [--cluster today|tomorrow] [--report DIR] [--plain]`."""

import argparse
import asyncio
import os
import pathlib
import signal
import sys
from collections.abc import Sequence

from demo import report, stage, steps, view
from testbed import cluster, command_line, errors, images, kubernetes
from testbed.kit import clusters, diagnostics, istiod, juju, observer, timeline, training

MODEL = "kubeflow"
WATCHED = (MODEL, steps.BEFORE, training.PROFILE)

SETUP_ERRORS = (errors.TestbedError, images.ImageError, juju.JujuError)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = command_line.parser(
        "demo",
        "Watch the charm do its main job.",
        "python -m demo",
        "python -m demo --cluster tomorrow --report build/demo-tomorrow",
        "python -m demo --plain --keep",
    )
    parser.add_argument(
        "--cluster", choices=sorted(clusters.KINDS), default="today", help="its kind"
    )
    parser.add_argument("--report", type=pathlib.Path, metavar="DIR", help="write the report here")
    parser.add_argument("--plain", action="store_true", help="lines instead of a live view")
    parser.add_argument("--name", default=f"demo-{os.getpid()}", help="of the testbed")
    parser.add_argument("--keep", action="store_true", help="leave the testbed running")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return 0 only if each step was observed."""
    args = parse(argv)
    kind = clusters.KINDS[args.cluster]
    folder = args.report or pathlib.Path("build") / f"demo-{kind.name}"
    # The testbed is ended on the way out, also when somebody ends the demo.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    testbed = cluster.Testbed(args.name)
    record = report.Report(kind.name, kind.description, len(steps.STEPS))
    try:
        took = testbed.up(kind.options)
        record.figures.append(report.Figure("Start of the testbed", f"{took:.1f} s"))
        charms = clusters.charms(kind, testbed)
        asyncio.run(perform(testbed, kind, charms, record, plain=args.plain))
    except SETUP_ERRORS as error:
        print(f"demo: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
    finally:
        page = record.write(folder)
        if not args.keep:
            testbed.down()
    print(f"\n{record.verdict} Report: {page}")
    return 0 if record.is_observed else 1


async def perform(
    testbed: cluster.Testbed,
    kind: clusters.Kind,
    charms: clusters.Charms,
    record: report.Report,
    *,
    plain: bool,
) -> None:
    """Run the steps on a cluster that is up."""
    watcher = observer.Observer()

    def pods() -> list[timeline.PodLine]:
        lines = watcher.timeline.pods.values()
        return [line for line in lines if line.namespace in WATCHED and line.deleted is None]

    async with kubernetes.Api.from_kubeconfig(testbed.kubeconfig) as api:
        with view.showing(pods, plain=plain) as shown:
            on = stage.Stage(
                kind=kind,
                api=api,
                juju=juju.Juju(testbed, MODEL),
                charms=charms,
                observer=watcher,
                report=record,
                view=shown,
            )
            async with watcher.following(api):
                try:
                    await steps.run(on)
                except stage.ERRORS:
                    record.evidence = await diagnostics.collect(
                        api, on.juju, (*WATCHED, istiod.NAMESPACE)
                    )


if __name__ == "__main__":
    sys.exit(main())
