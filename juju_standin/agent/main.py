"""The agent's commands: charm-init, the unit agent, the model operator."""

import argparse
import logging
import sys

from . import initialise, modeloperator, unit


def main(argv: list[str]) -> int:
    """Run one command of the agent and return its exit code."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    parser = argparse.ArgumentParser(prog="containeragent")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    initialise.add_parser(commands)
    unit.add_parser(commands)
    modeloperator.add_parser(commands)
    arguments = parser.parse_args(argv)
    return arguments.run(arguments)
