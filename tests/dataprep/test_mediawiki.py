"""Wikitext to text, word for word, and the pages of small exports."""

import io
import sys
import tracemalloc
from collections import Counter

import mwparserfromhell
import pytest

from dataprep.mediawiki import PAGE_COUNTS, WikiPage, read_pages
from dataprep.wikitext import clean_markup, load_library

GOLDEN = {
    "nested templates": ("a {{x|{{y|z}}|[[b|{{c}}]]}} b", "a b"),
    "character templates": ("''Eagle''{{'s}} orbit{{snd}}low", "Eagle's orbit – low"),
    "date templates": (
        "On {{CURRENTDAY}} {{date}} of {{#time:Y}}, it {{as of|2015}} was.",
        "On of, it was.",
    ),
    "magic words": (
        "__NOTOC__\n__toc__ Its __init__ {{DEFAULTSORT:x}}stays.",
        "Its __init__ stays.",
    ),
    "table": ("A.\n{| class=x\n|+ caption\n! head !! head\n|-\n| cell || [[c]]\n|}\nB.", "A.\nB."),
    "table in a list": ("* item {| class=x\n|-\n| cell\n|}\nAfter.", "After."),
    "indented table": (":{| class=x\n| cell\nmore of it\n|}\nAfter.", "After."),
    "HTML table": ("A.\n<table><tr><td>cell</td></tr></table>\nB.", "A.\nB."),
    "unclosed table": ("{| a\n| b\n|-\n! c !! d\n\nText.", "Text."),
    "reference with nested template": (
        'Fact.<ref name="a">{{cite|{{n|<!-- c -->}}|<nowiki>}}</nowiki>}}</ref> On<ref name=a />.',
        "Fact. On.",
    ),
    "list of references": ("Text.\n<references>\n<ref>x</ref>\n</references>", "Text."),
    "unclosed reference": ("Text <ref>goes {{on", "Text"),
    "file": (
        "[[File:A.jpg|thumb|300px|With [[a|link]], [http://x.org y] and {{t|[[z]]}}.]]Text.",
        "Text.",
    ),
    "torn file": ("Text.\n\n[[Image:A.jpg|thumb|12px|never closed", "Text."),
    "gallery": ("A.\n<gallery>\nFile:a.jpg|b\n</gallery>\nB.", "A.\nB."),
    "categories": ("Text.\n[[Category:Foo|key]] [[category : bar]]", "Text."),
    "interlanguage links": (
        "Text.\n\n[[be-x-old:Foo]]\n[[fr:Bar]]\n[[zh-min-nan:Q]]\n[[simple:X]]",
        "Text.",
    ),
    "links with a colon": (
        "[[:Category:X|cats]], [[:Category:Y]] [[:File:Z.jpg|file]], [[wikt:w|word]], [[:fr:B]].",
        "cats, file, word, fr:B.",
    ),
    "links": (
        "[[Neuron]]s, [[Cell (biology)|cells]], [[Mercury (planet)|]], [[Help:Foo|]], [[A#B]].",
        "Neurons, cells, Mercury, Foo, A#B.",
    ),
    "external links": (
        "See http://a.b/c?d=e, [https://x.y label] and [//z.w other] or [http://e.f].",
        "See, label and other or.",
    ),
    "entities": (
        "AT&amp;T&nbsp;&ndash;&#32;5&#x20;km &#8212; &lt;3 and &amp;lt; &bogus;",
        "AT&T – 5 km — <3 and &lt; &bogus;",
    ),
    "no such character": ("a &#x110000; &#xFFFFFFFFFF; b", "a &#x110000; &#xFFFFFFFFFF; b"),
    "comments": (
        "One <!-- [[x]] {{ -->two.\n<!-- a -->  <!-- b -->\nStill one.",
        "One two. Still one.",
    ),
    "unclosed comment": ("Text.<!-- never\nclosed", "Text."),
    "nowiki": ("a < b, <nowiki>[x] ''y'' <i>{z}</i></nowiki>.", "a < b, [x] y {z}."),
    "inline tags": (
        "H<sub>2</sub>O <small>is</small> <span style='a'>wet</span><br/>now.",
        "H2O is wet now.",
    ),
    "dropped tags": (
        "A <code>c</code><math>x^2</math><timeline>t</timeline><div><p>d</p></div>"
        "<syntaxhighlight lang='c'>if (a<b) {{</syntaxhighlight>b.",
        "A b.",
    ),
    "stray tags": ("A </div>b <center>c</center> </ref>d.", "A b\nc\nd."),
    "quotes": ("'''Bold''' ''it'' '''''both''''' o'clock ''''x'''", "Bold it both o'clock 'x"),
    "possessive of italics": ("The ''Titanic'''s bow", "The Titanic's bow"),
    "elision before italics": ("The ''x'' of l'''Amour''", "The x of l'Amour"),
    "too many quotes": ("a'''''''b'', '''c''", "ab, c"),
    "brackets left empty": (
        "Name ({{x}}; {{y}}) was ( , ), [{{z}}] here ({{a}}, born 1900 ; {{b}}) at (-4) (({{c}})).",
        "Name was, here (born 1900) at (-4).",
    ),
    "lists": (
        "Intro:\n* one\n** two\n# three\n; term : definition\n: indent\nEnd.",
        "Intro:\nEnd.",
    ),
    "HTML list": ("Intro:\n<ul><li>one</li><li>two</li></ul>\nEnd.", "Intro:\nEnd."),
    "titles": (
        "Lead.\n==None==\n{{t}}\n* x\n==Top==\n===Sub ''it''===\nA.\n\nB.\n==Why?==\nSo.\n==End==",
        "Lead.\nA.\nB.\nSo.",
    ),
    "lines of a paragraph": ("One\nline.\n\nTwo.\n code\nThree.", "One line.\nTwo.\nThree."),
    "blockquote": ("He said:<blockquote>\n So.\n</blockquote>Then.", "He said:\nSo.\nThen."),
    "nothing legible": ("{{only}}\n----\n[[File:x.png]] ...\n* item", ""),
    "empty": ("", ""),
}


