"""Wikitext made plain text, one paragraph a line, in four passes.

What MediaWiki's preprocessor takes out first (comments, references, galleries, ...) goes by one
regular expression; the rest is parsed by mwparserfromhell and rendered node by node; each line is
rid of what the parser left as text because its brackets don't pair; lines are put together to
paragraphs.

The library comes with the extra ``dump`` and is imported when it is first needed.
"""

import functools
import importlib
import re
from collections.abc import Callable, Iterator
from typing import Any

_INSTALL = "pip install 'bert-sprint[dump]'"

# Marks at the start of a line, which XML cannot contain: a section title (one mark a level), a list
# item, preformatted text
_TITLE, _ITEM, _PREFORMATTED = "\x01", "\x02", "\x03"
_MARKS = str.maketrans("", "", _TITLE + _ITEM + _PREFORMATTED)

# MediaWiki takes these out, in the order in which they stand, before it looks at anything else:
# the content up to the first closing tag is not parsed, and an unclosed comment runs to the end.
_UNPARSED = re.compile(
    r"(?:(?<=\n)|^)[ \t]*(?:<!--(?:(?!-->).)*-->[ \t]*)+\n"  # a line of comments goes whole
    r"|<!--.*?(?:-->|\Z)"
    r"|<(?P<tag>nowiki|pre|ref|references|math|chem|ce|gallery|timeline|source|syntaxhighlight|score"
    r"|hiero|imagemap|inputbox|graph|mapframe|maplink|templatedata|categorytree|includeonly)"
    r"(?:\s[^<>]*?)?(?:/>|>(?P<content>.*?)</(?P=tag)\s*>)",
    re.DOTALL | re.IGNORECASE,
)
_SYNTAX = re.compile(r"[\[\]{}|<>'=*#:;_&~-]|//")
_INDENTED_TABLE = re.compile(r"^[:*#; \t]+\{\|", re.MULTILINE)
_INDENTED = re.compile(r"^ +(?=[^\s{|!<])", re.MULTILINE)

_DROPPED_TAG = re.compile(
    "table|tr|td|th|caption|code|ul|ol|dl|li|dt|dd|div|form|input|select|option|textarea|img"
    "|noinclude|math|ref|references"
)
_BLOCK_TAG = re.compile("p|blockquote|center|poem|hr|h[1-6]")
_DROPPED_NAMESPACE = re.compile("file|image|media|category", re.IGNORECASE)
# Templates that stand for characters; all others go
_CHARACTERS = {"'": "'", "'s": "'s", "ndash": "–", "snd": " – ", "mdash": "—", "nbsp": " "}
# Language codes of Wikipedias: two or three letters, perhaps more after hyphens, and exceptions.
# Some prefixes of that shape are no languages.
_LANGUAGE = re.compile(r"(?!(?:mw|voy|wmf|doi|hdl|rfc)$)[a-z]{2,3}(?:-[a-z]+)*|simple|tokipona")

_SUBSTITUTIONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"\{\{.*|\}\}|\{\||\|\}", ""),  # templates and tables that never close
        (r"\[\[\s*:?\s*(?:file|image|media|category)\s*:.*", ""),
        (r"\[\[(?:[^\[\]|]*\|)?|\]\]", ""),
        (r"<ref\b.*|</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>|</", ""),  # tags without their partner
        (r"\[?\b(?:https?|ftp)://[^\s\]]*\]?", ""),
        (r"(?-i:__[A-Z]{3,}__)|__(?:no|force)?toc__", ""),
        (r"[\u200e\u200f\ufeff]", ""),  # direction and byte order marks
        (r"\s+", " "),
        (r"(?<=[(\[])[\s,;:]+|[\s,;:]+(?=[)\]])", ""),  # what removed templates leave
        (r",(?: ?,)+", ","),
    )
)
_EMPTY_BRACKETS = re.compile(r" ?(?:\([\s'\"]*\)|\[\s*\])")
_NESTED_BRACKETS = 3
_SPACE_BEFORE = re.compile(r" +(?=[,.;:](?:\s|$))")
_QUOTES = re.compile(r"'{2,}")


