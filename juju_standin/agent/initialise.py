"""`init`: what the charm-init container does before the pod's containers start."""

import argparse
import contextlib
import json
import logging
import os
import shutil
import sys
import time
from pathlib import Path

import yaml

from . import jujuc
from .api import Controller, ControllerError

logger = logging.getLogger(__name__)

PEBBLE, JUJUC = Path("/opt/pebble"), Path("/opt/jujuc")
"""The programs in the charm's image; the second is every hook tool."""

RETRY = 10.0
"""Seconds between attempts to introduce the pod; Juju waits 10 to 30."""

WORTH_A_RETRY = ("not assigned", "already exists")
"""Errors that may pass; charm-init ends with any other, and the kubelet starts it again."""

IDENTITIES = """\
identities:
  charm:
    access: admin
    local:
      user-id: {user}
"""
"""Makes the charm's user an administrator of the workloads' Pebbles."""

LAYER = """\
summary: Juju container agent
services:
  container-agent:
    summary: Juju container agent
    startup: enabled
    override: replace
    command: {python} {agent} unit --data-dir {data} --charm-modified-version {version} \
--containers "{containers}"
    environment:
      PATH: {path}
    kill-delay: 30m
    on-success: ignore
    on-failure: shutdown
checks:
  readiness:
    override: replace
    level: ready
    period: 10s
    timeout: 3s
    threshold: 3
    http:
      url: http://localhost:65301/readiness
  liveness:
    override: replace
    level: alive
    period: 10s
    timeout: 3s
    threshold: 3
    http:
      url: http://localhost:65301/liveness
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Define the command."""
    parser = commands.add_parser("init", help="prepare the pod's shared volume")
    parser.add_argument("--containeragent-pebble-dir", type=Path, required=True)
    parser.add_argument("--charm-modified-version", type=int, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--bin-dir", type=Path, required=True)
    parser.add_argument("--profile-dir", type=Path)
    parser.add_argument("--pebble-identities-file", type=Path)
    parser.add_argument("--pebble-charm-identity", type=int)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Introduce the pod, copy the programs, write the agent's Pebble layer."""
    configuration = arguments.data_dir / "template-agent.json"
    if not configuration.exists():
        try:
            configuration.write_text(json.dumps(introduce()))
        except ControllerError as error:
            print(f"ERROR {error}", file=sys.stderr)
            return 1
    if arguments.profile_dir:
        arguments.profile_dir.mkdir(parents=True, exist_ok=True)
        (arguments.profile_dir / "juju-introspection.sh").touch()
    copy_programs(arguments.bin_dir)
    jujuc.copy(JUJUC, arguments.data_dir)
    if arguments.pebble_identities_file:
        arguments.pebble_identities_file.write_text(
            IDENTITIES.format(user=arguments.pebble_charm_identity)
        )
    layers = arguments.containeragent_pebble_dir / "layers"
    layers.mkdir(parents=True, exist_ok=True)
    (layers / "001-container-agent.yaml").write_text(
        LAYER.format(
            python="/usr/bin/python3",
            agent=arguments.bin_dir / "containeragent",
            data=arguments.data_dir,
            version=arguments.charm_modified_version,
            containers=os.environ.get("JUJU_CONTAINER_NAMES", ""),
            path=f"{os.environ['PATH']}:{arguments.bin_dir}",
        )
    )
    return 0


def introduce() -> dict[str, str]:
    """Tell the controller about this pod until it answers with a unit.

    Raises:
        ControllerError: when it refuses for good.
    """
    certificate = os.environ["JUJU_K8S_CONTROLLER_CA_CERT"]
    address = os.environ["JUJU_K8S_CONTROLLER_ADDRESSES"].split(",")[0]
    identity = {
        "model": os.environ["JUJU_K8S_MODEL"],
        "application": os.environ["JUJU_K8S_APPLICATION"],
        "password": os.environ["JUJU_K8S_APPLICATION_PASSWORD"],
    }
    with contextlib.closing(Controller(address, certificate, identity)) as controller:
        while True:
            try:
                unit = controller.call(
                    "introduce",
                    pod_name=os.environ["JUJU_K8S_POD_NAME"],
                    pod_uuid=os.environ["JUJU_K8S_POD_UUID"],
                )
            except (ControllerError, OSError) as error:
                may_pass = isinstance(error, OSError) or any(
                    words in str(error) for words in WORTH_A_RETRY
                )
                if not may_pass:
                    raise
                logger.warning("not introduced yet: %s", error)
                time.sleep(RETRY)
                continue
            return {**identity, "unit": unit, "address": address, "ca_certificate": certificate}


def copy_programs(bin_dir: Path) -> None:
    """Put Pebble, this agent and what it imports where the pod's containers find them."""
    bin_dir.mkdir(parents=True, exist_ok=True)
    shutil.copy2(PEBBLE, bin_dir / "pebble")
    for package, name in ((Path(__file__), "containeragent"), (Path(yaml.__file__), "yaml")):
        shutil.copytree(package.parent, bin_dir / name, dirs_exist_ok=True)
