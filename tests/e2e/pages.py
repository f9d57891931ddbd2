"""The commands of how-to pages, run as they stand but for names and images.

What the stand-in for Juju has no application for is left out: `juju config kubeflow-profiles`.
"""

import pathlib
import re
import runpy
import subprocess
import sys

from testbed import programs
from tests.e2e import caller

ROOT = pathlib.Path(__file__).parents[2]
CALLER = pathlib.Path(caller.__file__).read_text()
READER = runpy.run_path(str(ROOT / "docs/commands.py"))
DESCRIBED = list(READER["blocks"](ROOT))
words = READER["words"]
CURL = r"curl -s -o /dev/null -w '%{http_code}\n'"
COMMANDS = r"""
juju() {
  local command=$1
  shift
  case $command in
    ssh) kubectl exec -n "$MODEL" "${1/\//-}" -c charm -- "${@:2}"; return ;;
  esac
  "$PYTHON" -m juju_standin --testbed "$TESTBED" "$command" -m "$MODEL" "$@"
}
istioctl() {
  case $1 in
    install | tag | uninstall) command istioctl "$@" --manifests="$CHARTS" ;;
    *) command istioctl "$@" ;;
  esac || echo "ERROR: istioctl $1" >&2
}
"""


class Shell:
    """Runs commands of pages in a model of another name, where more is called otherwise."""

    def __init__(self, node, model, changes):
        self._testbed = node.testbed
        self._model = model
        self._changes = {
            "-n kubeflow ": f"-n {model} ",
            ".kubeflow:": f".{model}:",
            ".kubeflow.": f".{model}.",
            "./build/istio-integrator.charm": str(node.charms.integrator.path),
            "lifecycle-image=IMAGE": "lifecycle-image=workload",
            CURL: 'python3 -c "$CALLER" -s',
            **changes,
        }

    def run(self, block, folder=ROOT):
        """Run the commands of a block; what they print, with single blanks."""
        # At once, so that two names can change places.
        every = re.compile("|".join(map(re.escape, self._changes)))
        block = every.sub(lambda found: self._changes[found[0]], block)
        block = re.sub(
            r"^juju config kubeflow-profiles (.*\\\n)*.*$",
            "echo $gateway",
            block,
            flags=re.MULTILINE,
        )
        done = subprocess.run(
            ["bash", "-c", f"{COMMANDS}\n{block}"],
            cwd=folder,
            env={
                **self._testbed.environment,
                "PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
                "TESTBED": self._testbed.name,
                "MODEL": self._model,
                "CALLER": CALLER,
                "CHARTS": str(programs.directory("istio") / "share" / "manifests"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{block}{done.stdout}{done.stderr}")
        assert "ERROR" not in done.stderr, done.stderr
        self.code, self.printed = done.returncode, done.stdout
        return " ".join(done.stdout.split())


def told(test):
    """The blocks that say that a test runs them, page by page in their order."""
    return [each.text for each in DESCRIBED if test in each.what.split(", ")]
