import json

import pytest

from testbed.juju import client
from testbed.juju.agent import flags
from tests import waiting

EVALUATING = '[ -z "$JUJU_ACTION_NAME" ] || eval "$(action-get code)"'


@pytest.fixture(scope="module")
def shell(plain, new_model):
    """Run code in an action of a leader: what the hook tools answer."""
    with new_model() as model:
        model.juju.deploy(plain, config={"script": EVALUATING})
        model.start_pod("plain/0")
        model.wait_for_hook("plain/0", "start")

        def run(code):
            try:
                results = model.juju.run("plain/0", "shell", {"code": code})["results"]
            except client.ActionFailedError as error:
                results = error.outcome["results"]
            return results["return-code"], results.get("stdout", ""), results.get("stderr", "")

        run.model = model
        yield run


@pytest.mark.parametrize(
    ("code", "want"),
    [
        pytest.param("relation-ids --format=json cluster", ["cluster:1"], id="relation-ids"),
        pytest.param("relation-ids --format=json nothing", [], id="relation-ids of none"),
        pytest.param("relation-list --format=json -r cluster:1", [], id="relation-list"),
        pytest.param("relation-list --format=json --app -r 1", "plain", id="relation-list --app"),
        pytest.param("is-leader --format=json", True, id="is-leader"),
        pytest.param("storage-list --format=json", [], id="storage-list"),
        pytest.param("opened-ports --format=json", [], id="opened-ports"),
        pytest.param("state-get --format=json absent", None, id="state-get of none"),
        pytest.param(
            "state-set a=1; state-get --format=json a", "1", id="state before the commit"
        ),
        pytest.param(
            "relation-set -r 1 a=1; relation-set -r 1 a=; "
            "relation-get --format=json -r 1 a plain/0",
            None,
            id="an empty value deletes",
        ),
        pytest.param(
            r"""printf 'a: x\nb: 08\n' | relation-set -r 1 --file -; """
            "relation-get --format=json -r 1 b plain/0",
            "08",
            id="relation-set of YAML",
        ),
        pytest.param(
            r"printf 'key: |\n  two\n  lines\n' | state-set --file=-; "
            "state-get --format=json key",
            "two\nlines\n",
            id="state-set of YAML",
        ),
        pytest.param(
            """echo '{"key": "of JSON"}' | state-set --file -; state-get --format=json key""",
            "of JSON",
            id="state-set of JSON",
        ),
    ],
)
def test_tool_answers_in_json(shell, code, want):
    status, stdout, stderr = shell(code)
    assert (status, stderr) == (0, "")
    assert json.loads(stdout) == want


STATUSES = "[maintenance, blocked, waiting, active]"
KEY_RULE = (
    "must start and end with lowercase alphanumeric, and contain only lowercase alphanumeric, "
    "hyphens and periods"
)
LONG_KEY = "k" * 300


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        pytest.param(
            "status-set happy", 2, f'invalid status "happy", expected one of {STATUSES}',
            id="unknown status",
        ),
        pytest.param(
            "relation-list -r cluster:7", 2,
            'invalid value "cluster:7" for option -r: relation not found', id="unknown relation",
        ),
        pytest.param("action-set Upper=1", 2, f'key "Upper" {KEY_RULE}', id="action key"),
        pytest.param(
            "action-set stdout=1", 2, 'cannot set reserved action key "stdout"',
            id="reserved action key",
        ),
        pytest.param(
            "is-leader --sideways", 2, "flag provided but not defined: --sideways",
            id="unknown flag",
        ),
        pytest.param(
            "secret-get secret:nowhere", 1, 'secret "secret:nowhere" not found',
            id="unknown secret",
        ),
        pytest.param("secret-add ab=1", 2, 'key "ab" not valid', id="short secret key"),
        pytest.param(
            "env -u JUJU_CONTEXT_ID is-leader", 1, "JUJU_CONTEXT_ID not set", id="outside a hook"
        ),
        pytest.param(
            f"state-set {LONG_KEY}=1", 1, f"state of {LONG_KEY!r} exceeds the quota limit",
            id="long state key",
        ),
    ],
)  # fmt: skip
def test_tool_refuses_with_jujus_words(shell, code, status, error):
    code, _, stderr = shell(code)
    assert (code, stderr.strip()) == (status, f"ERROR {error}")


def test_state_and_ports_are_kept_after_success_only(shell):
    assert shell("state-set kept=yes; open-port 8080")[0] == 0
    assert shell("state-set dropped=yes; open-port 9090; exit 3")[0] == 3
    assert json.loads(shell("state-get --format=json")[1])["kept"] == "yes"
    assert "dropped" not in json.loads(shell("state-get --format=json")[1])
    assert json.loads(shell("opened-ports --format=json")[1]) == ["8080/tcp"]


def test_secret_changes_make_revisions_and_the_reader_keeps_the_one_it_tracks(shell):
    address = shell("secret-add --label mine --owner application token=one")[1].strip()
    assert json.loads(shell("secret-get --format=json --label mine")[1]) == {"token": "one"}
    assert shell(f"secret-set {address} --owner application token=two")[0] == 0
    assert json.loads(shell(f"secret-get --format=json {address}")[1]) == {"token": "one"}
    assert json.loads(shell(f"secret-get --format=json {address} --peek")[1]) == {"token": "two"}
    assert json.loads(shell(f"secret-get --format=json {address} --refresh")[1]) == {
        "token": "two"
    }
    info = json.loads(shell(f"secret-info-get --format=json {address}")[1])
    assert info[address.removeprefix("secret:")]["revision"] == 2
    assert shell(f"secret-remove {address}")[0] == 0
    assert json.loads(shell("secret-ids --format=json")[1]) == []


@pytest.mark.parametrize(
    ("argv", "flag", "rest"),
    [
        pytest.param(["-r", "1", "x"], {"relation": "1"}, ["x"], id="short"),
        pytest.param(["x", "--relation=1"], {"relation": "1"}, ["x"], id="after a positional"),
        pytest.param(["--app", "-"], {"app": "true"}, ["-"], id="switch and dash"),
        pytest.param(["--", "--app"], {}, ["--app"], id="after two dashes"),
    ],
)
def test_flags_may_stand_anywhere(argv, flag, rest):
    parsed = flags.parse(argv, values="relation", switches="app")
    assert (parsed.flags, parsed.rest) == (flag, rest)


def test_the_model_logs_lines_in_their_order(shell):
    numbers = [str(number) for number in range(300)]
    assert shell('i=0; while [ $i -lt 300 ]; do juju-log "line $i"; i=$((i + 1)); done')[0] == 0

    def logged():
        lines = shell.model.juju.debug_log().splitlines()
        return [line.rpartition(" ")[2] for line in lines if " line " in line]

    assert waiting.eventually(lambda: logged() == numbers), logged()
