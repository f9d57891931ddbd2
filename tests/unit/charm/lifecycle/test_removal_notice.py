"""Whose owners are told that nobody stops the proxy any more."""

import pytest

from istio_integrator.lifecycle import removal_notice


def spec(policy, *, proxy=None, container="istio-proxy"):
    own = {"restartPolicy": proxy} if proxy else {}
    return {"restartPolicy": policy, "containers": [{"name": "main"}, {"name": container, **own}]}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(spec("Never"), True, id="job"),
        pytest.param(spec("OnFailure"), True, id="job that is tried again"),
        pytest.param(spec("Always"), False, id="server"),
        pytest.param(spec("Always", proxy="Never"), True, id="containers that end by themselves"),
        pytest.param(spec("Never", proxy="Always"), False, id="proxy that starts again"),
        pytest.param(spec("Never", container="other"), False, id="no proxy"),
        pytest.param(
            {"restartPolicy": "Never", "initContainers": [{"name": "istio-proxy"}]},
            False,
            id="native sidecar",
        ),
    ],
)
def test_pod_whose_proxy_ends_for_good_is_asked_about_whatever_its_labels(fake, pod, want):
    metadata = {"name": "pod", "namespace": "kubeflow"}
    fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})

    found = removal_notice.candidates(fake.api(), ["kubeflow"])

    assert [each["metadata"]["name"] for each in found] == (["pod"] if want else [])
