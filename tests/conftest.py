"""What several test folders share."""

import random
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_TEXT = """
the of and in to a was is for as on with by he that at from his it an were are which this be or had
first their has its new after but who not they have her she two been other when time during there
into all may more school would can some river city war world music film
"""
WORDS = _TEXT.split()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--record-golden`` replaces the recorded loss curve by that of this machine."""
    parser.addoption("--record-golden", action="store_true")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Recorded real inputs and outputs, kept beside the project; skips where they are absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the recorded data in ../shared/data")
    return folder


@pytest.fixture(scope="session")
def vocabulary_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small vocabulary that covers WORDS."""
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *WORDS]
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty documents of made-up sentences, an empty line between them."""
    draw = random.Random(7)
    documents = []
    for _ in range(40):
        sentences = [
            " ".join(draw.choices(WORDS, k=draw.randint(3, 20))) + " ."
            for _ in range(draw.randint(1, 30))
        ]
        documents.append("\n".join(sentences))
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path
