"""Is there an istiod, and does it inject?"""

import dataclasses

import pytest

from istio_integrator.diagnosis.checks import istiod
from istio_integrator.messages import Said
from tests.unit.charm.diagnosis.objects import ALIVE


def only(findings):
    (found,) = list(findings)
    return found


@pytest.mark.parametrize(
    ("found", "said", "level", "words"),
    [
        pytest.param(ALIVE, (), "✓", "gave a dry-run pod", id="alive"),
        pytest.param(
            dataclasses.replace(ALIVE, probed=False), (), "!", "no dry-run pod", id="not-probed"
        ),
        pytest.param(
            dataclasses.replace(ALIVE, alive=False, problem="does not inject: refused"),
            [
                Said.ISTIOD_AWAY(
                    name="istio-system/istiod", problem="does not inject: refused", command=""
                )
            ],
            "✗",
            "istiod 1.31 does not inject: refused",
            id="dead",
        ),
        pytest.param(None, [Said.INJECTOR_ABSENT()], "✗", "waiting for istiod", id="none"),
    ],
)
def test_istiod_is_judged_by_its_answer(found, said, level, words):
    found = only(istiod.judge(found, said, application="app"))
    assert (found.level.value, words in found.seen) == (level, True)
    assert bool(found.next) == (level != "✓")


def test_several_istiods_are_broken_with_the_command_of_the_status():
    said = Said.SEVERAL_ISTIOS(application="app", option="revision", example="a", injectors="a, b")
    found = only(istiod.judge(None, [said], application="app"))
    assert (found.seen, found.next) == (
        "several Istios; or choose another of a, b",
        "juju config app revision=a",
    )
