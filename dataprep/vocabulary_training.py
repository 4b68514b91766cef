"""A WordPiece vocabulary of one's own corpus, through `tokenizers`."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from dataprep.tokenization import SPECIAL_TOKENS, Vocabulary, load_vocabulary, save_vocabulary
