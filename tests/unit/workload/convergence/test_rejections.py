"""Changes of admission and workloads that policies reject, as the service finds them."""

import asyncio
import functools
import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from sidecar_lifecycle.model import resources

from integrator_contract import names, rejections
from integrator_contract.pods import Settings as Wanted
from tests.unit.api_server import Refused
from tests.unit.cases import cases
from tests.unit.workload.converging import (
    MEMORY,
    MODEL,
    POLICY,
    Object,
    converging,
    forbidding,
    looked,
    owned,
    refusal,
    refuse,
    workload,
)
from tests.unit.workload.fake_apiserver import FakeApiserver, until


def want(model: FakeApiserver, name: str = "mesh-2-admission", **values: Any) -> None:
    """Write the webhook's settings as the charm does."""
    wanted = Wanted(**{"application": "mesh-2", "model": MODEL, **values})
    metadata = {"name": name, "namespace": MODEL}
    text = json.dumps(wanted.to_document())
    model.put("configmaps", {"metadata": metadata, "data": {"settings.json": text}})


looking = functools.partial(converging, joined=False)
"""Runs the service where no pod is to be replaced, so that only rejections are looked for."""


def stored(model: FakeApiserver) -> rejections.Rejections:
    found = model.find("configmaps", MODEL, MEMORY) or {"data": {}}
    text = found["data"].get(rejections.KEY, "{}")
    return msgspec.json.decode(text, type=rejections.Rejections)


def found(model: FakeApiserver) -> dict[str, Any]:
    read = stored(model)
    assert not read.workloads.keys() & read.sidecars.keys()
    return {"changes": {*read.changes}, "workloads": {*read.workloads}}


def inject(pod: Object) -> Object:
    """Inject the native sidecar that a pod requests, beside an init container without one."""
    if not is_native(pod):
        return pod
    proxy = {"name": "istio-proxy", "restartPolicy": "Always"}
    return {**pod, "spec": {**pod["spec"], "initContainers": [{"name": "istio-init"}, proxy]}}


@pytest.fixture(autouse=True)
def admits(model: FakeApiserver) -> None:
    model.admission = inject


async def test_forbidden_change_is_found_before_a_pod_has_it_and_the_charm_is_told(
    model: FakeApiserver,
):
    model.admission = forbidding(names.PROXY_CONFIG)
    want(model)
    unreadable = {"metadata": {"name": MEMORY, "namespace": MODEL}, "data": {rejections.KEY: "{"}}
    model.put("configmaps", unreadable)
    async with looking(model) as service:
        await until(service.told)
    assert found(model) == {"changes": {"hold"}, "workloads": set()}
    (author,) = {each.author for each in stored(model).changes.values()}
    assert author == "ValidatingAdmissionPolicy no-overrides"

    # The stored rejections stay after a restart until the settings of admission are known.
    model.before_answer = lambda _, path: (
        asyncio.sleep(9) if path.endswith(f"/{MODEL}/configmaps") else None
    )
    async with looking(model) as service:
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 2)
        assert not service.told()


@pytest.mark.parametrize("length", [53, 54, 63])
async def test_settings_of_an_application_with_a_long_name_are_found(
    model: FakeApiserver, length: int
):
    """The charm shortens names above 63 characters, and corrects settings that are unreadable."""
    application = "a" * length
    name = names.name_object(application, "admission")
    model.admission = forbidding(names.PROXY_CONFIG)
    unreadable = {"metadata": {"name": name, "namespace": MODEL}, "data": {"settings.json": "{"}}
    model.put("configmaps", unreadable)
    async with looking(model, application=application) as service:
        await until(service.is_ready)
        want(model, name, application=application)
        await until(service.told)


async def test_charm_is_not_told_that_other_settings_are_rejected_as_little(model: FakeApiserver):
    want(model)
    async with looking(model) as service:
        await until(lambda: looked(model) > 1)
        tried = len(model.tried)
        want(model, excluded_pods="app=none")
        await until(lambda: len(model.tried) == 2 * tried)
        await asyncio.sleep(5)
        assert not service.told()


