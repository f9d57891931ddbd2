"""Do the versions of istiod, kubelets and proxies go together?"""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from istio_integrator.diagnosis.checks import versions
from istio_integrator.mesh import probe
from tests.unit.charm.diagnosis.objects import ALIVE

MINORS = st.tuples(st.just(1), st.integers(0, 40))


@given(MINORS, MINORS)
def test_proxy_is_supported_up_to_one_version_before_istiod(own, proxy):
    found = dataclasses.replace(ALIVE, version=f"{own[0]}.{own[1]}.0")
    said = list(
        versions.judge(found, ["v1.36.3"], {"Pod a/b": f"1.{proxy[1]}.5"}, application="app")
    )
    text = " ".join(each.seen for each in said)
    assert ("older than" in text) == (proxy[1] < own[1] - 1)
    assert ("newer than" in text) == (proxy[1] > own[1])


@pytest.mark.parametrize(
    ("version", "words"),
    [
        pytest.param("1.23.4", "nativeSidecar", id="no-annotation"),
        pytest.param("1.25.0", "drain for 5 s", id="drains"),
        pytest.param("1.26.0", "istiod 1.26.0, kubelets 1.30.1, 1.36.3", id="no-limit"),
        pytest.param("", "istiod unknown, so what it lacks is not judged", id="unknown"),
    ],
)
def test_version_is_judged_by_its_known_limits(version, words):
    found = dataclasses.replace(ALIVE, version=version)
    said = list(versions.judge(found, ["v1.36.3", "v1.30.1"], {}, application="app"))
    assert words in said[0].seen
    assert (said[0].level.value == "!") == (version in ("1.23.4", "1.25.0"))


def test_proxies_whose_image_has_a_digest_alone_are_named_and_not_judged():
    proxies = {"Pod a/known": "1.31.1", "Pod a/pinned": ""}
    (said,) = versions.judge(ALIVE, ["v1.36.3"], proxies, application="app")
    assert said.level.value == "✓"
    assert said.seen.endswith("; not judged, as no tag tells their version: Pod a/pinned")


def test_kubelet_that_is_too_old_for_the_wish_is_named():
    found = dataclasses.replace(ALIVE, native_warning="a node's kubelet is 1.30: beta there")
    (said,) = versions.judge(found, ["v1.30.0"], {}, application="app")
    assert "1.30" in said.seen


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("docker.io/istio/proxyv2:1.31.1", "1.31.1"),
        ("registry:5000/proxyv2:1.29-distroless", "1.29"),
        ("proxyv2@sha256:0123", ""),
        ("registry:5000/istio/proxyv2@sha256:1231", ""),
        ("proxyv2:latest", ""),
    ],
)
def test_version_of_a_proxy_is_its_images_tag(image, want):
    given = {"spec": {"containers": [{"name": "istio-proxy", "image": image}]}}
    assert probe.read(given).version == want
