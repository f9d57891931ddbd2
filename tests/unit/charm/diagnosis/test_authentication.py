"""What the workload saw of the authentication at the gateway."""

import pytest

from integrator_contract.seen import Cause, Missing, Seen, Unseen
from istio_integrator.diagnosis.checks import authentication

SERVICE = "oidc.a.svc.cluster.local:8080"
RIGHT = "get and create pods/portforward in istio-ingress"


@pytest.mark.parametrize(
    ("seen", "level", "words"),
    [
        pytest.param(
            Seen(of="x", unseen=None, guarded=(80, 443)),
            "✓",
            f"the gateway asks {SERVICE} about requests to port 80, 443",
            id="asked",
        ),
        pytest.param(
            Seen(of="x", unseen=Unseen.FORBIDDEN, detail=RIGHT),
            "!",
            f"missing permission to {RIGHT}",
            id="forbidden",
        ),
        pytest.param(
            Seen(of="x", unseen=Unseen.UNREACHABLE, detail="refused"),
            "!",
            "Envoy was not seen: refused",
            id="unreachable",
        ),
        pytest.param(
            Seen(of="x", unseen=Unseen.TOO_LARGE, detail="more than 32 MiB"),
            "!",
            "Envoy was not seen: more than 32 MiB",
            id="too-large",
        ),
    ],
)
def test_authentication_is_judged_by_what_the_workload_saw(seen, level, words):
    (found,) = authentication.judge(seen, SERVICE, application="app")
    assert (found.level.value, words in found.seen) == (level, True)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(Seen(of=""), id="no-route-is-written"),
        pytest.param(
            Seen(
                of="x",
                unseen=None,
                guarded=(80,),
                missing=(Missing(cause=Cause.CLUSTER_MISSING, about={}),),
            ),
            id="the-status-names-what-is-missing",
        ),
    ],
)
def test_authentication_is_not_confirmed_where_something_is_missing(seen):
    assert list(authentication.judge(seen, SERVICE, application="app")) == []
