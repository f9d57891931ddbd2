"""Whose owners are told that nobody stops the proxy any more."""

from istio_integrator.lifecycle import removal_notice
from tests import asked
from tests.unit.cases import cases
from tests.unit.charm.lifecycle.world import context


def spec(policy, *, proxy=None, container="istio-proxy"):
    own = {"restartPolicy": proxy} if proxy else {}
    return {"restartPolicy": policy, "containers": [{"name": "main"}, {"name": container, **own}]}


class Rules:
    """A workload that says of every pod that it will hang, and of one nothing sensible."""

    def explain(self, pods):
        found = [pod["metadata"] for pod in pods]
        said = [asked.proxy(each["namespace"], each["name"]) for each in found]
        return [asked.proxy("", ""), *said]


def told(fake):
    removal_notice.leave(context(fake), Rules())
    return [
        each["involvedObject"]["name"] for each in fake.objects.values() if each["kind"] == "Event"
    ]


def pod(fake, name, spec):
    metadata = {"name": name, "namespace": "kubeflow", "uid": name * 8}
    fake.add({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@cases(
    ("spec", "want"),
    job=(spec("Never"), True),
    job_that_is_tried_again=(spec("OnFailure"), True),
    server=(spec("Always"), False),
    containers_that_end_by_themselves=(spec("Always", proxy="Never"), True),
    proxy_that_starts_again=(spec("Never", proxy="Always"), False),
    no_proxy=(spec("Never", container="other"), False),
    native_sidecar=(
        {"restartPolicy": "Never", "initContainers": [{"name": "istio-proxy"}]},
        False,
    ),
    nonsense=({"restartPolicy": ["Never"], "containers": {"name": 5}}, False),
)
def test_pod_whose_proxy_ends_for_good_is_told_whatever_its_labels(fake, spec, want):
    pod(fake, "pod", spec)
    assert told(fake) == (["pod"] if want else [])


def test_pod_that_takes_no_event_keeps_no_other_from_being_told(fake):
    for name in ("a", "b", "c"):
        pod(fake, name, spec("Never"))
    fake.refused.add(f"b.{removal_notice.REASON.lower()}.bbbbbbbb")
    assert told(fake) == ["a", "c"]
