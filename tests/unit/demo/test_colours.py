import contextlib
import os
import pty

import pytest

from demo import report, view


@pytest.fixture
def show(monkeypatch):
    """Show a line of the demonstration on something that is opened to be written."""
    for ignored in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(ignored, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    def show(output):
        with contextlib.redirect_stdout(output), view.showing(list, plain=False) as shown:
            shown.line(report.Line(1.0, "missed", "it is so"))

    return show


def test_colours_are_for_terminals_only(show, tmp_path):
    screen, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as output:
        show(output)
    shown = b""
    # What ends the screen is an error: nobody has the terminal open any more.
    with contextlib.suppress(OSError):
        while part := os.read(screen, 4096):
            shown += part
    os.close(screen)
    kept = tmp_path / "output"
    with kept.open("w") as output:
        show(output)
    assert b"\x1b[1;31mit is so\x1b[0m" in shown
    assert kept.read_text() == "    1.0 s  ✗ it is so\n"
