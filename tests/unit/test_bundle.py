"""The overlays of bundle/ have the relations that bundles of Charmed Kubeflow have."""

import collections
import pathlib

import pytest
import yaml

from juju_standin.controller import operations
from juju_standin.controller.store import Store

ROOT = pathlib.Path(__file__).parents[2]
APP = "istio-integrator"
OVERLAYS = sorted((ROOT / "bundle").glob("*.yaml"))
METADATA = yaml.safe_load((ROOT / "metadata.yaml").read_text())
BUNDLES = yaml.load(
    (pathlib.Path(__file__).parent / "kubeflow_bundles.yaml").read_text(), yaml.BaseLoader
)
RELEASES = sorted(BUNDLES.keys() - {"removed"})


def overlay(release):
    return yaml.safe_load((ROOT / f"bundle/kubeflow-{release}-overlay.yaml").read_text())


def kept(release):
    """Return the relations that the bundle has with istio-pilot, but for those of its gateway."""
    gone = tuple(f"{name}:" for name in BUNDLES["removed"])
    return [row for row in BUNDLES[release] if not row[1].startswith(gone)]


def test_every_release_has_its_overlay():
    assert [path.name for path in OVERLAYS] == [
        f"kubeflow-{each}-overlay.yaml" for each in RELEASES
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_overlay_replaces_istio_by_this_charm(release):
    applications = overlay(release)["applications"]
    added = applications.pop(APP)
    assert applications == dict.fromkeys(BUNDLES["removed"])
    assert added == {"charm": METADATA["name"], "scale": 1, "trust": True}


@pytest.mark.parametrize("release", RELEASES)
def test_overlay_relates_each_application_of_the_bundle_once(release):
    relations = [tuple(sorted(each)) for each in overlay(release)["relations"]]
    wanted = [tuple(sorted((f"{APP}:{ours}", theirs))) for ours, theirs, _ in kept(release)]
    assert sorted(relations) == sorted(wanted)
    partners = [end for each in relations for end in each if not end.startswith(f"{APP}:")]
    assert len(partners) == len({*partners}) == 12


@pytest.mark.parametrize("release", RELEASES)
def test_juju_accepts_each_relation_of_the_overlay(release, tmp_path):
    model = operations.add_model(Store(tmp_path), "kubeflow", "uuid", {})
    partners = collections.defaultdict(dict)
    for _, theirs, interface in kept(release):
        name, _, endpoint = theirs.partition(":")
        partners[name][endpoint] = {"role": "requires", "interface": interface}
    partners[APP] = {
        endpoint: {"role": role, "interface": entry["interface"]}
        for role in ("provides", "requires")
        for endpoint, entry in METADATA[role].items()
    }
    for name, endpoints in partners.items():
        operations.fake_application(model, name, endpoints)
    for first, second in overlay(release)["relations"]:
        operations.integrate(model, first, second)
