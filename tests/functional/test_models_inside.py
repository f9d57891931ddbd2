"""Models on the model's own gateway, on which Knative's own Gateways are, too."""

import contextlib

from tests import echo, waiting
from tests.functional import ingress_world, istiod_world, model_world
from tests.functional.model_world import INGRESS, TOKEN, Model

COOKIE = echo.COOKIE
IRIS = Model("iris", "team-alice")
OPEN = Model("open", "team-bob", gateway=INGRESS)


def test_calls_from_inside_are_asked_about_where_they_pass_the_guarded_workload(
    client, kubeconfig, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("istiod")
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(model_world.ground(client, kubeconfig, folder))
        for obj in ingress_world.tenant():
            place.api.delete(obj)
        place.options = {"gateway_service": "", "hosts": ""}
        place.reconcile()
        stack.callback(place.part().remove)
        place.eventually(200, Cookie=COOKIE)
        there = model_world.serving(place, client, folder, [IRIS, OPEN], istiod_world.LABELS)
        found = stack.enter_context(there)
        place.reconcile()
        for model in (IRIS, OPEN):
            assert waiting.eventually(
                lambda model=model: found.is_from(model, found.ask(model.host, Cookie=COOKIE))
            )
            assert found.status(model.host) == 302
            assert found.ask_inside(model.inside).status == 302
            assert found.is_from(model, found.ask_inside(model.inside, Authorization=TOKEN))