@pytest.mark.parametrize("wikitext, text", GOLDEN.values(), ids=GOLDEN.keys())
def test_golden(wikitext: str, text: str) -> None:
    assert clean_markup(wikitext) == text


def test_titles_can_be_kept_where_text_follows() -> None:
    wikitext = GOLDEN["titles"][0]
    kept = clean_markup(wikitext, section_titles=True)
    assert kept == "Lead.\nTop.\nSub it.\nA.\nB.\nWhy?\nSo."


def test_nested_nodes_that_the_parser_cannot_remove() -> None:
    wikitext = "A {{a|[[b|{{c}}]]}} <div>{{d|<div>[[e]]</div>}}</div> [[File:f|{{g|[[h]]}}]] b."
    code = mwparserfromhell.parse(wikitext)
    with pytest.raises(ValueError):  # an outer node takes its inner ones with it
        for node in [*code.filter_tags(), *code.filter_templates(), *code.filter_wikilinks()]:
            code.remove(node)
    assert clean_markup(wikitext) == "A b."


@pytest.mark.parametrize(
    "piece", ["[[", "{{", "((", "<nowiki ", "<ref>", "{|\n", "'''", "[http://a"]
)
def test_endless_openings_leave_nothing(piece: str) -> None:
    text = clean_markup(piece * 1000 + "x")
    assert not any(mark in text for mark in ("[[", "{{", "{|", "<ref", "''", "http://"))


def test_marks_in_the_text_are_no_structure() -> None:
    assert clean_markup("\x01a\n\n\x02b\n\n\x03c") == "a\nb\nc"


# --- exports ------------------------------------------------------------------------------------

SITEINFO = (
    "<siteinfo><sitename>W</sitename><dbname>w</dbname><namespaces>"
    '<namespace key="0" case="first-letter" /><namespace key="4" case="first-letter">Project'
    "</namespace></namespaces></siteinfo>"
)


def page(title: str, text: str, ns: str = "<ns>0</ns>", extra: str = "", rev: str = "") -> str:
    return (
        f"<page><title>{title}</title>{ns}<id>1</id>{extra}<revision><id>2</id>"
        "<timestamp>2016-01-01T00:00:00Z</timestamp><contributor><username>u</username><id>3</id>"
        f"</contributor>{rev}<model>wikitext</model><format>text/x-wiki</format>"
        f'<text xml:space="preserve">{text}</text><sha1>s</sha1></revision></page>'
    )


