"""The commands of how-to pages, run as they stand but for names and images.

What the stand-in for Juju has no application for is left out: `juju config kubeflow-profiles`.
"""

import pathlib
import re
import subprocess
import sys

from tests.e2e.security_objects import MODEL
from tests.e2e.security_world import SOURCE

ROOT = pathlib.Path(__file__).parents[2]
SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UNRELATED = ("kubeflow-profiles", "kfp-profile-controller")
"""Applications that the pages relate, of which only the relation is looked at."""
CURL = r"curl -s -o /dev/null -w '%{http_code}\n'"
JUJU = """
juju() {
  local command=$1
  shift
  "$PYTHON" -m testbed --name "$TESTBED" juju "$command" -m "$MODEL" "$@"
}
"""


class Page:
    """A page whose commands are run in a model of another name."""

    def __init__(self, place, name):
        self._place = place
        _, *parts = SECTION.split((ROOT / f"docs/how-to/{name}.md").read_text())
        self.sections = {
            title: found
            for title, text in zip(parts[::2], parts[1::2], strict=True)
            if (found := BLOCK.findall(text))
        }

    def run(self, block):
        """Run the commands of a block; what they print, with single blanks."""
        testbed = self._place.node.testbed
        changes = {
            "-n kubeflow ": f"-n {MODEL} ",
            ".kubeflow:": f".{MODEL}:",
            ".kubeflow.": f".{MODEL}.",
            "minio:9000, mlmd": "store:8001, db",
            "--image=curlimages/curl": f"--image={self._place.node.charms.payload_image}",
            "exec notebook-0 ": "exec deploy/notebook ",
            CURL: 'python3 -c "$CALLER" -s',
        }
        for old, new in changes.items():
            block = block.replace(old, new)
        block = re.sub(
            r"^juju config kubeflow-profiles (.*\\\n)*.*$",
            "echo $gateway",
            block,
            flags=re.MULTILINE,
        )
        done = subprocess.run(
            ["bash", "-c", f"{JUJU}\n{block}"],
            cwd=ROOT,
            env={
                **testbed.environment,
                "PYTHON": sys.executable,
                "TESTBED": testbed.name,
                "MODEL": MODEL,
                "CALLER": SOURCE,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{block}{done.stdout}{done.stderr}")
        assert "ERROR" not in done.stderr, done.stderr
        return " ".join(done.stdout.split())
