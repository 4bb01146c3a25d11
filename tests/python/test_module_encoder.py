"""Encoders and decoders of torch with FavorAttention in the place of nn.MultiheadAttention."""

import copy

import pytest
import torch
from torch import nn

from performer import FavorAttention, MultiheadAttention

PADDING = torch.arange(7) >= torch.tensor([[7], [4]])  # [B, L], True is padding


def encoder(layers=2, **options):
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, **options)
    return nn.TransformerEncoder(layer, layers)


def swapped(model, features=4096):
    model = copy.deepcopy(model)
    for n, block in enumerate(model.layers):
        block.self_attn = MultiheadAttention.from_multihead(block.self_attn, features, layer=n)
    return model


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", ["train", "eval", "eval without gradients"])
@pytest.mark.parametrize("masks", ["none", "padding", "causal"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_runs_with_the_layer_inside(mode, masks, norm_first):
    """The encoder's fused path must not pass the layer by: fewer features change its output."""
    model, x = encoder(norm_first=norm_first), torch.randn(2, 7, 8)
    options = {
        "none": {},
        "padding": {"src_key_padding_mask": PADDING},
        "causal": {"mask": nn.Transformer.generate_square_subsequent_mask(7)},
    }[masks]
    real = ~PADDING if masks == "padding" else torch.ones_like(PADDING)
    fine, coarse = swapped(model), swapped(model, 4)
    for one in (model, fine, coarse):
        one.train(mode == "train")
    with torch.set_grad_enabled(mode != "eval without gradients"):
        want, got, rough = (one(x, **options) for one in (model, fine, coarse))
    torch.testing.assert_close(got[real], want[real], rtol=0, atol=0.2)
    assert (rough[real] - want[real]).abs().max() > 3 * (got[real] - want[real]).abs().max()
    assert (got[real] - want[real]).abs().max() > 1e-5
    if mode == "train":
        got.sum().backward()
        assert all(p.grad is not None for p in fine.parameters())


def test_an_encoder_exports():
    model, x = swapped(encoder(), 6).eval(), torch.randn(2, 7, 8)
    program = torch.export.export(model, (x,), strict=False)
    torch.testing.assert_close(program.module()(x), model(x))


def test_an_encoder_takes_one_sequence_without_a_batch():
    model, x = swapped(encoder(), 6), torch.randn(7, 8)
    torch.testing.assert_close(model(x), model(x[None])[0])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_decoder_runs_with_the_layer_inside():
    model = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True), 2)
    target, memory = torch.randn(2, 7, 8), torch.randn(2, 5, 8)
    options = {
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(7),
        "tgt_is_causal": True,
        "memory_key_padding_mask": PADDING[:, 2:],
    }
    want = model.eval()(target, memory, **options)
    for block in model.layers:
        block.self_attn = FavorAttention.from_multihead(block.self_attn, 4096)
        block.multihead_attn = FavorAttention.from_multihead(block.multihead_attn, 4096, layer=1)
    torch.testing.assert_close(model(target, memory, **options), want, rtol=0, atol=0.2)


@pytest.mark.usefixtures("fresh_dynamo")
def test_an_encoder_layer_compiles_in_one_graph():
    block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    block.self_attn = FavorAttention.from_multihead(block.self_attn, 6)
    x = torch.randn(2, 7, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    for training in (True, False):
        block.train(training)
        options = {
            "src_mask": mask,
            "src_key_padding_mask": torch.zeros(PADDING.shape).masked_fill(PADDING, -torch.inf),
            "is_causal": True,
        }
        torch.testing.assert_close(compiled(x, **options), block(x, **options))
    with pytest.raises(Exception, match="pass is_causal=True"):
        torch.compile(block.self_attn, fullgraph=True, backend="aot_eager")(x, attn_mask=mask)


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_compiled_encoder_makes_no_nested_tensors_for_the_layer():
    """Without its mask_check the weights' type alone keeps the encoder's fused path away."""
    block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    model = swapped(nn.TransformerEncoder(block, 2, mask_check=False), 6).eval()
    x, options = torch.randn(2, 7, 8), {"src_key_padding_mask": PADDING}
    with torch.no_grad():
        got = torch.compile(model, fullgraph=True, backend="aot_eager")(x, **options)
        torch.testing.assert_close(got, model(x, **options))
