"""What makes a thousand runs of a charm quick: the same text is parsed once in a process."""

import functools
import pickle
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from httpx2 import _urlparse, _urls
from ops import charm, pebble
from ops_tracing import _backend
from scenario import _runtime
from scenario import state as scenario_state


class _Yaml:
    """What Scenario and ops use of YAML: by libyaml, each text and value once."""

    @staticmethod
    @functools.lru_cache(4096)
    def _loaded(text: str) -> bytes:
        return pickle.dumps(yaml.load(text, Loader=yaml.CSafeLoader))

    @staticmethod
    @functools.lru_cache(4096)
    def _dumped(data: bytes) -> str:
        return yaml.dump(pickle.loads(data), Dumper=yaml.CSafeDumper)

    @classmethod
    def safe_load(cls, text: str) -> Any:
        return pickle.loads(cls._loaded(text))

    @classmethod
    def safe_dump(cls, data: Any) -> str:
        return cls._dumped(pickle.dumps(data))


_load_all = yaml.load_all


@functools.lru_cache(4096)
def _documents(text: str, loader: Any) -> bytes:
    return pickle.dumps([*_load_all(text, loader)])


def _load_all_once(text: Any, Loader: Any) -> Any:  # noqa: N803 - the library's name
    """Load documents of our templates, which are one text."""
    if isinstance(text, str):
        return pickle.loads(_documents(text, Loader))
    return _load_all(text, Loader)


@functools.cache
def install() -> None:
    """Have what hooks parse be remembered until the process ends."""
    if yaml.__with_libyaml__:
        for module in (_runtime, scenario_state, charm, pebble, _backend):
            vars(module)["yaml"] = _Yaml
    yaml.load_all = _load_all_once
    # To see that an RSA key is one takes longer than to sign with it.
    load_key = serialization.load_pem_private_key
    vars(serialization)["load_pem_private_key"] = functools.lru_cache(1024)(load_key)
    # A parsed URL is a tuple, and the same few hundred are parsed a hundred thousand times.
    _urlparse.urlparse = _urls.urlparse = functools.lru_cache(16384)(_urlparse.urlparse)
