"""MediaWiki: the pages of an XML export (0.10, 0.11), streamed through mwxml.

It comes with the extra ``dump`` and is imported when a dump is read.
"""

import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO
from xml.etree.ElementTree import ParseError

from dataprep.wikitext import load_library, one_line

PAGE_COUNTS = ("pages", "redirects", "other_namespaces", "other_content")

_REDIRECT = re.compile(r"\s*#redirect\b", re.IGNORECASE)


@dataclass(frozen=True)
class WikiPage:
    """An article: its title and its latest revision's wikitext."""

    title: str
    wikitext: str


def load_libraries() -> None:
    """Import mwxml and mwparserfromhell.

    Raises:
        ValueError: one of them is not installed; the message says how to.
    """
    for name in ("mwxml.element_iterator", "mwparserfromhell"):
        load_library(name)


def read_pages(stream: BinaryIO, name: str, counts: Counter[str]) -> Iterator[WikiPage]:
    """Stream the articles (namespace 0, no redirects, wikitext) of a MediaWiki export.

    Args:
        stream: the XML.
        name: what error messages call it.
        counts: `PAGE_COUNTS` are added to it: pages read, and those passed over, by reason.

    Raises:
        ValueError: not XML, not an export, damaged or cut off (after how many pages), libraries
            missing. Errors of the stream itself pass through.
    """
    load_libraries()
    root = _root(stream, name)
    try:
        for page in _raw_pages(root):
            latest = deque(page, maxlen=1)
            counts["pages"] += 1
            wikitext = (latest[0].text or "") if latest else ""
            if page.redirect is not None or _REDIRECT.match(wikitext):
                counts["redirects"] += 1
            elif page.namespace != 0:
                counts["other_namespaces"] += 1
            elif latest and latest[0].model not in (None, "wikitext"):
                counts["other_content"] += 1
            else:
                yield WikiPage(page.title, wikitext)
    except (ParseError, load_library("mwxml.errors").MalformedXML, TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: damaged or cut off after {counts['pages']} pages "
            f"({one_line(error)}); download it again"
        ) from None


def _root(stream: BinaryIO, name: str) -> Any:
    elements = load_library("mwxml.element_iterator")
    try:
        pointer = elements.EventPointer.from_file(stream)
        _, element = next(pointer)
    except ParseError as error:
        raise ValueError(
            f"{name}: not XML ({one_line(error)}); give a MediaWiki export (pages-articles)"
        ) from None
    root = elements.ElementIterator(element, pointer)
    if root.tag != "mediawiki":
        raise ValueError(
            f"{name}: its root is <{root.tag}>, not <mediawiki>; "
            "give a MediaWiki export (pages-articles)"
        )
    return root


def _raw_pages(root: Any) -> Iterator[Any]:
    """mwxml's pages, in constant memory; unlike its `Dump`, without insisting on <siteinfo>."""
    mwxml = load_library("mwxml")
    namespaces: dict[str, Any] = {}  # for exports before 0.6, which have no <ns>
    for child in root:
        if child.tag == "siteinfo":
            known = mwxml.SiteInfo.from_element(child).namespaces or []
            namespaces = {namespace.name: namespace for namespace in known}
        elif child.tag == "page":
            yield mwxml.Page.from_element(child, namespaces)
        child.complete()
        root.element.clear()  # the tree would keep an empty element for every page