async def test_pods_are_not_tried_again_while_nothing_changes(model: FakeApiserver):
    want(model)
    job(model, "train")
    async with looking(model) as service:
        await until(lambda: looked(model) > 1)
        tried, before = len(model.tried), service.told()
        want(model, left_out=("native",), digest="other")
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 2)
        assert (len(model.tried), service.told()) == (tried, before)


def end_policy(model: FakeApiserver) -> None:
    model.admission = inject


def end_admission(model: FakeApiserver) -> None:
    model.delete("configmaps", MODEL, "mesh-2-admission")


@cases("change", policy=end_policy, webhook=end_admission)
async def test_change_is_made_again_once_the_policy_or_the_webhook_has_gone(
    model: FakeApiserver, change: Callable[[FakeApiserver], None]
):
    """The pods that were refused show it at the next look, and the charm is told once."""
    model.admission = forbidding(names.PROXY_CONFIG)
    want(model)
    async with looking(model) as service:
        await until(service.told)
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 3)
        assert (found(model)["changes"], service.told()) == ({"hold"}, 1)
        change(model)
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 3)
        assert (found(model)["changes"], service.told()) == (set(), 2)
        model.tried.clear()
        await until(lambda: looked(model) >= looks + 6)
        assert model.tried == []


@pytest.mark.parametrize("author", ["no-overrides", "of-another-team"])
async def test_change_that_another_policy_forbids_too_stays_left_out(
    model: FakeApiserver, author: str
):
    """The first pod that was refused is admitted again, and another one is not."""
    workload(model, "statefulsets", "shop")
    model.admission = forbidding(names.PROXY_CONFIG)
    want(model)
    async with looking(model) as service:
        await until(service.told)
        forbid = forbidding(names.PROXY_CONFIG)

        def admission(pod: Object) -> Object:
            if pod["metadata"]["labels"].get("app") != "shop":
                return pod
            try:
                return forbid(pod)
            except Refused as error:
                raise Refused(str(error).replace("no-overrides", author)) from error

        model.admission = admission
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 4)
        is_news = author != "no-overrides"
        assert (found(model)["changes"], service.told()) == ({"hold"}, 1 + is_news)
        (refused,) = stored(model).changes.values()
        assert refused.author == f"ValidatingAdmissionPolicy {author}"