@functools.cache
def load_library(name: str) -> Any:
    """Import a module of the extra ``dump``.

    Raises:
        ValueError: it is not installed; the message says how to.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"a MediaWiki dump needs {error.name}; run {_INSTALL}") from None


def one_line(text: object) -> str:
    """A text with its white space folded to single blanks."""
    return " ".join(str(text).split())


def clean_markup(wikitext: str, *, section_titles: bool = False) -> str:
    """Plain text of an article, one paragraph a line, no empty lines; '' where nothing is left.

    Running text stays, with links as their text and entities decoded (so that a literal tag or
    ``{{`` that an article shows is removed like a real one). Templates go unexpanded, so that a
    dump's text never depends on the day. Lists (and lines indented by ``:``) and tables go too, as
    in Devlin et al. 2019 (arXiv 1810.04805): MLPerf's reference keeps none of their items either.

    Args:
        wikitext: the page's source.
        section_titles: keep the titles of sections that hold text as paragraphs, with a full stop.
            MLPerf's reference drops them.

    Raises:
        ValueError: mwparserfromhell is not installed.
    """
    source = _UNPARSED.sub(_take_out, wikitext.translate(_MARKS))
    source = _INDENTED.sub(_PREFORMATTED, _INDENTED_TABLE.sub("{|", source))
    # quotes are no structure here: left as text, they can't keep the parser from pairing brackets
    code = load_library("mwparserfromhell").parse(source, skip_style_tags=True)
    return "\n".join(_paragraphs(_render(code), section_titles))


def _take_out(match: re.Match[str]) -> str:
    """What replaces unparsed markup: nothing, or nowiki's content guarded against the parser."""
    if (match["tag"] or "").lower() == "nowiki":
        return _SYNTAX.sub(lambda m: "".join(f"&#{ord(c)};" for c in m[0]), match["content"] or "")
    return ""


def _render(code: Any) -> str:
    """Text of parsed wikitext, its lines and blanks as they come, with marks for `_paragraphs`."""
    nodes = code.nodes if code else ()
    return "".join(_RENDERERS.get(type(node).__name__, _drop)(node) for node in nodes)


def _drop(node: Any) -> str:
    return ""


def _render_entity(entity: Any) -> str:
    try:
        return str(entity.normalize())
    except (ValueError, OverflowError):  # no such character
        return ""


def _render_tag(tag: Any) -> str:
    mark = tag.wiki_markup
    if mark and mark[0] in "*#:;":
        return _ITEM
    name = str(tag.tag).strip().lower()
    if _DROPPED_TAG.fullmatch(name):
        return ""
    if name == "br":
        return " "
    text = _render(tag.contents)
    if _BLOCK_TAG.fullmatch(name):
        return "\n\n" + text.replace(_PREFORMATTED, "") + "\n\n"  # a blank means nothing there
    return text


def _render_link(link: Any) -> str:
    """The text of a link; nothing for files, categories and the same article in other languages.

    A leading colon makes any of them an ordinary link.
    """
    title = _render(link.title).strip()
    prefix, colon, rest = title.partition(":")
    prefix = prefix.strip()
    if colon and (_DROPPED_NAMESPACE.fullmatch(prefix) or _LANGUAGE.fullmatch(prefix)):
        return ""
    title = title.removeprefix(":")
    if link.text is None:  # the name of a category that is linked to is no text either
        return "" if _DROPPED_NAMESPACE.match(title) and ":" in title else title
    text = _render(link.text)
    # a trailing pipe hides namespace and brackets: "Mercury (planet)" shows "Mercury"
    return text if text.strip() else re.sub(r"\s*\([^()]*\)$", "", rest or title)


_RENDERERS: dict[str, Callable[[Any], str]] = {
    "Text": str,
    "HTMLEntity": _render_entity,
    "Tag": _render_tag,
    "Template": lambda node: _CHARACTERS.get(str(node.name).strip().lower(), ""),
    "Wikilink": _render_link,
    "ExternalLink": lambda link: _render(link.title),
    "Heading": lambda node: f"\n{_TITLE * node.level}{one_line(_render(node.title))}\n",
}


def _paragraphs(text: str, section_titles: bool) -> Iterator[str]:
    """Paragraphs of rendered text, the titles of each one's sections before it where wanted.

    As MediaWiki shows them: lines without an empty one between them are one paragraph.
    """
    titles: list[tuple[int, str]] = []  # open sections whose titles wait for a paragraph
    paragraph: list[str] = []
    for source in [*text.split("\n"), ""]:
        level = len(source) - len(source.lstrip(_TITLE))
        hidden = source.startswith((_ITEM, _PREFORMATTED))
        line = "" if hidden else _scrub(source.translate(_MARKS))
        if line and not level:
            paragraph.append(line)
            continue
        if paragraph:
            if section_titles:
                yield from (title for _, title in titles)
            yield " ".join(paragraph)
            titles, paragraph = [], []
        if level:
            titles = [title for title in titles if title[0] < level]
            if line:
                titles.append((level, line if line[-1] in ".?!" else f"{line}."))


def _scrub(line: str) -> str:
    """A line without markup that the parser left, or '' where nothing legible remains."""
    if line.startswith(("{|", "|", "!")) and ("|" in line or "!!" in line):  # a torn table
        return ""
    line = _drop_quotes(line)
    for pattern, replacement in _SUBSTITUTIONS:
        line = pattern.sub(replacement, line)
    for _ in range(_NESTED_BRACKETS):
        line = _EMPTY_BRACKETS.sub("", line)
    line = _SPACE_BEFORE.sub("", line).strip()
    return line if any(map(str.isalnum, line)) else ""


def _drop_quotes(line: str) -> str:
    """A line without the quotes of ''italics'' and '''bold''', and with its apostrophes.

    Two quotes toggle italics, three bold, five or more both; the first of four is literal. Where a
    line leaves both open, MediaWiki reads one of its triples as an apostrophe and italics, as in
    ''Titanic'''s: the first after a one-letter word, else after any word, else any.
    """
    runs = list(_QUOTES.finditer(line))
    sizes = [len(run[0]) for run in runs]
    both = sum(size >= 5 for size in sizes)
    bold = [run for run in runs if len(run[0]) in (3, 4)]
    torn = None
    if (sizes.count(2) + both) % 2 and (len(bold) + both) % 2:
        torn = min(bold, key=lambda run: _torn_rank(line[: run.start()]), default=None)
    literal = {run.start() for run in runs if len(run[0]) == 4 or run is torn}
    return _QUOTES.sub(lambda run: "'" if run.start() in literal else "", line)


def _torn_rank(before: str) -> int:
    if before[-1:] in ("", " "):
        return 2
    return 0 if before[-2:-1] == " " else 1
