"""BERT's sample building as its description goes, token by token, for the fast builder to match.

Slow and plain on purpose: lists, one random stream, no spans, no closed forms.
"""

import random

Pair = tuple[list[int], list[int], bool]


def naive_pairs(
    documents: list[list[list[int]]],
    max_seq_length: int,
    short_probability: float,
    draw: random.Random,
) -> list[Pair]:
    """Both segments of each sample, cut to fit, and whether the second is random."""
    pairs: list[Pair] = []
    for number, document in enumerate(documents):
        longest = max_seq_length - 3
        target = longest
        if draw.random() < short_probability:
            target = draw.randint(2, longest)
        chunk: list[list[int]] = []
        position = 0
        while position < len(document):
            chunk.append(document[position])
            size = sum(map(len, chunk))
            if position == len(document) - 1 or size >= target:
                cut = 1 if len(chunk) < 2 else draw.randint(1, len(chunk) - 1)
                first = [token for sentence in chunk[:cut] for token in sentence]
                is_random = len(chunk) == 1 or draw.random() < 0.5
                if is_random:
                    second = _from_elsewhere(documents, number, target - len(first), draw)
                    position -= len(chunk) - cut  # unused sentences come again
                else:
                    second = [token for sentence in chunk[cut:] for token in sentence]
                while len(first) + len(second) > longest:
                    longer = first if len(first) > len(second) else second
                    longer.pop(0 if draw.random() < 0.5 else -1)
                pairs.append((first, second, is_random))
                chunk = []
            position += 1
    return pairs


def _from_elsewhere(
    documents: list[list[list[int]]], own: int, wanted: int, draw: random.Random
) -> list[int]:
    other = own
    while other == own:
        other = draw.randrange(len(documents))
    start = draw.randrange(len(documents[other]))
    tokens: list[int] = []
    for sentence in documents[other][start:]:
        tokens += sentence
        if len(tokens) >= wanted:
            break
    return tokens
