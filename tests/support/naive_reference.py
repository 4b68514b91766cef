"""MLPerf's sample making as it is described, step by step, for the fast one to match.

Slow and plain on purpose: whole sentences, lists of ids, Random's own methods, nothing remembered.
"""

import random
import unicodedata
from typing import NamedTuple

from dataprep.samples import SamplesConfig

CLS, SEP, MASK = "[CLS]", "[SEP]", "[MASK]"
_CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def naive_words(text: str, lowercase: bool, special: tuple[str, ...]) -> list[str]:
    """The words and punctuation marks of a text, before WordPiece."""
    clean = ""
    for character in text:
        category = unicodedata.category(character)
        if character in (" ", "\t", "\n", "\r") or category == "Zs":
            clean += " "
        elif category == "Cc" or category == "Cf" or ord(character) in (0, 0xFFFD):
            continue
        elif any(low <= ord(character) <= high for low, high in _CJK_RANGES):
            clean += " " + character + " "
        else:
            clean += character
    words: list[str] = []
    for token in clean.strip().split():
        if token in special:
            words.append(token)
            continue
        if lowercase:
            token = unicodedata.normalize("NFD", token.lower())
            token = "".join(c for c in token if unicodedata.category(c) != "Mn")
        word = ""
        for character in token:
            if _is_punctuation(character):
                words += [word, character]
                word = ""
            else:
                word += character
        words.append(word)
    return " ".join(words).split()


def _is_punctuation(character: str) -> bool:
    code = ord(character)
    in_ascii = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return in_ascii or unicodedata.category(character).startswith("P")


def naive_tokens(
    text: str, vocabulary: dict[str, int], lowercase: bool, special: tuple[str, ...]
) -> list[str]:
    """WordPieces by trying every end of every start."""
    tokens: list[str] = []
    for word in naive_words(text, lowercase, special):
        pieces: list[str] = []
        rest = word
        while rest:
            found = [("##" if pieces else "") + rest[:n] for n in range(len(rest), 0, -1)]
            piece = next((p for p in found if p in vocabulary), None)
            if piece is None:
                break
            rest = rest[len(piece) - (2 if pieces else 0) :]
            pieces.append(piece)
        tokens += ["[UNK]"] if rest or len(word) > 200 else pieces
    return tokens


class NaiveSample(NamedTuple):
    """A sample in the reference's terms."""

    tokens: list[str]
    segment_ids: list[int]
    positions: list[int]
    labels: list[str]
    is_random: bool


def naive_samples(
    documents: list[list[list[str]]],
    words: list[str],
    config: SamplesConfig,
    seed: int,
) -> list[NaiveSample]:
    """All samples of one text part, documents being lists of sentences of tokens."""
    draw = random.Random(seed)
    documents = [list(document) for document in documents]
    draw.shuffle(documents)
    samples: list[NaiveSample] = []
    for _ in range(config.dupe_factor):
        for number in range(len(documents)):
            pairs = _pairs(documents, number, config, draw)
            for first, second, is_random in pairs:
                tokens = [CLS, *first, SEP, *second, SEP]
                segment_ids = [0] * (len(first) + 2) + [1] * (len(second) + 1)
                wanted = max(1, round(len(tokens) * config.masked_lm_probability))
                wanted = min(wanted, config.max_predictions)
                masked, positions, labels = _mask(tokens, wanted, words, draw)
                samples.append(NaiveSample(masked, segment_ids, positions, labels, is_random))
    draw.shuffle(samples)
    return samples


def _pairs(documents, number, config, draw):
    document = documents[number]
    target = longest = config.max_seq_length - 3
    if draw.random() < config.short_sequence_probability:
        target = draw.randint(2, longest)
    chunk: list[list[str]] = []
    position = 0
    while position < len(document):
        chunk.append(document[position])
        if position == len(document) - 1 or sum(map(len, chunk)) >= target:
            cut = draw.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            first = sum(chunk[:cut], [])
            is_random = len(chunk) == 1 or draw.random() < 0.5
            if is_random:
                second, other = _from_elsewhere(documents, number, target - len(first), draw)
                is_random = other != number
                position -= len(chunk) - cut
            else:
                second = sum(chunk[cut:], [])
            while len(first) + len(second) > longest:
                longer = first if len(first) > len(second) else second
                longer.pop(0 if draw.random() < 0.5 else -1)
            # the masks of this pair are drawn before the next pair is
            yield first, second, is_random
            chunk = []
        position += 1


def _from_elsewhere(documents, own, wanted, draw):
    for _ in range(10):
        other = draw.randint(0, len(documents) - 1)
        if other != own:
            break
    second: list[str] = []
    for sentence in documents[other][draw.randint(0, len(documents[other]) - 1) :]:
        second = second + sentence
        if len(second) >= wanted:
            break
    return second, other


def _mask(tokens, wanted, words, draw):
    candidates = [i for i, token in enumerate(tokens) if token not in (CLS, SEP)]
    draw.shuffle(candidates)
    output = list(tokens)
    for i in candidates[:wanted]:
        if draw.random() < 0.8:
            output[i] = MASK
        elif draw.random() >= 0.5:
            output[i] = words[draw.randint(0, len(words) - 1)]
    positions = sorted(candidates[:wanted])
    return output, positions, [tokens[i] for i in positions]
