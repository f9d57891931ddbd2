import dataclasses
import hashlib
import json
import os
from pathlib import Path

import pytest

from testbed import programs


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("go1.26.8", (1, 26, 8)),
        ("go1.26", (1, 26, 0)),
        ("go1.27rc1", (1, 27, 0)),
        ("devel +abc", ()),
    ],
)
def test_parse_version_reads_what_go_says(text: str, want: tuple[int, ...]):
    assert programs.parse_version(text) == want


@pytest.mark.parametrize("product", programs.PRODUCTS)
def test_every_product_is_pinned_and_names_a_go(product: str):
    recipe = programs.PRODUCTS[product]
    pins = Path(programs.__file__).parent / "go" / (recipe.pins or product)
    text = (pins / "go.mod").read_text()
    needs_others = "require" in text
    assert needs_others == (pins / "go.sum").exists()
    assert programs.required_go(product) >= (1, 26)
    for package in recipe.packages.values():
        assert package in text, "a tool line keeps it pinned"


def test_key_differs_between_products_and_stays():
    keys = {programs.key(product) for product in programs.PRODUCTS}
    assert len(keys) == len(programs.PRODUCTS)
    assert programs.key("etcd") == programs.key("etcd")


def test_key_changes_with_the_recipe(monkeypatch: pytest.MonkeyPatch):
    before = programs.key("etcd")
    recipe = programs.Product(packages={"etcd": "another"})
    monkeypatch.setattr(programs, "PRODUCTS", {**programs.PRODUCTS, "etcd": recipe})
    assert programs.key("etcd") != before


def test_key_changes_with_the_pins_that_products_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "istio").mkdir()
    mod = tmp_path / "istio" / "go.mod"
    mod.write_text("go 1.26.0\n")
    monkeypatch.setattr(programs, "PINS", tmp_path)
    before = [programs.key(product) for product in ("istio", "istio-cni")]
    assert len(set(before)) == 2
    mod.write_text("go 1.26.1\n")
    assert not {*before} & {programs.key(product) for product in ("istio", "istio-cni")}
    assert programs.required_go("istio-cni") == (1, 26, 1)


def test_products_without_links_have_the_key_that_they_would_have_if_there_were_none():
    """Or everything would be built anew for one product's sake."""
    recipe = dataclasses.asdict(programs.PRODUCTS["pause"])
    assert recipe.pop("links") == {}
    del recipe["pins"]
    folder = Path(programs.__file__).parent / "go" / "pause"
    digest = hashlib.sha256()
    for path in (folder / "go.mod", folder / "main.go"):
        digest.update(path.read_bytes())
    digest.update(json.dumps(recipe, sort_keys=True).encode())
    assert programs.key("pause") == digest.hexdigest()[:16]


@pytest.mark.parametrize("has_link", [True, False])
def test_program_whose_module_came_without_its_links_is_built_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_link: bool
):
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("module example.com/linked\n\ngo 1.26\n")
    (module / "main.go").write_text("package main\n\nfunc main() { elsewhere() }\n")
    (module / "any_windows.go").write_text("package main\n\nfunc elsewhere() {}\n")
    pins = tmp_path / "pins" / "linked"
    pins.mkdir(parents=True)
    required = "module testbed/linked\n\ngo 1.26.0\n\nrequire example.com/linked v0.0.0\n"
    replaced = "" if has_link else f"\nreplace example.com/linked => {module}\n"
    (pins / "go.mod").write_text(required + replaced)
    links = {"any_linux.go": ("example.com/linked", "any_windows.go")} if has_link else {}
    recipe = programs.Product(packages={"linked": "example.com/linked"}, links=links)
    monkeypatch.setattr(programs, "PINS", pins.parent)
    monkeypatch.setattr(programs, "_module_directory", lambda *_: module)
    monkeypatch.setattr(programs, "PRODUCTS", {"linked": recipe})
    monkeypatch.setattr(programs.paths, "cache", lambda: tmp_path / "cache")
    if not has_link:
        with pytest.raises(programs.ProgramError, match="undefined: elsewhere"):
            programs.ensure(["linked"])
        return
    built = programs.ensure(["linked"])["linked"]
    assert [path.name for path in built.iterdir()] == ["bin"]
    assert os.access(built / "bin" / "linked", os.X_OK)


def test_binary_of_an_unknown_program_is_an_error():
    with pytest.raises(KeyError):
        programs.binary("nonesuch")


def test_find_go_without_a_new_enough_one_says_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    old = tmp_path / "go"
    old.write_text("#!/bin/sh\necho go1.19\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(programs.ProgramError, match=r"Go 99\.0\.0 or newer.*go1\.19"):
        programs.find_go((99, 0, 0))


def test_find_go_prefers_the_one_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    new = tmp_path / "go"
    new.write_text("#!/bin/sh\necho go99.1\n")
    new.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert programs.find_go((99, 0, 0)) == new
