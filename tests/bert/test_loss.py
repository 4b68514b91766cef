import pytest
import torch
import torch.nn.functional as F

from bert.batch import pack
from bert.loss import PretrainStats


def logits_and_labels(masked=40, samples=9, vocab=13):
    generator = torch.Generator().manual_seed(5)
    mlm = torch.randn(masked, vocab, generator=generator, dtype=torch.float64)
    nsp = torch.randn(samples, 2, generator=generator, dtype=torch.float64)
    mlm_labels = torch.randint(vocab, (masked,), generator=generator)
    nsp_labels = torch.randint(2, (samples,), generator=generator)
    return mlm.requires_grad_(), mlm_labels, nsp.requires_grad_(), nsp_labels


def test_sums_and_counts():
    mlm, mlm_labels, nsp, nsp_labels = logits_and_labels()
    stats = PretrainStats.from_logits(mlm, mlm_labels, nsp, nsp_labels)
    assert stats.mlm_loss == pytest.approx(F.cross_entropy(mlm, mlm_labels).item(), rel=1e-14)
    assert stats.nsp_loss == pytest.approx(F.cross_entropy(nsp, nsp_labels).item(), rel=1e-14)
    assert stats.mlm_accuracy == (mlm.argmax(1) == mlm_labels).double().mean().item()
    assert stats.nsp_accuracy == (nsp.argmax(1) == nsp_labels).double().mean().item()
    assert (stats.mlm_count.item(), stats.nsp_count.item()) == (40.0, 9.0)
    loss = stats.loss(torch.tensor([40.0, 9.0], dtype=torch.float64))
    assert loss.item() == pytest.approx(stats.mlm_loss + stats.nsp_loss, rel=1e-14)


def test_loss_divides_by_the_counts_given():
    stats = PretrainStats.from_logits(*logits_and_labels())
    loss = stats.loss(torch.tensor([80.0, 3.0], dtype=torch.float64))
    wanted = stats.mlm_loss_sum / 80 + stats.nsp_loss_sum / 3
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-14)


def test_loss_keeps_the_dtype_of_the_model():
    mlm, mlm_labels, nsp, nsp_labels = logits_and_labels()
    stats = PretrainStats.from_logits(mlm.float(), mlm_labels, nsp.float(), nsp_labels)
    assert stats.loss(torch.ones(2, dtype=torch.float64)).dtype == torch.float32
    assert stats.mlm_count.dtype == torch.float64
    assert stats.to_vector().dtype == torch.float64


def test_vector_round_trip_and_addition():
    mlm, mlm_labels, nsp, nsp_labels = logits_and_labels()
    whole = PretrainStats.from_logits(mlm, mlm_labels, nsp, nsp_labels)
    first = PretrainStats.from_logits(mlm[:7], mlm_labels[:7], nsp[:2], nsp_labels[:2])
    second = PretrainStats.from_logits(mlm[7:], mlm_labels[7:], nsp[2:], nsp_labels[2:])
    added = PretrainStats.zeros() + first + second
    torch.testing.assert_close(added.to_vector(), whole.to_vector(), rtol=1e-14, atol=0)
    assert added.mlm_loss_sum.requires_grad
    assert not added.to_vector().requires_grad
    assert not added.detach().mlm_loss_sum.requires_grad
    back = PretrainStats.from_vector(whole.to_vector())
    assert back.to_vector().tolist() == whole.to_vector().tolist()
    assert (back.mlm_accuracy, back.nsp_loss) == (whole.mlm_accuracy, whole.nsp_loss)


def test_nothing_counted_is_zero_not_nan():
    nothing = PretrainStats.zeros()
    assert nothing.mlm_accuracy == nothing.mlm_loss == nothing.nsp_accuracy == 0.0
    assert nothing.loss(torch.zeros(2, dtype=torch.float64)).item() == 0.0


def test_a_batch_without_masked_tokens(model, batch):
    ours = model()
    packed = batch(masked_share=0.0)
    stats = ours(packed)
    stats.loss(packed.counts).backward()
    assert (stats.mlm_loss, stats.mlm_accuracy, stats.mlm_count.item()) == (0.0, 0.0, 0.0)
    assert stats.nsp_loss > 0
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    assert ours.cls.predictions.bias.grad.abs().max() == 0
    assert ours.bert.pooler.dense.weight.grad.abs().max() > 0


def test_parts_add_up_to_the_whole(model, samples):
    given = samples()
    ours = model()
    whole = pack(given)
    ours(whole).loss(whole.counts).backward()
    wanted = {name: parameter.grad.clone() for name, parameter in ours.named_parameters()}
    ours.zero_grad()
    for part in (given[:1], given[1:3], given[3:]):
        ours(pack(part)).loss(whole.counts).backward()
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name], rtol=0, atol=1e-12, msg=name)
