"""The same by pytest-operator, for pipelines that have it: deploy, relate, toggle."""

from __future__ import annotations

import pathlib

import pytest
from pytest_operator.plugin import OpsTest

APP = "istio-integrator"
CERTIFICATES = "self-signed-certificates"


@pytest.mark.abort_on_fail
async def test_deploy(ops_test: OpsTest, charm: pathlib.Path, resources: dict[str, str]):
    assert ops_test.model is not None
    await ops_test.model.deploy(str(charm), application_name=APP, resources=resources, trust=True)
    await ops_test.model.wait_for_idle(apps=[APP], status="active", timeout=15 * 60)


@pytest.mark.abort_on_fail
async def test_relate(ops_test: OpsTest):
    assert ops_test.model is not None
    await ops_test.model.deploy(CERTIFICATES)
    await ops_test.model.integrate(f"{APP}:certificates", f"{CERTIFICATES}:certificates")
    await ops_test.model.wait_for_idle(apps=[APP, CERTIFICATES], status="active", timeout=15 * 60)


@pytest.mark.abort_on_fail
async def test_toggle(ops_test: OpsTest):
    assert ops_test.model is not None
    application = ops_test.model.applications[APP]
    shown = []
    for value in ("false", "true"):
        await application.set_config({"hold-application": value})
        await ops_test.model.wait_for_idle(apps=[APP], status="active", timeout=5 * 60)
        action = await application.units[0].run_action("show-manifests")
        await action.wait()
        shown.append(action.results["manifests"])
    assert shown[0] != shown[1]
