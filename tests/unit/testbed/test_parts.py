import json

import pytest

from testbed import images, parts, programs


@pytest.mark.parametrize("name", parts.PARTS)
def test_part_is_built_on_demand_alone(name):
    part = parts.PARTS[name]
    assert name in programs.ON_DEMAND
    wanted = {*part.images.values(), *([part.executor] if part.executor else ())}
    assert wanted <= {*images.ON_DEMAND}


def rendered(*containers):
    pod = {"spec": {"template": {"spec": {"containers": list(containers)}}}}
    return [{"kind": "Deployment", **pod}, {"kind": "Role"}]


def containers_of(monkeypatch, name, container):
    monkeypatch.setattr(parts, "_rendered", lambda *_: rendered(container))
    references = {image: f"ours/{image}" for image in images.ON_DEMAND}
    found = parts.objects(name, references)
    assert [one["kind"] for one in found] == ["Namespace", "Deployment", "Role"]
    assert json.loads(json.dumps(found)) == found
    return found[1]["spec"]["template"]["spec"]["containers"]


def test_manager_runs_our_image_with_its_own_arguments_and_is_ready_soon(monkeypatch):
    theirs = {
        "name": "manager",
        "image": "theirs",
        "args": ["--config=x"],
        "resources": {"requests": {"cpu": "500m"}},
        "readinessProbe": {"httpGet": {"port": 8081}, "initialDelaySeconds": 10},
    }
    (found,) = containers_of(monkeypatch, "jobset", theirs)
    assert found["image"] == "ours/jobset"
    assert found["args"] == ["--config=x"]
    assert "resources" not in found
    assert found["readinessProbe"]["initialDelaySeconds"] == 1
    assert found["readinessProbe"]["httpGet"] == {"port": 8081}


def test_workflow_controller_is_told_of_our_executor(monkeypatch):
    theirs = {"name": "workflow-controller", "command": ["workflow-controller"], "args": []}
    (found,) = containers_of(monkeypatch, "argo-workflows", theirs)
    assert found["image"] == "ours/workflow-controller"
    assert found["args"] == ["--executor-image", "ours/argoexec"]
