"""`python -m testbed istio install|uninstall|stop|start`."""

import argparse
import time

from testbed import cluster, command_line, mesh


def add_switches(parser: argparse.ArgumentParser) -> None:
    """Add the switches that say which istiod to install."""
    parser.add_argument(
        "--classic-sidecars", action="store_true", help="istiod injects no native sidecars"
    )
    parser.add_argument(
        "--cni",
        action="store_true",
        help="redirect traffic by Istio's CNI plugin, not by an init container of each pod",
    )
    parser.add_argument("--revision", default="", help="install istiod under this revision")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the testbed's."""
    text = "istiod on a testbed that is up"
    parser = command_line.add(commands, "istio", text, "install --revision canary", "stop")
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    text = "install istiod and the gateway"
    add_switches(command_line.add(actions, "install", text, "--cni", "--revision canary"))
    command_line.add(actions, "uninstall", "remove istiod, the gateway and their webhooks")
    command_line.add(actions, "stop", "scale istiod to nothing; its webhooks stay")
    command_line.add(actions, "start", "scale istiod up again")
    parser.set_defaults(main=_main)


def _main(args: argparse.Namespace) -> int:
    testbed = cluster.Testbed(args.name)
    began = time.monotonic()
    if args.action == "install":
        wanted = mesh.installation(
            revision=args.revision, classic_sidecars=args.classic_sidecars, cni=args.cni
        )
        mesh.install(testbed, wanted)
    else:
        {"uninstall": mesh.uninstall, "stop": mesh.stop, "start": mesh.start}[args.action](testbed)
    print(f"istio {args.action}: done in {time.monotonic() - began:.1f} s")
    return 0