def held_and_forbidden(pod: Object) -> Object:
    """Apply the change of this charm's webhook to a pod, and then a policy."""
    if names.MESH_PROBE not in pod["metadata"]["labels"]:
        annotations = {**pod["metadata"].get("annotations", {}), names.PROXY_CONFIG: "{}"}
        pod = {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
    return forbidding(names.PROXY_CONFIG)(pod)


async def test_policy_that_comes_later_is_found_by_the_pod_that_is_lacking(model: FakeApiserver):
    want(model)
    async with looking(model) as service:
        await until(lambda: looked(model) > 1)
        model.admission = held_and_forbidden
        workload(model, "deployments", "shop", present=0)
        sets = ((9, "shop-b", "shop"), (10, "shop-a", "shop"), (11, "shop-2-a", "shop-2"))
        for number, name, owner in sets:
            revision = {"deployment.kubernetes.io/revision": str(number)}
            about = {"annotations": revision, "ownerReferences": owned("Deployment", owner)}
            workload(model, "replicasets", name, present=0, **about)
        model.tried.clear()
        await until(service.told)
    assert found(model) == {"changes": {"hold"}, "workloads": set()}
    assert {pod["metadata"]["generateName"] for pod in model.tried} == {"shop-a-"}


@pytest.mark.parametrize("kind", resources.WORKLOADS)
async def test_workload_whose_pods_are_refused_without_any_change_is_named(
    model: FakeApiserver, kind: str
):
    want(model)
    workload(model, f"{kind.lower()}s", "shop", present=0)
    if kind == "Deployment":
        workload(model, "replicasets", "shop-1", 0, ownerReferences=owned(kind, "shop"))

    def admission(pod: Object) -> Object:
        if pod["metadata"]["labels"].get("app", "").startswith("shop"):
            raise refusal(POLICY.replace("no-overrides", "no-shops"))
        return pod

    model.admission = admission
    async with looking(model) as service:
        await until(service.told)
        assert found(model) == {"changes": set(), "workloads": {f"{kind}/shop"}}
        # Another policy refuses a change only.
        model.admission = held_and_forbidden
        await until(lambda: service.told() == 2)
        assert found(model) == {"changes": {"hold"}, "workloads": set()}
        model.admission = lambda pod: pod
        await until(lambda: service.told() == 3)
        assert found(model) == {"changes": set(), "workloads": set()}


async def test_unit_that_stands_by_tries_nothing(model: FakeApiserver):
    want(model)
    async with looking(model, leader=False):
        await asyncio.sleep(60)
    assert (model.tried, stored(model)) == ([], rejections.Rejections())


def job(model: FakeApiserver, name: str, kind: str = "jobs", **fields: Any) -> None:
    """Create a Job or a CronJob, whose pods have a label of their own."""
    spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "train"}]}
    of_job = {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}}
    fields.setdefault("spec", {"jobTemplate": {"spec": of_job}} if kind == "cronjobs" else of_job)
    model.put(kind, {"metadata": {"name": name, "namespace": MODEL}, **fields})


def is_native(pod: Object) -> bool:
    return names.NATIVE_SIDECAR in pod["metadata"].get("annotations", {})


def served(pod: Object) -> Object:
    """Apply the native sidecar that this charm's webhook requests for pods of Jobs."""
    meta = pod["metadata"]
    if names.MESH_PROBE not in meta["labels"] and pod["spec"]["restartPolicy"] == "Never":
        pod = {**pod, "metadata": {**meta, "annotations": {names.NATIVE_SIDECAR: "true"}}}
    return pod


def refusing(message: str, code: int) -> Callable[[Object], Object]:
    """Reject pods with a native sidecar, and name the pod in the message."""
    numbers = itertools.count()

    def admission(pod: Object) -> Object:
        if is_native(pod := served(pod)):
            ends = ("bcdfg", "x7k2p", "zz9vw")[next(numbers) % 3]
            raise Refused(message.format(pod["metadata"]["generateName"] + ends), code)
        return pod

    return admission


def dropping(pod: Object) -> Object:
    """Inject a native sidecar, and drop its restartPolicy as a webhook with old types does."""
    if is_native(pod := served(pod)):
        return {**pod, "spec": {**pod["spec"], "initContainers": [{"name": "istio-proxy"}]}}
    return pod


INVALID = 'Pod "{0}" is invalid: spec'
LOST = ".initContainers[1].startupProbe: Forbidden: may not be set for init containers without"
INJECTOR = "namespace.sidecar-injector.istio.io"
APISERVER, UNNAMED = "kube-apiserver", "another team's webhook"


