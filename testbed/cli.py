"""The command line of the testbed: `python -m testbed`."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from testbed import (
    building,
    cli_istio,
    cluster,
    command_line,
    errors,
    images,
    options,
)
from testbed.images import command as images_command


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 2 for bad switches, 1 for what failed."""
    try:
        args = parser().parse_args(argv)
        run: Callable[[argparse.Namespace], int] = args.main
        return run(args)
    except options.OptionsError as error:
        for problem in error.problems:
            print(f"testbed: {problem}", file=sys.stderr)
        return 2
    except (errors.TestbedError, images.ImageError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    root = command_line.parser(
        "testbed",
        "A real Kubernetes node with a real Istio, in namespaces of its own.",
        "python -m testbed up --wait",
        "python -m testbed status",
        "python -m testbed shell",
        "python -m testbed down",
    )
    root.add_argument(
        "--name", default="default", help="several testbeds of different names run side by side"
    )
    commands = root.add_subparsers(required=True, metavar="COMMAND")
    _add_up(commands)

    down = command_line.add(commands, "down", "end the testbed and remove what it left")
    down.set_defaults(main=_down)

    status = command_line.add(commands, "status", "show the components")
    status.set_defaults(main=_status)

    shell = command_line.add(commands, "shell", "a shell with KUBECONFIG and PATH set")
    shell.set_defaults(main=_shell)

    logs = command_line.add(commands, "logs", "print a component's log", "kubelet --follow")
    logs.add_argument("component", help="as in `status`, or `supervisor`")
    logs.add_argument("-f", "--follow", action="store_true")
    logs.set_defaults(main=_logs)

    text = "run a command inside a node's namespaces"
    examples = ("-- kubectl get pods -A", "--node 1 -- ip route")
    execute = command_line.add(commands, "exec", text, *examples)
    execute.add_argument("--node", type=int, default=0, metavar="N", help="default: 0, the first")
    execute.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD")
    execute.set_defaults(main=_exec)

    text = "kill a component, to see it come back"
    restart = command_line.add(commands, "restart", text, "kube-apiserver")
    restart.add_argument("component")
    restart.set_defaults(main=_restart)

    text = "kill or cut off a further node, which are counted from 1"
    node = command_line.add(commands, "node", text, "kill 1", "start 1", "cut 2", "mend 2")
    node.add_argument(
        "action",
        choices=("kill", "start", "cut", "mend"),
        help="end all its processes, start it again with its disk; "
        "keep it from the first node, whose API server it then lacks, and undo that",
    )
    node.add_argument("number", type=int, metavar="N")
    node.set_defaults(main=_node)

    _add_build(commands)
    images_command.add_parser(commands)
    cli_istio.add_parser(commands)
    return root


def _add_up(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    up = command_line.add(
        commands,
        "up",
        "start the testbed",
        "--wait",
        "--wait --classic-sidecars",
        "--wait --with training-operator",
        "--wait --external-istiod",
        "--wait --nodes 3",
        "--control-plane-only --kubernetes 1.34",
    )
    up.add_argument("--wait", action="store_true", help="until everything is ready")
    up.add_argument(
        "--control-plane-only",
        action="store_true",
        help="etcd, kube-apiserver and kube-controller-manager on loopback; needs no root",
    )
    up.add_argument("--without-istio", action="store_true", help="see `testbed istio install`")
    up.add_argument(
        "--external-istiod",
        action="store_true",
        help="istiod runs outside of the cluster, in a network of its own",
    )
    cli_istio.add_switches(up)
    up.add_argument(
        "--kubernetes",
        default="",
        choices=options.OLDER,
        help="an older apiserver, with policies as beta; only with --control-plane-only",
    )
    up.add_argument(
        "--nodes",
        type=int,
        default=1,
        metavar="N",
        help="so many, each with a kubelet, containerd and network of its own",
    )
    up.add_argument(
        "--with",
        dest="extras",
        action="append",
        default=[],
        metavar="EXTRA",
        help=f"install as well: {', '.join(options.EXTRAS)}",
    )
    up.set_defaults(main=_up)


def _add_build(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    text = "build the programs that the cache lacks and, as root, the images"
    build = command_line.add(commands, "build", text, "", "demo")
    build.add_argument(
        "purpose",
        nargs="?",
        default="all",
        choices=building.PURPOSES,
        help="what it is for; default: all that `make test` needs",
    )
    build.set_defaults(main=_build)


def _up(args: argparse.Namespace) -> int:
    wanted = options.Options(
        control_plane_only=args.control_plane_only,
        without_istio=args.without_istio,
        classic_sidecars=args.classic_sidecars,
        cni=args.cni,
        external_istiod=args.external_istiod,
        revision=args.revision,
        kubernetes=args.kubernetes,
        nodes=args.nodes,
        extras=tuple(dict.fromkeys(args.extras)),
    )
    cluster.Testbed(args.name).up(wanted, wait=args.wait)
    return 0


def _down(args: argparse.Namespace) -> int:
    cluster.Testbed(args.name).down()
    return 0


def _status(args: argparse.Namespace) -> int:
    status = cluster.Testbed(args.name).status()
    if not status["up"]:
        print(f"testbed {args.name} is down")
    else:
        print(f"testbed {args.name} is up, process {status['pid']}")
        for name, one in status["components"].items():
            state = f"ready after {one['ready_after']} s" if one["ready"] else "not ready"
            again = f", restarted {one['restarts']} times" if one["restarts"] else ""
            print(f"  {name:24} {state}{again}")
    return 0 if status["up"] else 1


def _shell(args: argparse.Namespace) -> int:
    testbed = cluster.Testbed(args.name)
    if not testbed.holder:
        raise cluster.ClusterError(f"testbed {args.name} is not up")
    program = os.environ.get("SHELL", "/bin/sh")
    environment = {**testbed.environment, "TESTBED": args.name}
    return subprocess.run([program], env=environment, check=False).returncode


def _logs(args: argparse.Namespace) -> int:
    path = cluster.Testbed(args.name).log(args.component)
    if not path.exists():
        folder = path.parent
        known = ", ".join(sorted(one.stem for one in folder.glob("*.log"))) or "none"
        raise cluster.ClusterError(f"no log of {args.component}; there are: {known}")
    tail = ["tail", "-n", "+1", *(["-F"] if args.follow else []), str(path)]
    return subprocess.run(tail, check=False).returncode


def _exec(args: argparse.Namespace) -> int:
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise options.OptionsError(["exec: no command given; exec -- CMD"])
    return cluster.Testbed(args.name).exec(command, node=args.node).returncode


def _restart(args: argparse.Namespace) -> int:
    cluster.Testbed(args.name).restart(args.component)
    return 0


def _node(args: argparse.Namespace) -> int:
    getattr(cluster.Testbed(args.name).node(args.number), args.action)()
    return 0


def _build(args: argparse.Namespace) -> int:
    wanted = building.PURPOSES[args.purpose]()
    is_root = os.geteuid() == 0
    # Those who are not may still run a control plane alone.
    building.ensure(wanted if is_root else building.Parts(wanted.products, ()))
    if is_root:
        images.prune()
    return 0
