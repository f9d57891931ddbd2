"""Container images of the testbed, built without a container engine and without a registry.

An image is a list of layers, each cached by the content of what it is made from. Loading sends
containerd only the layers that it does not have, so an edit of our code costs one small layer.
"""

import contextlib
import io
import subprocess
from collections.abc import Collection, Iterable, Sequence

from testbed import paths
from testbed.images import archive, debian, parts, python, recipes
from testbed.images.archive import Image
from testbed.images.errors import ImageError
from testbed.images.store import Store
from testbed.progress import Progress, say

__all__ = [
    "DEFAULT", "NAMES", "ON_DEMAND", "Image", "ImageError", "archive", "build", "debian",
    "is_built", "load", "python", "reference",
]  # fmt: skip

NAMES = tuple(recipes.RECIPES)
"""Every image but those of `ON_DEMAND`."""
DEFAULT = tuple(name for name in NAMES if name not in recipes.ON_DEMAND)
ON_DEMAND = tuple(parts.RECIPES)
"""For a few tests, after minutes of compiling."""


def reference(name: str) -> str:
    """Return the full name of an image, with its content as the tag; builds nothing."""
    return f"localhost/testbed/{name}:{_recipe(name).key[:16]}"


def is_built(name: str) -> bool:
    """Say whether the cache has the whole image."""
    store = _store()
    return all(store.find(layer) for layer in _recipe(name).layers)


def build(names: Iterable[str] = DEFAULT, progress: Progress = say) -> dict[str, Image]:
    """Build the layers that the cache lacks.

    Args:
        names: which images.
        progress: called with a line now and then while something is built.

    Returns:
        The images by name.

    Raises:
        ImageError: when one can't be built.
    """
    store = _store(progress)
    images: dict[str, Image] = {}
    for name in names:
        recipe = _recipe(name)
        layers = [store.get(layer) for layer in recipe.layers]
        images[name] = Image(
            reference=f"localhost/testbed/{name}:{recipe.key[:16]}",
            config=recipe.config,
            layers=layers,
        )
    return images


def load(names: Iterable[str], ctr: Sequence[str], progress: Progress = say) -> dict[str, str]:
    """Build images and load into containerd what it lacks of them.

    Args:
        names: which images.
        ctr: the command line of `ctr` with its address and namespace.
        progress: called with a line now and then while something is built.

    Returns:
        The reference of each image as it was loaded.

    Raises:
        ImageError: when one can't be built or loaded.
    """
    images = build(names, progress)
    known = set(_listed([*ctr, "images", "list", "--quiet"]))
    wanted = [image for image in images.values() if image.reference not in known]
    if wanted:
        present = _listed([*ctr, "content", "list", "--quiet"])
        try:
            _import(wanted, ctr, present)
        except ImageError:
            if not present:
                raise
            # containerd may have collected a blob between the listing and the import.
            _import(wanted, ctr, ())
    return {name: image.reference for name, image in images.items()}


def prune() -> None:
    """Remove from the cache the layers that no image has used for two weeks."""
    _store().prune()


def _recipe(name: str) -> recipes.Recipe:
    return parts.RECIPES[name]() if name in parts.RECIPES else recipes.recipe(name)


def _store(progress: Progress = say) -> Store:
    return Store(paths.cache() / "images", progress)


def _listed(argv: Sequence[str]) -> list[str]:
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    if run.returncode:
        raise ImageError(f"ctr failed: {run.stderr.strip()[-500:]}")
    return run.stdout.split()


def _import(images: Sequence[Image], ctr: Sequence[str], present: Collection[str]) -> None:
    argv = [*ctr, "images", "import", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe) as process:
        assert isinstance(process.stdin, io.BufferedWriter)
        assert process.stderr is not None
        # When ctr ends early, what it said is more use than the broken pipe.
        with contextlib.suppress(BrokenPipeError), process.stdin as stream:
            archive.write(stream, images, present)
        said = process.stderr.read().decode(errors="replace")
    if process.returncode:
        raise ImageError(f"ctr images import failed: {said.strip()[-500:]}")