@cases(
    ("admission", "author"),
    policy=(
        refusing('pods "{0}" is forbidden: ' + POLICY, 403),
        "ValidatingAdmissionPolicy no-overrides",
    ),
    webhook=(
        refusing('admission webhook "a.b" denied the request: kf/{0} is native', 400),
        'webhook "a.b"',
    ),
    webhook_that_fails=(
        refusing('Internal error occurred: failed calling webhook "a.b": {0}: EOF', 500),
        'webhook "a.b"',
    ),
    istiod=(
        refusing(f'admission webhook "{INJECTOR}" denied the request: {{0}}: odd', 400),
        f'webhook "{INJECTOR}"',
    ),
    duplicate=(
        refusing(INVALID + '.containers[1].name: Duplicate value: "istio-proxy"', 422),
        APISERVER,
    ),
    patch=(refusing("Internal error occurred: add operation does not apply: {0}", 500), APISERVER),
    dropped_and_invalid=(refusing(f"{INVALID}{LOST} restartPolicy=Always", 422), UNNAMED),
    dropped=(dropping, f"{UNNAMED} refuses: it removes restartPolicy from init containers"),
)
@pytest.mark.parametrize("kind", ["jobs", "cronjobs"])
async def test_change_that_breaks_pods_of_jobs_is_left_out(
    model: FakeApiserver, kind: str, admission: Callable[[Object], Object], author: str
):
    """The Job comes after the charm, and the other team's admission judges only its pods."""
    for end in ("Complete", "Failed"):
        job(model, end, status={"conditions": [{"type": end, "status": "True"}]})
    want(model, native=True)
    async with looking(model) as service:
        await until(lambda: looked(model) > 1)
        tried = {pod["metadata"]["labels"].get("app") for pod in model.tried}
        assert not tried & {"Complete", "Failed"}
        model.admission = lambda pod: (
            admission(pod) if pod["metadata"]["labels"].get("app") == "train-2" else pod
        )
        job(model, "train-2", kind)
        await until(service.told)
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 3)
        assert service.told() == 1
        (refused,) = stored(model).changes.items()
        assert refused[0] == "native"
        assert str(refused[1]).startswith(author)
        assert "train-2-" not in refused[1].words
        tried = next(p for p in model.tried if p["metadata"]["labels"].get("app") == "train-2")
        assert tried["metadata"]["ownerReferences"][0]["kind"] == "Job"
        # The policy goes after the Job.
        model.delete(kind, MODEL, "train-2")
        model.admission = lambda pod: pod
        await until(lambda: service.told() == 2)
    assert found(model) == {"changes": set(), "workloads": set()}


@cases(
    "sample",
    server={"restartPolicy": "Always"},
    task={"restartPolicy": "Never"},
    this_charm={"app.kubernetes.io/name": "mesh-2"},
)
async def test_change_is_tried_before_pods_of_its_kind_exist(
    model: FakeApiserver, sample: dict[str, str]
):
    """Only future pods of one kind are refused."""
    change = names.INJECT if "restartPolicy" not in sample else names.PROXY_CONFIG

    def admission(pod: Object) -> Object:
        meta = pod["metadata"]
        about = {**pod["spec"], **meta.get("labels", {})}
        is_own = sample.items() <= about.items() and "app" not in about
        return forbidding(change)(pod) if is_own else pod

    model.admission = admission
    want(model)
    async with looking(model) as service:
        await until(service.told)
    assert len(found(model)["changes"]) == 1


async def test_newest_jobs_are_tried(model: FakeApiserver):
    """Neither the names nor the order of the list tell their age."""
    days = range(1, 52)
    for day in reversed(days):
        created = f"2026-{1 + day // 28:02}-{1 + day % 28:02}T00:00:00Z"
        about = {"name": f"job-{99 - day}", "namespace": MODEL, "creationTimestamp": created}
        job(model, about["name"], metadata=about)
    want(model)
    async with looking(model):
        await until(lambda: looked(model) > 1)
    tried = {pod["metadata"]["labels"].get("app") for pod in model.tried} - {None, "web", "mesh-2"}
    assert tried == {f"job-{99 - day}" for day in days if day > 1}


async def test_change_that_replaces_a_forbidden_one_is_tried_too(model: FakeApiserver):
    """Without a native sidecar a Job's pod would be held, which the policy forbids as well."""

    def admission(pod: Object) -> Object:
        if pod["metadata"]["labels"].get("app") != "train":
            return pod
        return forbidding(names.PROXY_CONFIG)(forbidding(names.NATIVE_SIDECAR)(pod))

    job(model, "train")
    model.admission = admission
    want(model, native=True)
    async with looking(model) as service:
        await until(service.told)
    assert found(model) == {"changes": {"native", "hold"}, "workloads": set()}


