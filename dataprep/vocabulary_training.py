"""A WordPiece vocabulary of one's own corpus, through `tokenizers`."""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from dataprep.tokenization import (
    MAX_VOCABULARY,
    MAX_WORD_CHARACTERS,
    SPECIAL_TOKENS,
    Vocabulary,
    load_vocabulary,
    save_vocabulary,
)

MAX_ALPHABET = 1000  # as `tokenizers` limits it for BERT; a word with a rarer character is left out
_MIN_FREQUENCY = 2
_CONTINUING = "##"


def train_vocabulary(texts: Iterable[str], size: int, lowercase: bool, output: Path) -> Vocabulary:
    """Train a vocabulary and write it, one token a line.

    Its tokens are BERT's special ones, the characters, the characters that go on within a word, and
    then what training merges of them, in that order. It may have fewer than ``size`` where no pair
    of tokens comes twice any more. Equal texts, in any order, make equal files.

    Args:
        texts: any pieces of text; read once, kept as words in a temporary file.
        size: the most tokens, special ones included.
        lowercase: lower-case the text and strip accents first, as for BERT uncased.
        output: the vocabulary file; written whole or not at all.

    Raises:
        ValueError: a size that doesn't hold the characters, or that shards can't store; no word.
    """
    if size > MAX_VOCABULARY:
        raise ValueError(f"vocabulary size {size}: at most {MAX_VOCABULARY} tokens fit the shards")
    starting: Counter[str] = Counter()
    continuing: Counter[str] = Counter()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as spool:
        for words in _words(texts, lowercase):
            spool.write(" ".join(words) + "\n")
            starting.update(word[0] for word in words)
            continuing.update("".join(word[1:] for word in words))
        kept = _most_frequent(starting + continuing)
        characters = [
            *sorted(kept),
            *(_CONTINUING + character for character in sorted(kept & continuing.keys())),
        ]
        _check_size(size, len(characters))
        # The trainer numbers characters in the order in which it meets them, which differs from
        # run to run, and breaks ties by number: special tokens have fixed ones.
        trainer = trainers.WordPieceTrainer(
            vocab_size=size,
            min_frequency=_MIN_FREQUENCY,
            special_tokens=[*SPECIAL_TOKENS, *characters],
            continuing_subword_prefix=_CONTINUING,
            show_progress=False,
        )
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer.train_from_iterator(_known_words(spool, kept), trainer)
    ids = tokenizer.get_vocab(with_added_tokens=False)
    save_vocabulary(Vocabulary(tuple(sorted(ids, key=ids.__getitem__)), ""), output)
    return load_vocabulary(output)


def _words(texts: Iterable[str], lowercase: bool) -> Iterator[list[str]]:
    """The words of each text, as BERT's tokenizer takes them before it looks for word pieces."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    for text in texts:
        words = pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(text))
        yield [word for word, _ in words if len(word) <= MAX_WORD_CHARACTERS]


def _most_frequent(counts: Counter[str]) -> set[str]:
    """At most `MAX_ALPHABET` characters; of equally frequent ones those that Unicode has first."""
    return set(sorted(counts, key=lambda character: (-counts[character], character))[:MAX_ALPHABET])


def _check_size(size: int, characters: int) -> None:
    if not characters:
        raise ValueError("no word to train a vocabulary on; give a corpus with text")
    least = len(SPECIAL_TOKENS) + characters
    if size < least:
        raise ValueError(
            f"vocabulary size {size}: special tokens and characters of the text take {least} "
            "already; give more, such as 30522"
        )


def _known_words(spool: IO[str], alphabet: set[str]) -> Iterator[str]:
    """The spooled texts without the words that would be unknown, as the trainer would maim them."""
    spool.seek(0)
    for line in spool:
        yield " ".join(word for word in line.split() if alphabet.issuperset(word))