def export(*pages: str, version: str = "0.10", siteinfo: str = SITEINFO) -> bytes:
    head = f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-{version}/" version="{version}">'
    return "\n".join([head, siteinfo, *pages, "</mediawiki>"]).encode()


def read(content: bytes) -> tuple[list[WikiPage], dict[str, int]]:
    counts = Counter(dict.fromkeys(PAGE_COUNTS, 0))
    return list(read_pages(io.BytesIO(content), "dump.xml", counts)), dict(counts)


PAGES = (
    page("A_b", "Text &amp;amp; &lt;ref&gt;"),
    page("Moved", "#REDIRECT [[A b]]", extra='<redirect title="A b" />'),
    page("Old redirect", " #redirect [[A b]]"),
    page("Project:C", "Text", ns="<ns>4</ns>"),
    page("Project:D", "#REDIRECT [[E]]", ns="<ns>4</ns>", extra='<redirect title="E" />'),
    page("Deleted", "", extra="<restrictions>edit=sysop</restrictions>"),
)


@pytest.mark.parametrize("siteinfo", [SITEINFO, ""])
@pytest.mark.parametrize("version", ["0.10", "0.11"])
def test_articles_of_an_export(version: str, siteinfo: str) -> None:
    pages, counts = read(export(*PAGES, version=version, siteinfo=siteinfo))
    assert pages == [WikiPage("A b", "Text &amp; <ref>"), WikiPage("Deleted", "")]
    assert counts == {"pages": 6, "redirects": 3, "other_namespaces": 1, "other_content": 0}


def test_what_export_0_11_adds() -> None:
    text = '<text bytes="4" sha1="s" xml:space="preserve">'
    new = page("New", "Text", rev="<origin>2</origin>").replace('<text xml:space="preserve">', text)
    data = page("Data", "{}").replace("wikitext</model>", "json</model>")
    pages, counts = read(export(new, data, version="0.11"))
    assert pages == [WikiPage("New", "Text")]
    assert counts["other_content"] == 1


def test_the_latest_revision_is_read() -> None:
    revisions = page("A", "old")[:-7] + page("A", "new").partition("<id>1</id>")[2]
    assert read(export(revisions))[0] == [WikiPage("A", "new")]


def test_namespace_by_its_name_in_old_exports() -> None:
    pages, counts = read(export(page("Project:X", "t", ns=""), page("A: b", "t", ns="")))
    assert [p.title for p in pages] == ["A: b"]
    assert counts["other_namespaces"] == 1


@pytest.mark.parametrize(
    "content, message",
    [
        (b"plain text", "dump.xml: not XML (syntax error: line 1, column 0); give a MediaWiki"),
        (b"", "dump.xml: not XML (no element found: line 1, column 0); give a MediaWiki export"),
        (b"<html></html>", "dump.xml: its root is <html>, not <mediawiki>; give a MediaWiki"),
        (export(*PAGES)[:-400], "dump.xml: damaged or cut off after 4 pages (unclosed token: "),
        (export(*PAGES)[:-10], "dump.xml: damaged or cut off after 6 pages ("),
        (export(PAGES[0], "<page><oops/></page>"), "dump.xml: damaged or cut off after 1 pages ("),
        (export(PAGES[0], page("B", "t", "<ns>x</ns>")), "dump.xml: damaged or cut off after 1"),
    ],
)
def test_damaged_export(content: bytes, message: str) -> None:
    with pytest.raises(ValueError) as error:
        read(content)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_memory_does_not_grow_with_the_pages() -> None:
    def peak(pages: int) -> int:
        stream = io.BytesIO(export(*[PAGES[1]] * pages))
        tracemalloc.start()
        assert not list(read_pages(stream, "dump.xml", Counter()))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(10)
    assert peak(3000) - peak(500) < 100_000  # an element kept of each would be 200_000


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    load_library.cache_clear()
    monkeypatch.setitem(sys.modules, "mwparserfromhell", None)
    with pytest.raises(
        ValueError, match=r"mwparserfromhell; run pip install 'bert-sprint\[dump\]'"
    ):
        clean_markup("Text.")