@pytest.mark.parametrize("kind", ["jobs", "statefulsets"])
async def test_workload_whose_pods_the_injector_makes_invalid_is_told_once(
    model: FakeApiserver, kind: str
):
    """The words of the API server have another random name each time."""
    if kind == "jobs":
        job(model, "thin")
    else:
        workload(model, kind, "thin", present=0)
    want(model, native=True)
    numbers = itertools.count()

    def admission(pod: Object) -> Object:
        labels = pod["metadata"]["labels"]
        if labels.get("app") == "thin" and labels.get(names.INJECT) != "false":
            name = pod["metadata"].get("generateName", "thin-")
            name += ("bcdfg", "x7k2p")[next(numbers) % 2]
            raise Refused(f'Pod "{name}" is invalid: spec.resources: {name} has too little', 422)
        return pod

    model.admission = admission
    async with looking(model) as service:
        await until(service.told)
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 5)
        assert service.told() == 1
        assert found(model) == {"changes": set(), "workloads": set()}
        (refused,) = stored(model).sidecars.items()
        assert refused[0] == ("Job/thin" if kind == "jobs" else "StatefulSet/thin")
        if kind == "jobs":
            assert str(refused[1]) == "kube-apiserver refuses: spec.resources: thin has too little"
        model.delete(kind, MODEL, "thin")
        await until(lambda: service.told() == 2)
    assert stored(model).sidecars == {}


ISTIOD_AWAY = f'failed calling webhook "{INJECTOR}": refused'


@cases(
    "answer",
    busy=(429, "too many requests, please try again later"),
    away=(503, "the server is currently unable to handle the request"),
    istiod_away=(500, f"Internal error occurred: {ISTIOD_AWAY}"),
    no_dry_runs=(400, 'admission webhook "a.b" does not support dry run'),
)
async def test_answer_that_is_not_about_the_pod_changes_nothing(
    model: FakeApiserver, answer: tuple[int, str]
):
    code, message = answer
    job(model, "train")
    model.admission = forbidding(names.PROXY_CONFIG)
    want(model, native=True)
    async with looking(model) as service:
        await until(service.told)

        def admission(pod: Object) -> Object:
            if is_native(pod):
                raise Refused(message, code)
            return forbidding(names.PROXY_CONFIG)(pod)

        model.admission = admission
        want(model, native=True, excluded_pods="app=none")
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 3)
        assert (found(model)["changes"], service.told()) == ({"hold"}, 1)
        model.admission = refuse(message, code)
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 3)
        # Where a webhook knows no dry runs, none is left out.
        is_known = code != 400
        assert (found(model)["changes"], service.told()) == (
            {"hold"} if is_known else set(),
            2 - is_known,
        )


@cases(("kind", "name"), controller_that_is_not_read=("CloneSet", "x"), job=("Job", "train"))
async def test_event_of_a_failure_starts_a_trial(model: FakeApiserver, kind: str, name: str):
    def admission(pod: Object) -> Object:
        is_other = kind == "Job" and pod["metadata"]["labels"].get("app") != name
        return pod if is_other else forbidding(names.NATIVE_SIDECAR)(served(pod))

    def happen(name: str, reason: str = "FailedCreate") -> None:
        event = {"reason": reason, "involvedObject": {"kind": kind, "name": name}}
        model.put("events", {**event, "metadata": {"name": f"{name}.1", "namespace": MODEL}})

    want(model, native=True)
    job(model, "train")
    happen("earlier")
    async with looking(model) as service:
        await until(lambda: looked(model) > 1)
        model.admission = admission
        happen(name, "BackOff")
        looks = looked(model)
        await until(lambda: looked(model) >= looks + 2)
        assert not service.told()
        happen(name)
        await until(service.told)
    assert found(model)["changes"] == {"native"}
