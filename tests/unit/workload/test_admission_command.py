"""The settings file and the command line of `admission`."""

import json

import pytest
from sidecar_lifecycle.shell import admission_settings as settings
from sidecar_lifecycle.shell import cli


def test_setting_that_is_wrong_is_named():
    with pytest.raises(settings.SettingsError, match="unknown field `hold`"):
        settings.load(json.dumps({"application": "a", "model": "m", "hold": True}))


@pytest.mark.parametrize("text", ["", "[]", "{}", "{" * 100_000])
def test_what_is_no_settings_file_is_refused(text):
    with pytest.raises(settings.SettingsError):
        settings.load(text)


def test_settings_that_are_too_long_are_refused_unread(tmp_path):
    path = tmp_path / "settings.json"
    path.write_bytes(b" " * (settings.LARGEST + 1))
    with pytest.raises(settings.SettingsError, match="has more than 1024 KiB"):
        settings.read(path)


def test_settings_in_another_encoding_are_refused_as_such():
    with pytest.raises(settings.SettingsError, match="this is not UTF-8 text"):
        settings.load('{"application": "\xe4"}'.encode("latin-1"))


def test_an_admission_server_without_its_files_says_so(tmp_path, capsys):
    code = cli.main(
        ["admission", "--settings", str(tmp_path / "none"), "--tls-dir", str(tmp_path)]
    )

    assert code == 2
    assert "none" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["8443", "host:", "host:99999"])
def test_an_address_without_a_port_is_refused(address, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["admission", "--settings", "s", "--tls-dir", "t", "--listen", address])

    assert caught.value.code == 2
    assert "is not [HOST]:PORT" in capsys.readouterr().err
