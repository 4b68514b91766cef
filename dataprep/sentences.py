"""Text to sentences: NLTK's Punkt (Kiss & Strunk 2006, "Unsupervised Multilingual Sentence
Boundary Detection") without its downloads, or text that has a sentence a line already."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SplitSentences = Callable[[str], list[str]]

# What the untrained rules know of English; a trained model brings its own. Abbreviations (lower
# case, no last stop) don't end a sentence, unless a capitalised sentence starter comes next.
_ABBREVIATIONS = """
    mr mrs ms messrs dr drs prof rev hon st sr jr gen col capt lt cmdr sgt maj adm gov sen rep pres
    vs v etc cf c ca p pp e.g i.e viz al no nos vol ed eds trans fig approx ft mt
    jan feb mar apr jun jul aug sep sept oct nov dec
    inc ltd co corp bros u.s u.k u.n u.s.s.r d.c b.c a.d a.m p.m ph.d m.d
"""
_SENTENCE_STARTERS = """
    a an the this that these those he she it they we i you his her its their our there one some many
    most other both each all no not in on at by for from to with after before during since when
    while as if although though but and however thus
"""
_LINE_ENDS = re.compile(r"[\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
PUNKT_FILES = ("abbrev_types.txt", "collocations.tab", "sent_starters.txt", "ortho_context.tab")


@dataclass(frozen=True)
class SentencesConfig:
    """How documents become sentences.

    Args:
        splitter: punkt; rules (Punkt's, with short lists of English abbreviations and sentence
            starters, no model); or lines where the text has one sentence a line already
        punkt_dir: folder of punkt's model in the form of punkt_tab, such as NLTK's english; without
            it a model is trained on the corpus first
        punkt_megabytes: of text, at most, that a model is trained on
    """

    splitter: str = "punkt"
    punkt_dir: Path | None = None
    punkt_megabytes: float = 4.0


def build_splitter(config: SentencesConfig) -> SplitSentences:
    """The function from a document's text to its sentences: each one line, no white space around.

    Raises:
        ValueError: an unknown splitter, a punkt_dir that isn't one or that nothing would use.
    """
    if config.splitter not in SPLITTERS:
        raise ValueError(f"splitter '{config.splitter}': give one of {', '.join(SPLITTERS)}")
    return SPLITTERS[config.splitter](config.punkt_dir)


class SentenceSplitter:
    """Punkt, paragraph by paragraph.

    Args:
        punkt_dir: folder of a punkt_tab model; None for the untrained rules.

    Raises:
        ValueError: the folder is missing, lacks one of the four files, or one is damaged.
    """

    def __init__(self, punkt_dir: Path | None = None) -> None:
        from nltk.tokenize.punkt import PunktSentenceTokenizer  # a second of every command's start

        parameters = _untrained() if punkt_dir is None else _read_punkt_tab(punkt_dir)
        self._tokenizer = PunktSentenceTokenizer(parameters)

    def split(self, text: str) -> list[str]:
        """Sentences of text whose paragraphs are lines; no sentence crosses a line."""
        return [
            sentence
            for paragraph in split_lines(text)
            for sentence in self._tokenizer.tokenize(paragraph)
        ]


def split_lines(text: str) -> list[str]:
    """The lines of a text without white space around them and without empty ones.

    What some readers take for the end of a line, such as U+2028, becomes a blank. Other white space
    stays: MLPerf names its held-out articles by the md5 of sentences that keep theirs.
    """
    lines = (_LINE_ENDS.sub(" ", line).strip() for line in text.split("\n"))
    return [line for line in lines if line]


def _untrained() -> Any:
    from nltk.tokenize.punkt import PunktParameters

    parameters = PunktParameters()
    parameters.abbrev_types = set(_ABBREVIATIONS.split())
    parameters.sent_starters = set(_SENTENCE_STARTERS.split())
    return parameters


def _read_punkt_tab(folder: Path) -> Any:
    from nltk.tabdata import PunktDecoder
    from nltk.tokenize.punkt import PunktParameters

    # NLTK's own reader takes folders under its data roots only
    parameters, decoder = PunktParameters(), PunktDecoder()
    lines = {}
    for name in PUNKT_FILES:
        try:
            lines[name] = (folder / name).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ValueError(
                f"punkt_dir {folder}: {name}: {error.strerror}; give a punkt_tab folder with "
                f"{', '.join(PUNKT_FILES)}, or none for the untrained rules"
            ) from None
        except UnicodeDecodeError as error:
            raise ValueError(f"{folder / name}: not UTF-8 at byte {error.start}") from None
    try:
        parameters.abbrev_types = decoder.txt2set(lines["abbrev_types.txt"])
        parameters.sent_starters = decoder.txt2set(lines["sent_starters.txt"])
        parameters.collocations = set(decoder.tab2tups(lines["collocations.tab"]))
        parameters.ortho_context = decoder.tab2intdict(lines["ortho_context.tab"])
    except (ValueError, IndexError) as error:
        raise ValueError(f"punkt_dir {folder}: damaged ({error}); take it afresh") from None
    return parameters


def _build_punkt(punkt_dir: Path | None) -> SplitSentences:
    if punkt_dir is None:
        raise ValueError("splitter punkt: no model yet; train one, or give its folder as punkt_dir")
    return SentenceSplitter(punkt_dir).split


def _build_rules(punkt_dir: Path | None) -> SplitSentences:
    _refuse_model("rules", punkt_dir)
    return SentenceSplitter().split


def _build_lines(punkt_dir: Path | None) -> SplitSentences:
    _refuse_model("lines", punkt_dir)
    return split_lines


def _refuse_model(splitter: str, punkt_dir: Path | None) -> None:
    if punkt_dir is not None:
        raise ValueError(f"punkt_dir {punkt_dir}: splitter {splitter} uses no model; leave it out")


SPLITTERS: dict[str, Callable[[Path | None], SplitSentences]] = {
    "punkt": _build_punkt,
    "rules": _build_rules,
    "lines": _build_lines,
}
