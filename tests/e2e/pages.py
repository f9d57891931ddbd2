"""The commands of how-to pages, run as they stand but for names and images.

What the stand-in for Juju has no application for is left out: `juju config kubeflow-profiles`.
"""

import pathlib
import re
import subprocess
import sys

from testbed import programs
from tests.e2e import ingress_world

ROOT = pathlib.Path(__file__).parents[2]
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CURL = r"curl -s -o /dev/null -w '%{http_code}\n'"
COMMANDS = """
juju() {
  local command=$1
  shift
  "$PYTHON" -m testbed --name "$TESTBED" juju "$command" -m "$MODEL" "$@"
}
istioctl() {
  case $1 in
    install | tag | uninstall) command istioctl "$@" --manifests="$CHARTS" ;;
    *) command istioctl "$@" ;;
  esac || echo "ERROR: istioctl $1" >&2
}
"""


class Page:
    """A page whose commands are run in a model of another name.

    Args:
        place: Where.
        name: Of the page's file.
        changes: What else is called otherwise there.
    """

    def __init__(self, place, name, changes):
        self._place = place
        self._changes = {
            "-n kubeflow ": f"-n {place.juju.model} ",
            ".kubeflow:": f".{place.juju.model}:",
            ".kubeflow.": f".{place.juju.model}.",
            CURL: 'python3 -c "$CALLER" -s',
            **changes,
        }
        _, *parts = SECTION.split((ROOT / f"docs/how-to/{name}.md").read_text())
        self.sections = {
            title: found
            for title, text in zip(parts[::2], parts[1::2], strict=True)
            if (found := BLOCK.findall(text))
        }

    def run(self, block):
        """Run the commands of a block; what they print, with single blanks."""
        testbed = self._place.node.testbed
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
            cwd=ROOT,
            env={
                **testbed.environment,
                "PYTHON": sys.executable,
                "TESTBED": testbed.name,
                "MODEL": self._place.juju.model,
                "CALLER": ingress_world.CALLER,
                "CHARTS": str(programs.directory("istio") / "share" / "manifests"),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{block}{done.stdout}{done.stderr}")
        assert "ERROR" not in done.stderr, done.stderr
        return " ".join(done.stdout.split())
