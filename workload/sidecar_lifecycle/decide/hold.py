"""The one text rule by which `proxy.istio.io/config` gets the hold.

The policy of the charm (`templates/admission-policy`) has the same regular expressions in CEL,
so they are written such that Python's `re` and RE2 agree on them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from integrator_contract.reasons import Reason

HOLD = "holdApplicationUntilProxyStarts"
ALONE = f'{{"{HOLD}": true}}'
LONGEST = 32768
"""In characters: no configuration is longer, and CEL's budget ends somewhere above."""

LONGEST_NAMED = 4096
"""Characters of a flow mapping that names the hold: its pieces are looked at one by one."""
DEEPEST_NAMED = 64
"""Columns that a block mapping which names the hold may stand to the right."""

# Other line breaks of YAML, lone carriage returns and escapes that may spell a key differently:
# what a line is, or whether the key is there, could not be told by looking at the text.
ODD = r"[\x{85}\x{2028}\x{2029}]|\r[^\n]|\\[xuU\r\n]"
# Protobuf takes both spellings and refuses a value that has both.
NAMED = r"holdApplicationUntilProxyStarts|hold_application_until_proxy_starts"
# In the first document, what its keys' lines begin with behind the indent of the mapping: the
# hold, or a key that is written such that it may be the hold, be it by a merge.
FIRST = r"^(?s:.*?)(?:\n(?:---|\.\.\.)(?:[ \t\r\n]|$)|$)"
KEY_LINE = (
    r"""["']?(?:holdApplicationUntilProxyStarts|hold_application_until_proxy_starts)["']?"""
    r""" *:(?:[ \t\r\n]|$)"""
)
ODD_LINE = r"""(?:[?&!*]|["']?<<)"""
# The pieces of a flow mapping: comments, texts, signs and words. Each becomes one letter: the hold
# with its colon `h` and without `H`, what may be the hold `U`, any other word `w`.
PIECE = (
    r"""#[^\n]*|"(?:[^"\\]|\\[\s\S])*"|'(?:[^']|'')*'|[{}\[\],:]"""
    r"""|[^ \t\r\n{}\[\],:"'#][^ \t\r\n{}\[\],]*"""
)
KEY = r"""^["']?(?:holdApplicationUntilProxyStarts|hold_application_until_proxy_starts)["']?$"""
KEY_WITH_COLON = r"^(?:holdApplicationUntilProxyStarts|hold_application_until_proxy_starts):$"
ODD_PIECE = (
    r"""^[?&!*]|^<<|^["'](?s:.*)"""
    r"(?:holdApplicationUntilProxyStarts|hold_application_until_proxy_starts)"
)
# As far as six levels deep; `U` is in none of them.
KEY_IN_FLOW = (
    r"^\{(?:(?:[wHh,:]|[{\[](?:[wHh,:]|[{\[](?:[wHh,:]|[{\[](?:[wHh,:]|[{\[](?:[wHh,:]"
    r"|[{\[][wHh,:]*[}\]])*[}\]])*[}\]])*[}\]])*[}\]])*,)?(?:h|H[:,}])"
)
PLAIN_FLOW = (
    r"^\{(?:[wHh,:]|[{\[](?:[wHh,:]|[{\[](?:[wHh,:]|[{\[](?:[wHh,:]|[{\[](?:[wHh,:]"
    r"|[{\[][wHh,:]*[}\]])*[}\]])*[}\]])*[}\]])*[}\]])*\}"
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
_NAMED = _compiled(NAMED)
_FIRST = _compiled(FIRST)
_PIECE = _compiled(PIECE)
_KEY = _compiled(KEY)
_KEY_WITH_COLON = _compiled(KEY_WITH_COLON)
_ODD_PIECE = _compiled(ODD_PIECE)
_KEY_IN_FLOW = _compiled(KEY_IN_FLOW)
_PLAIN_FLOW = _compiled(PLAIN_FLOW)
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
    reason: Reason | None = None
    """Why it is left."""


def merge(value: str | None) -> Merge:
    """Put the hold into a proxy configuration, as text, in front of what is there.

    The value is YAML that we never rewrite: a user's own entry stays where it is and wins, and
    what does not parse stays as it was for istiod to report.
    """
    if value and len(value) > LONGEST:
        return Merge(None, Reason.CONFIG_TOO_LONG)
    if value is None or _BLANK.search(value):
        return Merge(ALONE)
    head, body = _split(value)
    naming = _naming(body) if _NAMED.search(body) else None
    if naming == Reason.CONFIG_SAYS_ITSELF:
        return Merge(None, naming)
    if _ODD.search(value):
        return Merge(None, Reason.CONFIG_NOT_MERGEABLE)
    merged = _merged(head, body)
    if merged is None or naming:
        return Merge(None, naming if merged else Reason.CONFIG_NOT_MERGEABLE)
    return Merge(merged)


def _merged(head: str, body: str) -> str | None:
    if match := _FLOW.search(body):
        if not _EMPTY_FLOW.search(body):
            return f'{head}{match[0]}"{HOLD}": true, {body[match.end() :]}'
        if _LONE_FLOW.search(body):
            return f'{head}{match[0]}"{HOLD}": true{body[match.end() :]}'
    elif _BLOCK.search(body) and (not head or head.endswith("\n")):
        return f"{head}{_indent(body)}{HOLD}: true\n{body}"
    return None


def _naming(body: str) -> Reason | None:
    """Return why a value that names the hold is left as it is; None if it does not set it."""
    if _FLOW.search(body):
        if len(body) > LONGEST_NAMED:
            return Reason.CONFIG_UNCLEAR
        letters = "".join(_letter(piece) for piece in _PIECE.findall(body))
        is_set, is_plain = _KEY_IN_FLOW.search(letters), _PLAIN_FLOW.search(letters)
    else:
        indent = _indent(body)
        if len(indent) > DEEPEST_NAMED:
            return Reason.CONFIG_UNCLEAR
        first = _FIRST.search(body)
        lines = first[0] if first else ""
        is_set = re.search(f"(?m)^{indent}{KEY_LINE}", lines)
        is_plain = not re.search(f"(?m)^{indent}{ODD_LINE}", lines)
    if is_set:
        return Reason.CONFIG_SAYS_ITSELF
    return None if is_plain else Reason.CONFIG_UNCLEAR


def _letter(piece: str) -> str:
    if piece.startswith("#"):
        return ""
    if piece in "{}[],:":
        return piece
    if _KEY.search(piece):
        return "H"
    if _KEY_WITH_COLON.search(piece):
        return "h"
    return "U" if _ODD_PIECE.search(piece) else "w"


def _indent(body: str) -> str:
    return body[: len(body) - len(body.lstrip(" "))]


def _split(value: str) -> tuple[str, str]:
    match = _HEAD.search(value)
    end = match.end() if match else 0
    return value[:end], value[end:]
