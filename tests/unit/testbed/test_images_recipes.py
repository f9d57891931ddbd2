import platform
import tarfile

import pytest

from testbed import images, paths
from testbed.images import recipes
from tests import needs

SHELLS = {"sh", "bash", "dash", "ash", "busybox", "curl", "wget", "perl", "python3"}


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "agent"
    folder.mkdir()
    (folder / "main.py").write_text("def main(): ...\n")
    return folder


def key(source, launchers) -> str:
    return recipes._code("agent", source, "/opt/agent", launchers).key


def test_code_layer_key_changes_with_the_code_and_the_launchers(source):
    before = key(source, {"opt/a": "agent.main"})
    assert key(source, {"opt/a": "agent.main"}) == before
    assert key(source, {"opt/b": "agent.main"}) != before
    (source / "main.py").write_text("def main(): return 1\n")
    assert key(source, {"opt/a": "agent.main"}) != before


def test_recipe_key_changes_with_configuration_and_order():
    layers = [recipes._layer("a", lambda *_: None), recipes._layer("b", lambda *_: None)]
    one = recipes.Recipe(layers=layers, config={"User": "0"})
    assert recipes.Recipe(layers=layers, config={"User": "0"}).key == one.key
    assert recipes.Recipe(layers=layers, config={"User": "1"}).key != one.key
    assert recipes.Recipe(layers=layers[::-1], config={"User": "0"}).key != one.key


def test_image_whose_sources_are_missing_is_refused_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(recipes, "_TESTBED", tmp_path)
    with pytest.raises(images.ImageError, match=r"image charm: .*agent is missing"):
        images.reference("charm")


@pytest.mark.parametrize("name", [*images.NAMES, *images.ON_DEMAND])
def test_reference_is_stable_and_names_content(name):
    reference = images.reference(name)
    assert reference == images.reference(name)
    repository, tag = reference.rsplit(":", 1)
    assert repository == f"localhost/testbed/{name}"
    assert len(tag) == 16


@pytest.mark.parametrize(
    ("name", "last"),
    [("workload", "workload-code"), ("charm", "agent"), ("app", "payload")],
)
def test_what_is_edited_most_is_the_last_layer_above_the_common_base(name, last):
    layers = recipes.recipe(name).layers
    assert layers[0].name == "base"
    assert layers[-1].name == last
    assert layers[0].key == recipes.recipe("app").layers[0].key


@pytest.mark.parametrize("name", ["pilot", "proxy", "workload", "pause", "training-operator"])
def test_images_that_must_not_run_as_root_have_a_numeric_user(name):
    user = recipes.recipe(name).config["User"]
    assert user.split(":")[0].isdecimal()
    assert not user.startswith("0")


def test_built_proxy_has_what_istio_needs_and_no_shell():
    if not images.is_built("proxy"):
        needs.leave_out("the proxy image is not built yet")
    image = images.build(["proxy"])["proxy"]
    names: dict[str, tarfile.TarInfo] = {}
    for layer in image.layers:
        with tarfile.open(layer.path) as tar:
            names.update({member.name: member for member in tar})
    assert not SHELLS & {name.rsplit("/", 1)[-1] for name in names}
    assert {
        "usr/local/bin/envoy",
        "usr/local/bin/pilot-agent",
        "usr/sbin/iptables",
        "usr/sbin/iptables-restore",
        "var/lib/istio/envoy/envoy_bootstrap_tmpl.json",
    } <= set(names)
    assert names["etc/istio/proxy"].uid == 1337


def test_images_live_in_the_shared_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert images.is_built("pause") is False
    assert (paths.cache() / "images" / "layers").is_dir()


def test_charms_for_a_newer_python_have_an_image_of_a_later_release(monkeypatch):
    release = {"ID": "debian", "VERSION_CODENAME": "bookworm"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    usual, newer = recipes.recipe("charm").layers, recipes.recipe("charm-newer").layers
    same = {
        layer.name for layer, other in zip(usual, newer, strict=True) if layer.key == other.key
    }
    assert same == {"pebble", "jujuc"}
    assert "charm-newer" not in images.DEFAULT


def test_release_without_a_later_one_has_the_same_image_for_all_charms(monkeypatch):
    release = {"ID": "ubuntu", "VERSION_CODENAME": "noble"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    assert recipes.recipe("charm").key == recipes.recipe("charm-newer").key
