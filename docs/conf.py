"""How Sphinx makes a site of these pages: `make docs`."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import sphinx.application
import yaml

_METADATA = yaml.safe_load((pathlib.Path(__file__).parent.parent / "metadata.yaml").read_text())

project = "istio-integrator"
extensions = ["myst_parser", "sphinx_copybutton", "sphinxext.opengraph"]
html_theme = "furo"
html_title = project
html_copy_source = False
html_show_copyright = False
smartquotes_action = "qe"
"""No dashes: `--resource` in a message is an option."""
html_baseurl = _METADATA.get("docs", "")
html_theme_options = {"source_repository": _METADATA.get("source", "")}
ogp_site_url = html_baseurl
ogp_site_name = project
ogp_social_cards = {"enable": False}
myst_heading_anchors = 4
"""Down to this level headings can be linked to, by the names that GitHub gives them."""

_STYLE = """<style>
h1 code.literal, h2 code.literal, h3 code.literal, .sidebar-tree code.literal {
  font-size: inherit; padding: 0; border: 0; background: none }
td code.literal, th code.literal, .genindextable a { overflow-wrap: anywhere; white-space: normal }
article .highlight pre { font-size: .75rem }
:is(.highlight-text, .highlight-console, .highlight-default) pre {
  white-space: pre-wrap; overflow-wrap: anywhere }
thead:not(:has(p:not(:empty))) { display: none }
@media (max-width: 46em) {
  article h1 { font-size: 1.9em } article h2 { font-size: 1.5em } article h3 { font-size: 1.2em }
  article .highlight pre { font-size: .68rem; padding: .6rem .5rem }
  article table.docutils :is(td, th) { padding: .1rem; font-size: .75em }
  article td:is(:first-child, td:has(code) ~ td):has(code) { min-width: 4.3rem }
  article table.docutils :is(td, th) p { margin: .25rem .1rem }
  p:has(> img) { overflow-x: auto } p > img { max-width: none; width: 44rem }
}
</style>"""
"""Headings are often messages, which Furo would show smaller than other headings. Long lines of
output are not cut. Tables fit narrow screens, where you scroll pictures to read their words."""
_ALSO = re.compile(r"^Also seen as:(?:.+\n)+", re.MULTILINE)
_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_PAGE = re.compile(r"\]\(([\w/-]+)\.md\)")


def setup(app: sphinx.application.Sphinx) -> None:
    """Have Sphinx call what is below."""
    app.connect("source-read", _menu)
    app.connect("source-read", _words)
    app.connect("html-page-context", _style)


def _menu(app: sphinx.application.Sphinx, page: str, source: list[str]) -> None:
    """Make the menu of the lists in the index pages, in their groups; it warns of other pages."""
    if page != "index":
        return
    for folder in dict.fromkeys(_PAGE.findall(source[0])):
        if folder.startswith("tutorial/"):
            source[0] += _toctree("Tutorial", [folder])
        if not folder.endswith("/index"):
            continue
        text = (pathlib.Path(app.srcdir) / f"{folder}.md").read_text()
        title, *groups = re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]
        source[0] += _toctree(title, [folder, *_paths(folder, title)])
        source[0] += "".join(_toctree(each, _paths(folder, each)) for each in groups)


def _paths(index: str, text: str) -> list[str]:
    return [f"{index.removesuffix('index')}{name}" for name in _PAGE.findall(text)]


def _toctree(text: str, pages: list[str]) -> str:
    caption = text.partition("\n")[0]
    return "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```\n"])


def _words(_app: sphinx.application.Sphinx, _page: str, source: list[str]) -> None:
    """Have the search find a section by the words of its line `Also seen as`."""
    source[0] = _ALSO.sub(_indexed, source[0])


def _indexed(found: re.Match[str]) -> str:
    # A comma would end the entry.
    words = ", ".join(f"!{word.replace(',', ' ')}" for word in re.findall(r"`([^`]+)`", found[0]))
    return f"```{{index}} {words}\n```\n\n{found[0]}"


def _style(
    _app: sphinx.application.Sphinx, _page: str, _template: str, context: dict[str, Any], _: object
) -> None:
    context["metatags"] = context.get("metatags", "") + _STYLE
    context["body"] = _CELL.sub(_breakable, context.get("body", ""))


def _breakable(cell: re.Match[str]) -> str:
    """Let long names in a table break after their punctuation."""
    return re.sub(r"(?<=\w[/._=:])(?=[A-Za-z])(?![^<]*>)", "<wbr>", cell[0])
