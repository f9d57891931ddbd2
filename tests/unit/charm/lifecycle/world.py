"""The context that the tests of the lifecycle work in."""

from istio_integrator.config import config
from istio_integrator.istio import installation
from istio_integrator.kube import manifests
from istio_integrator.situation import situation


def context(fake, **options) -> situation.Situation:
    return situation.Situation(
        cluster=fake.api(),
        manifests=manifests.Manifests(fake.api(), model="kubeflow", application="app"),
        config=config.Config(**options),
        mesh=installation.Mesh(namespace="istio-system", revision="default", is_default=True),
        model="kubeflow",
        application="app",
        unit="app/0",
        leader=True,
    )
