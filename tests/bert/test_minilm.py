"""The published all-MiniLM-L6-v2 against its recorded outputs."""

import numpy as np
import pytest
import torch

from bert.batch import Sample, pack
from bert.model import BertConfig, BertForPreTraining
from bert.pretrained import check_config, load_huggingface, read_huggingface_config

TOLERANCE = 1e-5


@pytest.fixture
def loaded(minilm):
    config = BertConfig(**read_huggingface_config(minilm))
    check_config(config, minilm)
    model = BertForPreTraining(config, torch.Generator().manual_seed(0)).eval()
    return model, load_huggingface(model, minilm)


def test_what_the_checkpoint_holds(loaded):
    _, report = loaded
    assert report.ignored == ("embeddings.position_ids",)
    assert all(name.startswith("cls.") for name in report.fresh)
    assert len(report.loaded) == 103


def test_recorded_outputs(loaded, minilm_reference):
    model, _ = loaded
    recorded = minilm_reference
    lengths = recorded["input_mask"].sum(1)
    none = np.zeros(0, dtype=np.uint16)
    batch = pack(
        [
            Sample(ids[:length], int((segments[:length] == 0).sum()), none, none, 0)
            for ids, segments, length in zip(
                recorded["input_ids"], recorded["segment_ids"], lengths, strict=True
            )
        ]
    )
    with torch.no_grad():
        embedded_TD = model.bert.embeddings(batch)
        hidden_TD = model.encode(batch)
        pooled_BD = model.pool(hidden_TD, batch)
    order = np.argsort(lengths, kind="stable")

    def packed(name):
        rows = [recorded[name][row, : lengths[row]] for row in order]
        return torch.from_numpy(np.concatenate(rows))

    close = {"rtol": 0, "atol": TOLERANCE}
    torch.testing.assert_close(batch.segments_T.int(), packed("segment_ids"))
    torch.testing.assert_close(embedded_TD, packed("embedding_output"), **close)
    torch.testing.assert_close(hidden_TD, packed("last_hidden_state"), **close)
    pooled = torch.from_numpy(recorded["pooler_output"][order])
    torch.testing.assert_close(pooled_BD, pooled, **close)
