import pytest
import torch

from bert.attention import ATTENTION_KERNELS, build_attention, grouped, padded

HEADS, WIDTH = 3, 8
MIXED = (3, 3, 5, 8, 8, 8, 1)


def packed_inputs(lengths, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shape = (sum(lengths), HEADS, WIDTH)
    tensors = [torch.randn(shape, generator=generator, dtype=dtype) for _ in range(3)]
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    return [tensor.requires_grad_() for tensor in tensors], cu_seqlens


def by_hand(query, key, value, lengths):
    """Softmax attention of each sample and head in turn, written out."""
    contexts = []
    for one in zip(*(tensor.split(lengths) for tensor in (query, key, value)), strict=True):
        q, k, v = (tensor.transpose(0, 1) for tensor in one)
        probabilities = torch.softmax(q @ k.transpose(1, 2) / WIDTH**0.5, dim=-1)
        contexts.append((probabilities @ v).transpose(0, 1))
    return torch.cat(contexts)


@pytest.mark.parametrize("name", ATTENTION_KERNELS)
@pytest.mark.parametrize("lengths", [MIXED, (6,), (4, 4, 4), (5, 2, 5)])
def test_kernels_agree_with_the_formula(name, lengths):
    kernel = build_attention(name)
    inputs, cu_seqlens = packed_inputs(lengths)
    context = kernel(*inputs, cu_seqlens, lengths, 0.0)
    wanted = by_hand(*inputs, lengths)
    torch.testing.assert_close(context, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 2e-6)])
def test_grouped_is_padded_with_gradients(dtype, tolerance):
    results = []
    for kernel in (grouped, padded):
        inputs, cu_seqlens = packed_inputs(MIXED, dtype=dtype)
        context = kernel(*inputs, cu_seqlens, MIXED, 0.0)
        weights = torch.linspace(-1, 1, context.numel(), dtype=dtype).view_as(context)
        (context * weights).sum().backward()
        results.append([context, *(tensor.grad for tensor in inputs)])
    for ours, reference in zip(*results, strict=True):
        torch.testing.assert_close(ours, reference, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ATTENTION_KERNELS)
def test_samples_do_not_see_one_another(name):
    kernel = build_attention(name)
    (query, key, value), cu_seqlens = packed_inputs(MIXED)
    start, end = 6, 11
    with torch.no_grad():
        before = kernel(query, key, value, cu_seqlens, MIXED, 0.0)
        for tensor in (query, key, value):
            tensor[start:end] += 3
        after = kernel(query, key, value, cu_seqlens, MIXED, 0.0)
    others = torch.ones(len(before), dtype=torch.bool)
    others[start:end] = False
    torch.testing.assert_close(after[others], before[others], rtol=0, atol=1e-14)
    assert (after[start:end] - before[start:end]).abs().min() > 0


def dropped_probabilities(kernel, lengths, dropout_p):
    """The probabilities times S, as the kernel left them after dropout.

    Equal keys make every probability 1/S; values that are rows of an identity matrix make the
    context show the probabilities themselves.
    """
    size = lengths[0]
    zeros = torch.zeros(sum(lengths), HEADS, size)
    value = torch.eye(size).repeat(len(lengths), 1)[:, None, :].expand(-1, HEADS, -1)
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    return kernel(zeros, zeros, value, cu_seqlens, lengths, dropout_p) * size


@pytest.mark.parametrize("name", ATTENTION_KERNELS)
@pytest.mark.parametrize("dropout_p", [0.1, 0.5])
def test_dropout_rate_and_scale(name, dropout_p):
    torch.manual_seed(11)
    values = dropped_probabilities(build_attention(name), (64,) * 8, dropout_p)
    kept = values != 0
    torch.testing.assert_close(
        values[kept], torch.full_like(values[kept], 1 / (1 - dropout_p)), rtol=1e-5, atol=0
    )
    deviation = (dropout_p * (1 - dropout_p) / kept.numel()) ** 0.5
    assert abs(kept.double().mean().item() - (1 - dropout_p)) < 5 * deviation
    # Every head and every sample draws for itself.
    assert not torch.equal(kept[:, 0], kept[:, 1])
    assert not torch.equal(kept[:64], kept[64:128])


@pytest.mark.parametrize("name", ATTENTION_KERNELS)
def test_no_dropout_at_zero(name):
    values = dropped_probabilities(build_attention(name), (16, 16), 0.0)
    torch.testing.assert_close(values, torch.ones_like(values), rtol=1e-5, atol=0)


def test_an_unknown_kernel_is_named_with_the_valid_ones():
    with pytest.raises(ValueError, match="'flush'.*grouped, padded") as caught:
        build_attention("flush")
    assert "\n" not in str(caught.value)
