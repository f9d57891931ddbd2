"""The one text rule by which `proxy.istio.io/config` says whether the application is held."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from integrator_contract.reasons import Reason

HOLD = "holdApplicationUntilProxyStarts"
LONGEST = 32768
"""In characters; it bounds the work for one pod."""
LONGEST_NAMED = 4096
"""Characters of a flow mapping that names the hold: its pieces are looked at one by one."""

# Protobuf takes both spellings and refuses a value that has both.
_NAMES = r"(?:holdApplicationUntilProxyStarts|hold_application_until_proxy_starts)"
_NAMED = re.compile(_NAMES)
# Other line breaks of YAML, lone carriage returns and escapes that may spell a key differently:
# what a line is, or whether the key is there, could not be told by looking at the text.
_ODD = re.compile(r"[\x85\u2028\u2029]|\r[^\n]|\\[xuU\r\n]")
_BLANK = re.compile(r"[ \t\r\n]*")
# Blank lines and comments, with at most one document start between them.
_HEAD = re.compile(
    r"(?: *(?:#[^\n]*)?\r?\n)*"
    r"(?:---(?:[ \t]+(?:#[^\n]*)?)?\r?\n(?: *(?:#[^\n]*)?\r?\n)*|--- +)?"
)
_FLOW = re.compile(r" *\{")
_EMPTY_FLOW = re.compile(r" *\{[ \t\r\n]*\}")
# Istiod's parser passes over anything behind `{}`, but not behind a mapping with an entry.
_LONE_FLOW = re.compile(r" *\{[ \t\r\n]*\}(?:[ \t\r\n]*\Z|[ \t\r\n]+#|[ \t]*\r?\n(?:\.\.\.|---))")
_BLOCK = re.compile(r""" *(?:[A-Za-z_][A-Za-z0-9_.-]*|"[^"\\\n]+"|'[^'\n]+') *:(?:[ \t\r\n]|\Z)""")
# In the first document, what its keys' lines begin with behind the indent of the mapping: the
# hold, or a key that is written such that it may be the hold, be it by a merge.
_FIRST = re.compile(r"(?s:.*?)(?:\n(?:---|\.\.\.)(?:[ \t\r\n]|\Z)|\Z)")
_KEY_LINE = re.compile(rf"""["']?{_NAMES}["']? *:(?:[ \t\r]|\Z)""")
_ODD_LINE = re.compile(r"""[?&!*]|["']?<<""")
# The pieces of a flow mapping: comments, texts, signs and words. Each becomes one letter: the hold
# with its colon `h` and without `H`, what may be the hold `U`, any other word `w`.
_PIECE = re.compile(
    r"""#[^\n]*|"(?:[^"\\]|\\[\s\S])*"|'(?:[^']|'')*'|[{}\[\],:]"""
    r"""|[^ \t\r\n{}\[\],:"'#][^ \t\r\n{}\[\],]*"""
)
_KEY = re.compile(rf"""["']?{_NAMES}["']?""")
_KEY_WITH_COLON = re.compile(rf"{_NAMES}:")
_ODD_PIECE = re.compile(rf"""[?&!*]|<<|["'](?s:.*){_NAMES}""")


class Merge(NamedTuple):
    """What becomes of a `proxy.istio.io/config` that is to say whether the application is held."""

    value: str | None
    """The new value; None: leave it as it is."""
    reason: Reason | None = None
    """Why it is left."""


def merge(value: str | None, *, held: bool) -> Merge:
    """Put the hold into a proxy configuration, as text, in front of what is there.

    The value is YAML that we never rewrite: a user's own entry stays where it is and wins, and
    what does not parse stays as it was for istiod to report.

    Args:
        value: Of the annotation; None: the pod does not have it.
        held: Whether the application waits for its proxy.
    """
    if value and len(value) > LONGEST:
        return Merge(None, Reason.CONFIG_TOO_LONG)
    word = json.dumps(held)
    if value is None or _BLANK.fullmatch(value):
        return Merge(f'{{"{HOLD}": {word}}}')
    head, body = _split(value)
    naming = _naming(body) if _NAMED.search(body) else None
    if naming == Reason.CONFIG_SAYS_ITSELF:
        return Merge(None, naming)
    if _ODD.search(value):
        return Merge(None, Reason.CONFIG_NOT_MERGEABLE)
    merged = _merged(head, body, word)
    if merged is None or naming:
        return Merge(None, naming if merged else Reason.CONFIG_NOT_MERGEABLE)
    return Merge(merged)


def _merged(head: str, body: str, word: str) -> str | None:
    if match := _FLOW.match(body):
        if not _EMPTY_FLOW.match(body):
            return f'{head}{match[0]}"{HOLD}": {word}, {body[match.end() :]}'
        if _LONE_FLOW.match(body):
            return f'{head}{match[0]}"{HOLD}": {word}{body[match.end() :]}'
    elif _BLOCK.match(body) and (not head or head.endswith("\n")):
        return f"{head}{_indent(body)}{HOLD}: {word}\n{body}"
    return None


def _naming(body: str) -> Reason | None:
    """Return why a value that names the hold is left as it is; None if it does not set it."""
    if _FLOW.match(body):
        if len(body) > LONGEST_NAMED:
            return Reason.CONFIG_UNCLEAR
        return _naming_in_flow("".join(_letter(piece) for piece in _PIECE.findall(body)))
    indent = _indent(body)
    first = _FIRST.match(body)
    lines = first[0].split("\n") if first else ()
    keys = [line.removeprefix(indent) for line in lines if line.startswith(indent)]
    if any(map(_KEY_LINE.match, keys)):
        # Within a flow collection of several lines any column may hold a key that is nested.
        spans = any(line.rstrip().endswith(("[", "{", ",")) for line in lines)
        return Reason.CONFIG_UNCLEAR if spans else Reason.CONFIG_SAYS_ITSELF
    return Reason.CONFIG_UNCLEAR if any(map(_ODD_LINE.match, keys)) else None


def _naming_in_flow(letters: str) -> Reason | None:
    depth = 0
    for letter, before, after in zip(letters, f" {letters}", f"{letters[1:]} ", strict=False):
        if letter == "U":
            break
        if letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
            if not depth:
                return None if letter == "}" else Reason.CONFIG_UNCLEAR
        is_key = depth == 1 and before in "{,"
        if is_key and (letter == "h" or (letter == "H" and after in ":,}")):
            return Reason.CONFIG_SAYS_ITSELF
    return Reason.CONFIG_UNCLEAR


def _letter(piece: str) -> str:
    if piece.startswith("#"):
        return ""
    if piece in "{}[],:":
        return piece
    if _KEY.fullmatch(piece):
        return "H"
    if _KEY_WITH_COLON.fullmatch(piece):
        return "h"
    return "U" if _ODD_PIECE.match(piece) else "w"


def _indent(body: str) -> str:
    return body[: len(body) - len(body.lstrip(" "))]


def _split(value: str) -> tuple[str, str]:
    match = _HEAD.match(value)
    end = match.end() if match else 0
    return value[:end], value[end:]
