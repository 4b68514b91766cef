"""Text to tokens exactly as MLPerf's reference does it, character by character.

The semantics are those of ``tokenization.py`` (google-research/bert): control characters are
dropped, CJK characters stand alone, a word is lower-cased by ``str.lower`` (which knows the Greek
final sigma) and stripped of accents, and punctuation is what ASCII or Unicode's P classes say.
"""

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dataprep.tokenization import MAX_WORD_CHARACTERS, SPECIAL_TOKENS, Vocabulary

_MAX_REMEMBERED = 1 << 18  # words; some 50 MB
# the ranges that the reference takes for Chinese characters
_CJK = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class ReferenceTokenizer:
    """BERT's original tokenizer, to the id.

    What stands between two spaces is tokenised by itself, so each such word is tokenised once and
    remembered.

    Args:
        vocabulary: of the tokens.
        lowercase: whether words are lower-cased and their accents stripped.
        literal_special_tokens: whether a word of the text such as ``[MASK]`` is that special
            token; else it is three words like any other text in brackets.
    """

    def __init__(
        self, vocabulary: Vocabulary, lowercase: bool, literal_special_tokens: bool = True
    ) -> None:
        special = frozenset(SPECIAL_TOKENS) if literal_special_tokens else frozenset()
        self._ids_of = _Words(vocabulary, lowercase, special)

    def encode(self, sentences: Sequence[str]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """The tokens of n sentences; carriage returns are dropped, as the reference's reader does.

        Returns:
            tokens of all one after the other [T], and how many each sentence has [n].
        """
        ids_of = self._ids_of.__getitem__
        ids = [
            b"".join(map(ids_of, sentence.replace("\r", "").split(" "))) for sentence in sentences
        ]
        sizes = np.fromiter(map(len, ids), np.int64, len(ids)) // 2
        return np.frombuffer(b"".join(ids), np.uint16), sizes


class _Words(dict[str, bytes]):
    """What stands between two spaces -> its ids as uint16; made when first asked for."""

    def __init__(self, vocabulary: Vocabulary, lowercase: bool, special: frozenset[str]) -> None:
        super().__init__()
        self._id_of = {token: index for index, token in enumerate(vocabulary.tokens)}
        self._unknown = vocabulary.id("[UNK]")
        self._longest = max(map(len, vocabulary.tokens))
        self._lowercase = lowercase
        self._special = special
        self._cleaned = _Cleaned()
        self._separated = _Separated()

    def __missing__(self, text: str) -> bytes:
        ids = array("H")
        for word in self._split(text):
            ids.extend(self._pieces(word))
        if len(self) >= _MAX_REMEMBERED:
            self.clear()
        self[text] = ids.tobytes()
        return self[text]

    def _split(self, text: str) -> Iterator[str]:
        for word in "".join(map(self._cleaned.__getitem__, text)).split():
            if word in self._special:
                yield word
                continue
            if self._lowercase:
                decomposed = unicodedata.normalize("NFD", word.lower())
                word = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
            yield from "".join(map(self._separated.__getitem__, word)).split()

    def _pieces(self, word: str) -> list[int]:
        """WordPiece: the longest token that fits, again and again."""
        if len(word) > MAX_WORD_CHARACTERS:
            return [self._unknown]
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(min(len(word), start + self._longest), start, -1):
                token = self._id_of.get(prefix + word[start:end])
                if token is not None:
                    break
            else:
                return [self._unknown]
            ids.append(token)
            start = end
        return ids


class _Cleaned(dict[str, str]):
    """A character -> what is left of it: nothing, a space, itself, or itself set apart."""

    def __missing__(self, character: str) -> str:
        category = unicodedata.category(character)
        if character in "\t\n\r" or category == "Zs":
            kept = " "
        elif category in ("Cc", "Cf") or character == "\ufffd":
            kept = ""
        else:
            kept = f" {character} " if _CJK.match(character) else character
        self[character] = kept
        return kept


class _Separated(dict[str, str]):
    """A character -> itself, with spaces around it if it is punctuation."""

    def __missing__(self, character: str) -> str:
        punctuation = character in _ASCII_PUNCTUATION or unicodedata.category(character)[0] == "P"
        self[character] = f" {character} " if punctuation else character
        return self[character]
