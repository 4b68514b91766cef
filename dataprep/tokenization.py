"""WordPiece tokens of BERT (Devlin et al. 2019, arXiv 1810.04805) through `tokenizers`."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from dataprep.blocks import offsets_of, ragged_range
from dataprep.storage import replacing

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# as in the reference's tokenization.py: a longer word becomes [UNK]
MAX_WORD_CHARACTERS = 200
MAX_VOCABULARY = 1 << 16  # token ids are stored as u2
VOCABULARY_NAME = "vocab.txt"  # beside the shards that were made with it
# what stands between blanks, ASCII punctuation by itself: a cut at either never cuts a token
_PIECE = re.compile(r"[!-/:-@\[-`{-~\n]|[^ !-/:-@\[-`{-~\n]+")
_MAX_REMEMBERED = 1 << 18  # pieces: about 60 MB
_ENCODED_AT_ONCE = 4096


@dataclass(frozen=True)
class Vocabulary:
    """A WordPiece vocabulary; a token's id is its place.

    ``sha256`` is that of the tokens, one a line: for a file with Unix line ends, the file's own.
    """

    tokens: tuple[str, ...]
    sha256: str

    def __len__(self) -> int:
        return len(self.tokens)

    def id(self, token: str) -> int:
        """The id of a token that is known to be there, such as a special one."""
        return self.tokens.index(token)


def load_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary, one token a line.

    Raises:
        ValueError: the file is missing or not UTF-8; a line is blank or doubled (the line is
            named); a special token is missing; more than 65,536 tokens.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such vocabulary file") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}; give a vocab.txt") from None
    if lines[-1] == "":
        lines.pop()
    seen: dict[str, int] = {}
    for number, token in enumerate(lines, 1):
        if not token.strip():
            raise ValueError(f"{path}: line {number} is blank; ids would shift, remove nothing "
                             "but restore the token")  # fmt: skip
        if token in seen:
            raise ValueError(
                f"{path}: '{token}' stands on lines {seen[token]} and {number}; each token once"
            )
        seen[token] = number
    for token in SPECIAL_TOKENS:
        if token not in seen:
            raise ValueError(f"{path}: no {token} among {len(lines)} tokens; give BERT's vocab.txt")
    if len(lines) > MAX_VOCABULARY:
        raise ValueError(f"{path}: {len(lines)} tokens, at most {MAX_VOCABULARY} fit the shards")
    content = "".join(f"{token}\n" for token in lines)
    return Vocabulary(tuple(lines), hashlib.sha256(content.encode()).hexdigest())


def save_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    """Write a vocabulary as ``load_vocabulary`` reads it."""
    with replacing(path) as temporary:
        temporary.write_text("".join(f"{t}\n" for t in vocabulary.tokens), encoding="utf-8")


def build_tokenizer(vocabulary: Vocabulary, lowercase: bool) -> Tokenizer:
    """BERT's tokenizer: clean, split at spaces, punctuation and CJK, then WordPiece.

    Special tokens written in the text, such as a literal ``[MASK]``, are plain text to it.
    """
    vocab = {token: index for index, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(
        models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARACTERS)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


class SentenceTokenizer:
    """The tokens of many sentences at once, the same as those of ``build_tokenizer``.

    A text's tokens are those of its pieces between blanks and punctuation one after the other, and
    most pieces come again and again: each is tokenised once and looked up from then on.
    """

    def __init__(self, vocabulary: Vocabulary, lowercase: bool) -> None:
        self._tokenizer = build_tokenizer(vocabulary, lowercase)
        self._forget()

    def _forget(self) -> None:
        # piece i has the tokens self._tokens[self._offsets[i]:self._offsets[i+1]]
        self._index = {"\n": 0}  # ends a sentence, without a token
        self._tokens = np.zeros(0, np.uint16)
        self._offsets = np.zeros(2, np.int64)

    def encode(self, sentences: Sequence[str]) -> tuple[NDArray[np.uint16], NDArray[np.int64]]:
        """The tokens of n sentences, none of which holds a line feed.

        Returns:
            tokens of all one after the other [T], and how many each sentence has [n].
        """
        pieces = _PIECE.findall("\n".join([*sentences, ""]))
        self._learn(set(pieces))
        indices = np.fromiter(map(self._index.__getitem__, pieces), np.int64, len(pieces))
        sizes = np.diff(self._offsets)[indices]
        tokens = self._tokens[ragged_range(self._offsets[indices], sizes)]
        ends = offsets_of(sizes)[np.flatnonzero(indices == 0)]
        assert len(ends) == len(sentences)
        return tokens, np.diff(ends, prepend=0)

    def _learn(self, pieces: set[str]) -> None:
        unknown = pieces.difference(self._index)
        if len(self._index) + len(unknown) > _MAX_REMEMBERED:
            self._forget()
            unknown = pieces.difference(self._index)
        ordered = list(unknown)
        for start in range(0, len(ordered), _ENCODED_AT_ONCE):
            some = ordered[start : start + _ENCODED_AT_ONCE]
            encoded = self._tokenizer.encode_batch_fast(some, add_special_tokens=False)
            ids = [one.ids for one in encoded]
            self._index.update(zip(some, count(len(self._index)), strict=False))
            flat = np.fromiter(chain.from_iterable(ids), np.uint16)
            ends = len(self._tokens) + np.cumsum(list(map(len, ids)))
            self._tokens = np.concatenate([self._tokens, flat])
            self._offsets = np.concatenate([self._offsets, ends])
