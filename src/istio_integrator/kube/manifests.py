"""Render a folder of templates, apply its objects and prune obsolete ones."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import jinja2
import yaml

from integrator_contract import names
from istio_integrator.kube import cluster, errors, owners

logger = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")
Context = Mapping[str, Any]
"""The variables of templates."""
TEMPLATES = pathlib.Path(__file__).parents[3] / "templates"

_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""A hook renders dozens of templates; libyaml parses them seven times as fast."""

_KIND_LINES = re.compile(r"^apiVersion: (\S+)\nkind: (\S+)$", re.MULTILINE)


def _to_yaml(value: Any) -> str:
    """Write a value so that YAML reads it back as it was.

    JSON escapes characters beyond the basic plane as surrogate pairs, which YAML reads as two
    characters.
    """
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda match: f"\\U{ord(match[0]):08x}", text)


@functools.cache
def _make_environment() -> jinja2.Environment:
    # The templates are YAML: values pass through `tojson`, so nothing is escaped as HTML.
    environment = jinja2.Environment(  # noqa: S701
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["tojson"] = _to_yaml  # pyright: ignore[reportUnknownMemberType]
    return environment


def _list_folders() -> list[str]:
    return sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir())


def _list_sources(folder: str) -> list[pathlib.Path]:
    return sorted((TEMPLATES / folder).glob("*.yaml.j2"))


def list_kinds(folder: str) -> list[cluster.Kind]:
    """List the kinds that a folder's templates can render.

    Each document of a template begins with a literal `apiVersion` line and `kind` line.
    """
    found: dict[cluster.Kind, None] = {}
    for path in _list_sources(folder):
        for api_version, name in _KIND_LINES.findall(path.read_text()):
            found[cluster.find_kind(api_version, name)] = None
    return list(found)


def render(folder: str, context: Context) -> list[cluster.Object]:
    """Render every template of a folder below `templates/`."""
    objects: list[cluster.Object] = []
    for path in _list_sources(folder):
        template = _make_environment().get_template(f"{folder}/{path.name}")
        objects += [obj for obj in yaml.load_all(template.render(context), Loader=_LOADER) if obj]
    return objects


