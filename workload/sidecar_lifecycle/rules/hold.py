"""The one text rule by which `proxy.istio.io/config` gets the hold.

The policy of the charm (`templates/admission-policy`) has the same regular expressions in CEL,
so they are written such that Python's `re` and RE2 agree on them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HOLD = "holdApplicationUntilProxyStarts"
ALONE = f'{{"{HOLD}": true}}'
LONGEST = 32768
"""In characters: no configuration is longer, and CEL's budget ends somewhere above."""

# Other line breaks of YAML, lone carriage returns and escapes that may spell a key differently:
# what a line is, or whether the key is there, could not be told by looking at the text.
ODD = r"[\x{85}\x{2028}\x{2029}]|\r[^\n]|\\[xuU\r\n]"
# Protobuf takes both spellings and refuses a value that has both, so the second one counts
# wherever it stands; of two values under the first one, the last wins.
PRESENT = (
    r"""(?:^|[^A-Za-z0-9_.-])holdApplicationUntilProxyStarts["']?[ \t\r\n]*[:,}]"""
    r"|hold_application_until_proxy_starts"
)
BLANK = r"^[ \t\r\n]*$"
# Blank lines and comments, with at most one document start between them.
HEAD = (
    r"^(?: *(?:#[^\n]*)?\r?\n)*"
    r"(?:---(?:[ \t]+(?:#[^\n]*)?)?\r?\n(?: *(?:#[^\n]*)?\r?\n)*|--- +)?"
)
FLOW = r"^ *\{"
EMPTY_FLOW = r"^ *\{[ \t\r\n]*\}"
# Istiod's parser passes over anything behind `{}`, but not behind a mapping with an entry.
LONE_FLOW = r"^ *\{[ \t\r\n]*\}(?:[ \t\r\n]*$|[ \t\r\n]+#|[ \t]*\r?\n(?:\.\.\.|---))"
BLOCK = r"""^ *(?:[A-Za-z_][A-Za-z0-9_.-]*|"[^"\\\n]+"|'[^'\n]+') *:(?:[ \t\r\n]|$)"""


def _compiled(pattern: str) -> re.Pattern[str]:
    # RE2 writes code points as \x{85}; its `$` is the end of the text, Python's also a last \n.
    pattern = re.sub(r"\\x\{([0-9a-f]+)\}", lambda m: chr(int(m[1], 16)), pattern)
    return re.compile(re.sub(r"\$(?=[)|]|$)", r"\\Z", pattern))


_ODD = _compiled(ODD)
_PRESENT = _compiled(PRESENT)
_BLANK = _compiled(BLANK)
_HEAD = _compiled(HEAD)
_FLOW = _compiled(FLOW)
_EMPTY_FLOW = _compiled(EMPTY_FLOW)
_LONE_FLOW = _compiled(LONE_FLOW)
_BLOCK = _compiled(BLOCK)


class Merge(NamedTuple):
    """What becomes of a `proxy.istio.io/config` that shall hold the application."""

    value: str | None
    """The new value; None: leave it as it is."""
    reason: str = ""
    """Why it is left, as a CamelCase word."""


def merge(value: str | None) -> Merge:
    """Put the hold into a proxy configuration, as text, in front of what is there.

    The value is YAML that we never rewrite: a user's own entry stays where it is and wins, and
    what does not parse stays as it was for istiod to report.
    """
    if value and len(value) > LONGEST:
        return Merge(None, "ConfigTooLong")
    if value is None or _BLANK.search(value):
        return Merge(ALONE)
    if reason := _why_not(value):
        return Merge(None, reason)
    head, body = _split(value)
    if match := _FLOW.search(body):
        return Merge(*_into_flow(head, body, match.end()))
    if _BLOCK.search(body) and (not head or head.endswith("\n")):
        indent = body[: len(body) - len(body.lstrip(" "))]
        return Merge(f"{head}{indent}{HOLD}: true\n{body}")
    return Merge(None, "ConfigNotMergeable")


def _into_flow(head: str, body: str, end: int) -> tuple[str | None, str]:
    entry = f'{head}{body[:end]}"{HOLD}": true'
    if not _EMPTY_FLOW.search(body):
        return f"{entry}, {body[end:]}", ""
    if _LONE_FLOW.search(body):
        return f"{entry}{body[end:]}", ""
    return None, "ConfigNotMergeable"


def _why_not(value: str) -> str:
    if _PRESENT.search(value):
        return "ConfigSaysItself"
    return "ConfigNotMergeable" if _ODD.search(value) else ""


def _split(value: str) -> tuple[str, str]:
    match = _HEAD.search(value)
    end = match.end() if match else 0
    return value[:end], value[end:]
