"""Images of Kubeflow's controllers, for a few tests: built when one asks, not with all others."""

from collections.abc import Callable, Mapping

from testbed import paths, programs
from testbed.images.recipes import Recipe
from testbed.images.store import Layer, Workshop
from testbed.images.tree import Tree, content_key


def _alone(name: str, path: str, user: str) -> Recipe:
    """Return an image of one static program and a directory for scratch files."""
    source = programs.binary(name)

    def make(tree: Tree, workshop: Workshop) -> None:
        programs.ensure([source.parent.parent.name.rpartition("-")[0]], workshop.progress)
        tree.directory("tmp", mode=0o1777)
        tree.file(path, source, mode=0o755)

    key = content_key(name, str(source.relative_to(paths.cache())), path)
    return Recipe(
        layers=[Layer(name=name, key=key, make=make)],
        config={"Entrypoint": [f"/{path}"], "Env": ["PATH=/bin"], "User": f"{user}:{user}"},
    )


RECIPES: Mapping[str, Callable[[], Recipe]] = {
    # Argo's controller starts it by its name.
    "argoexec": lambda: _alone("argoexec", "bin/argoexec", "0"),
    "jobset": lambda: _alone("jobset", "manager", "65532"),
    "kuberay": lambda: _alone("ray-operator", "manager", "65532"),
    "trainer": lambda: _alone("trainer", "manager", "65532"),
    "workflow-controller": lambda: _alone("workflow-controller", "manager", "8737"),
}
"""Each image's recipe. The users are those that the projects' own images have."""