class Manifests:
    """The objects that one application owns in the cluster."""

    def __init__(self, api: cluster.Cluster, *, model: str, application: str) -> None:
        self._cluster = api
        self._model = model
        self._application = application
        self.owner = names.name_owner(model, application)

    @property
    def secrets(self) -> dict[str, str]:
        """The names of the application's Secrets, by their folder."""
        return {
            "admission-certificates": names.name_object(self._application, "admission-tls"),
            "gateway-tls": f"istio-integrator.{self.owner}".lower(),
            "record": names.name_object(self._application, "record"),
        }

    def is_ours(self, obj: cluster.Object | None) -> bool:
        """Tell whether an object is the application's.

        Labels can be forged. Outside of the model the object also needs the ownerReference of all
        of the application's objects there.
        """
        metadata = cluster.at(obj, "metadata")
        if cluster.at(metadata, "labels").get(names.OWNER) != self.owner:
            return False
        if metadata.get("namespace", self._model) == self._model:
            return True
        known = {each["metadata"]["uid"] for each in self._anchors}
        return any(each.get("uid") in known for each in cluster.parts(metadata, "ownerReferences"))

    def apply(self, folder: str, context: Context) -> list[cluster.Object]:
        """Make the cluster match the rendered folder, and return the live objects.

        Every object is checked before the first write: if one has another owner, nothing changes.
        An object that is already up to date is not written.

        Raises:
            ForeignError: An object of that name exists and has another owner.
            KindAbsentError: The API server does not serve one of the kinds.
        """
        wanted = [self.add_ownership(folder, obj) for obj in render(folder, context)]
        # One list per kind returns all existing objects, however many.
        owned = {
            _make_key(obj): obj
            for kind in reversed(list_kinds(folder))
            for obj in self._read_owned(kind, folder)
        }
        live = [owned.pop(_make_key(obj), None) or self._find_live(obj) for obj in wanted]
        applied = [
            found if found is not None and is_current(found, obj) else self._cluster.apply(obj)
            for found, obj in zip(live, wanted, strict=True)
        ]
        self._delete(owned.values())
        return applied

    def dry_run(self, folder: str, context: Context) -> None:
        """Have the API server judge a folder's objects, as far as webhooks judge dry runs.

        Raises:
            ApiError: An object is rejected.
        """
        for obj in render(folder, context):
            try:
                self._cluster.apply(self.add_ownership(folder, obj), dry_run=True)
            except errors.ApiError as error:
                # A webhook with side effects cannot be tried.
                if "does not support dry run" not in error.message:
                    raise

    def apply_accepted(
        self,
        folder: str,
        parts: Mapping[K, Sequence[T]],
        context: Callable[[Sequence[T]], Context],
        *,
        is_dry_run: bool = False,
    ) -> dict[K, errors.ApiError]:
        """Apply a folder without the parts that the API server rejects, and return their errors.

        Each part alone renders to one object. A dry run changes nothing.

        Raises:
            ApiError: The folder is rejected, and separately either no part is or every part.
        """
        refused: dict[K, errors.ApiError] = {}
        write = self.dry_run if is_dry_run else self.apply
        try:
            write(folder, context([each for part in parts.values() for each in part]))
        except errors.ApiError as error:
            if not error.is_about_the_object:
                raise
            for key, part in parts.items():
                (obj,) = render(folder, context(part))
                obj["metadata"]["name"] = names.name_object(self._application, f"{folder}-tried")
                try:
                    self._cluster.create(self.add_ownership(folder, obj), dry_run=True)
                except errors.ApiError as found:
                    if not found.is_about_the_object:
                        raise
                    refused[key] = found
            if not 0 < len(refused) < len(parts):
                raise
            kept = [each for key, part in parts.items() if key not in refused for each in part]
            write(folder, context(kept))
        return refused

    def find_own(self, kind: cluster.Kind, name: str) -> cluster.Object | None:
        """Read an object in the model; None if it is missing or has another owner."""
        if kind == cluster.SECRET:
            found = self._cluster.get(kind, name, self._model)
            return found if self.is_ours(found) else None
        return next(
            (each for each in self._read_owned(kind) if each["metadata"]["name"] == name), None
        )

    def remove(self, folder: str) -> None:
        """Delete a folder's objects, of the kinds that the charm may list."""
        self._delete(self.list_owned_in(folder))

    def list_owned(self) -> list[cluster.Object]:
        """List the application's objects of all folders, of the kinds that the charm may list."""
        return [obj for folder in _list_folders() for obj in self.list_owned_in(folder)]

    def list_owned_of(self, kind: cluster.Kind, folder: str = "") -> list[cluster.Object]:
        """List the application's objects of a kind; empty if the right to list it is missing."""
        with self._cluster.skip_if_forbidden():
            return self._read_owned(kind, folder)
        return []

    def add_ownership(self, folder: str, obj: cluster.Object) -> cluster.Object:
        """Add labels, ownerReference and hash of the owner to a rendered object."""
        metadata = dict(obj["metadata"])
        metadata["labels"] = {
            **metadata.get("labels", {}),
            **names.make_labels(self._model, self._application, folder),
        }
        if cluster.KINDS[obj["apiVersion"], obj["kind"]].namespaced:
            metadata.setdefault("namespace", self._model)
        metadata["ownerReferences"] = [owners.make_owner_reference(self._anchor)]
        canonical = json.dumps({**obj, "metadata": metadata}, sort_keys=True)
        digest = hashlib.sha256(canonical.encode()).hexdigest()[:16]
        metadata["annotations"] = {**metadata.get("annotations", {}), names.APPLIED_HASH: digest}
        return {**obj, "metadata": metadata}

    def add_owner_reference(self, kind: cluster.Kind, name: str) -> None:
        """Add the application's ownerReference to an object of the workload in the model."""
        if obj := self._cluster.get(kind, name, self._model):
            wanted = [owners.make_owner_reference(self._anchor)]
            if obj["metadata"].get("ownerReferences") != wanted:
                self._cluster.merge_patch(obj, {"metadata": {"ownerReferences": wanted}})

    @functools.cached_property
    def _anchors(self) -> list[cluster.Object]:
        return owners.list_anchors(self._cluster, model=self._model, application=self._application)

    @functools.cached_property
    def _anchor(self) -> cluster.Object:
        return owners.find_anchor(self._cluster, self._anchors)

    def _find_live(self, obj: cluster.Object) -> cluster.Object | None:
        metadata = obj["metadata"]
        kind = cluster.KINDS[obj["apiVersion"], obj["kind"]]
        found = self._cluster.get(kind, metadata["name"], metadata.get("namespace"))
        if found is not None:
            owner = found["metadata"].get("labels", {}).get(names.OWNER, "")
            if owner != self.owner and not (owner and owners.is_gone(self._cluster, owner)):
                raise errors.ForeignError(cluster.reference(found), owner)
        return found

    def _delete(self, owned: Iterable[cluster.Object]) -> None:
        for obj in owned:
            if "deletionTimestamp" not in obj["metadata"]:
                self._cluster.delete(obj)

    def list_owned_in(self, folder: str) -> list[cluster.Object]:
        """List a folder's objects, as `list_owned_of` does, in the order of their removal."""
        return [
            obj
            for kind in reversed(list_kinds(folder))
            for obj in self.list_owned_of(kind, folder)
        ]

    def _read_owned(self, kind: cluster.Kind, folder: str = "") -> list[cluster.Object]:
        if kind == cluster.SECRET:
            # By name, because the right to list Secrets includes those of all applications.
            secrets = (self._find_secret(each) for each in self.secrets if folder in ("", each))
            return [*filter(None, secrets)]
        # EnvoyFilters are in the namespaces of the gateway and of training jobs.
        is_in_model = kind.namespaced and kind != cluster.ENVOY_FILTER
        place = self._model if is_in_model else None
        # One list for all folders, which the client keeps.
        found = self._cluster.list(kind, place, {names.OWNER: self.owner})
        return [obj for obj in found if self.is_ours(obj) and folder in ("", _read_component(obj))]

    def _find_secret(self, folder: str) -> cluster.Object | None:
        place = self._model
        if folder == "gateway-tls":
            # The gateway's certificate is in the namespace of its pods.
            annotations = cluster.at(self._find_secret("record"), "metadata", "annotations")
            place = annotations.get(names.CERTIFICATE_IN) or place
        found = self._cluster.get(cluster.SECRET, self.secrets[folder], place)
        return found if self.is_ours(found) else None


def _read_component(obj: cluster.Object) -> str:
    return str(obj["metadata"]["labels"].get(names.COMPONENT, ""))


def is_current(live: Any, wanted: Any) -> bool:
    """Tell whether a live object has every wanted field.

    Fields that other clients or the API server added do not matter. An obsolete field of this
    charm does: it changes the hash annotation, which is a wanted field.
    """
    if isinstance(wanted, dict):
        fields = cast("cluster.Object", wanted)
        return isinstance(live, dict) and all(
            key in live and is_current(live[key], value) for key, value in fields.items()
        )
    if isinstance(wanted, list):
        items = cast("list[Any]", wanted)
        found = cast("list[Any]", live) if isinstance(live, list) else []
        return len(found) == len(items) and all(map(is_current, found, items))
    return live == wanted


def _make_key(obj: cluster.Object) -> tuple[str, str, str]:
    metadata = obj["metadata"]
    return obj["kind"], metadata.get("namespace", ""), metadata["name"]
