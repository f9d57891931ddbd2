"""What the charm's unit tests share, and what makes a thousand runs of a charm quick."""

import functools
import pickle
import sys

import ops
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from httpx2 import _urlparse, _urls
from ops import charm, pebble, testing
from scenario import _runtime
from scenario import state as scenario_state

import charm as our_charm
from istio_integrator.kube import manifests
from tests.unit.charm import charm_world, fake_cluster, ingress_world


class _Yaml:
    """What Scenario and ops use of YAML: by libyaml, and each text and value once."""

    @staticmethod
    @functools.lru_cache(4096)
    def _loaded(text):
        return pickle.dumps(yaml.load(text, Loader=yaml.CSafeLoader))

    @staticmethod
    @functools.lru_cache(4096)
    def _dumped(data):
        return yaml.dump(pickle.loads(data), Dumper=yaml.CSafeDumper)

    @staticmethod
    @functools.lru_cache(4096)
    def _all(text, loader):
        return pickle.dumps([*yaml.load_all(text, Loader=loader)])

    @classmethod
    def load_all(cls, text, *, Loader):  # noqa: N803 - the library's name
        return pickle.loads(cls._all(text, Loader))

    @classmethod
    def safe_load(cls, text):
        return pickle.loads(cls._loaded(text))

    @classmethod
    def safe_dump(cls, data):
        return cls._dumped(pickle.dumps(data))


if yaml.__with_libyaml__:
    for _module in (_runtime, scenario_state, charm, pebble):
        vars(_module)["yaml"] = _Yaml
vars(manifests)["yaml"] = _Yaml

# To see that an RSA key is one takes longer than to sign with it.
_load_key = serialization.load_pem_private_key
vars(serialization)["load_pem_private_key"] = functools.lru_cache(1024)(_load_key)

# A parsed URL is a tuple, and the same few hundred are parsed a hundred thousand times.
_urlparse.urlparse = _urls.urlparse = functools.lru_cache(16384)(_urlparse.urlparse)

# Spans are a tenth of a hook's time, and few tests look at them.
_TRACING, _SPANS = vars(ops)["tracing"], "ops_tracing._mock"
vars(ops)["tracing"] = None
sys.modules[_SPANS] = None  # pyright: ignore[reportArgumentType] - importing it fails then


@pytest.fixture
def traced(monkeypatch) -> None:
    """Have hooks make spans, as they do where a collector is related."""
    monkeypatch.setattr(ops, "tracing", _TRACING)
    monkeypatch.delitem(sys.modules, _SPANS)


@pytest.fixture
def fake() -> fake_cluster.FakeCluster:
    """Return a cluster with a model `kubeflow` and one node, without Istio."""
    return charm_world.model()


@pytest.fixture
def ctx(fake, monkeypatch) -> testing.Context[our_charm.IstioIntegrator]:
    """Return what runs hooks of the charm against that cluster."""
    charm_world.connect(fake, monkeypatch)
    return testing.Context(our_charm.IstioIntegrator)


@pytest.fixture
def world(fake, monkeypatch) -> ingress_world.World:
    """Return a model that may have an ingress, with a gateway in that cluster."""
    ingress_world.connect(fake, monkeypatch)
    return ingress_world.World(fake)
