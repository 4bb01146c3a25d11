"""from_performer_pytorch, on stand-ins with the attributes of that package's modules."""

import pytest
import torch
from torch import nn

import performer
from performer import FavorAttention, FavorSDPA, from_performer_pytorch


class FastAttention(nn.Module):
    """Attributes and arithmetic of theirs, with no constant added to the softmax features."""

    def __init__(self, dim=4, features=6, causal=False, f=None, scaling=0, no_projection=False):
        super().__init__()
        self.dim_heads, self.nb_features, self.ortho_scaling = dim, features, scaling
        self.causal, self.generalized_attention = causal, f is not None
        self.kernel_fn = nn.ReLU() if f is None else f
        self.no_projection = no_projection
        self.register_buffer("projection_matrix", torch.randn(features, dim))

    def features(self, x):
        W, x = self.projection_matrix.to(x.dtype), x * self.dim_heads**-0.25
        if self.generalized_attention:
            return self.kernel_fn(x @ W.T) + 1e-3
        return torch.exp(x @ W.T - x.square().sum(-1, keepdim=True) / 2)

    def forward(self, q, k, v):
        weights = self.features(q) @ self.features(k).mT
        weights = weights.tril() if self.causal else weights
        return (weights / weights.sum(-1, keepdim=True)) @ v


class SelfAttention(nn.Module):
    def __init__(self, dim=12, heads=3, dim_head=4, qkv_bias=False, out_bias=True, **options):
        super().__init__()
        self.heads = self.global_heads = heads
        self.local_attn, self.dropout = None, nn.Dropout(0.0)
        self.fast_attention = FastAttention(dim_head, **options)
        for name in ("to_q", "to_k", "to_v"):
            setattr(self, name, nn.Linear(dim, heads * dim_head, bias=qkv_bias))
        self.to_out = nn.Linear(heads * dim_head, dim, bias=out_bias)

    def forward(self, x):
        q, k, v = (
            to(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for to in (self.to_q, self.to_k, self.to_v)
        )
        return self.to_out(self.fast_attention(q, k, v).transpose(1, 2).flatten(2))


def softplus(x):
    return nn.functional.softplus(x)


MAPS = [None, nn.ReLU(), torch.relu, nn.GELU(), nn.Sigmoid(), torch.exp, torch.abs, softplus]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("f", MAPS, ids=lambda f: getattr(f, "__name__", str(f)))
def test_fast_attention_gives_the_same_numbers(f, causal):
    theirs = FastAttention(causal=causal, f=f)
    ours = from_performer_pytorch(theirs)
    assert isinstance(ours, FavorSDPA)
    q, k, v = torch.randn(3, 2, 3, 7, 4, dtype=torch.float64).unbind()
    torch.testing.assert_close(ours(q, k, v), theirs(q, k, v), rtol=1e-9, atol=1e-11)


def test_known_functions_take_the_kernels_and_others_stay_themselves():
    maps = [from_performer_pytorch(FastAttention(f=f)).feature_map for f in MAPS[1:]]
    assert maps == ["relu", "relu", "gelu", "sigmoid", "exp", "abs", softplus]
    functions = [nn.functional.sigmoid, nn.functional.tanh, nn.functional.gelu]
    maps = [from_performer_pytorch(FastAttention(f=f)).feature_map for f in functions]
    assert maps == ["sigmoid", "tanh", "gelu"]
    tanh_gelu = nn.GELU("tanh")
    assert from_performer_pytorch(FastAttention(f=tanh_gelu)).feature_map is tanh_gelu


@pytest.mark.parametrize("kind", [nn.ReLU, nn.GELU, nn.Sigmoid, nn.Identity])
def test_a_subclass_of_a_known_function_stays_itself(kind):
    class Squared(kind):
        def forward(self, x):
            return super().forward(x).square()

    theirs = FastAttention(f=Squared())
    ours = from_performer_pytorch(theirs)
    assert ours.feature_map is theirs.kernel_fn
    q, k, v = torch.randn(3, 2, 3, 7, 4, dtype=torch.float64).unbind()
    torch.testing.assert_close(ours(q, k, v), theirs(q, k, v), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("shape", [{}, {"dim": 10, "heads": 2, "dim_head": 6}])
@pytest.mark.parametrize("biases", [(False, True), (True, False)])
@pytest.mark.parametrize("f", [None, nn.ReLU()], ids=["softmax", "relu"])
def test_self_attention_brings_its_weights(shape, biases, f):
    theirs = SelfAttention(qkv_bias=biases[0], out_bias=biases[1], f=f, causal=True, **shape)
    ours = from_performer_pytorch(theirs.eval(), layer=3)
    assert isinstance(ours, FavorAttention) and not ours.training and ours.layer == 3
    x = torch.randn(2, 7, theirs.to_q.in_features)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)
    named = dict(ours.named_parameters())
    assert ("q_proj.bias" in named, "out_proj.bias" in named) == biases


def test_copies_and_does_not_share():
    theirs = SelfAttention()
    ours = from_performer_pytorch(theirs)
    before = ours.projection.clone()
    theirs.fast_attention.projection_matrix.zero_()
    nn.init.zeros_(theirs.to_q.weight)
    assert torch.equal(ours.projection, before) and ours.q_proj.weight.any()


def test_what_is_frozen_stays_frozen_and_options_replace_what_is_read():
    theirs = SelfAttention()
    theirs.to_k.weight.requires_grad_(False)
    ours = from_performer_pytorch(theirs, dtype=torch.float64)
    frozen = {name for name, p in ours.named_parameters() if not p.requires_grad}
    assert frozen == {"k_proj.weight"} and ours.k_proj.weight.dtype == torch.float64
    for module in (theirs, theirs.fast_attention):
        with pytest.raises(ValueError, match="num_features comes from the module, got 12"):
            from_performer_pytorch(module, num_features=12)


@pytest.mark.parametrize("option", [{"num_kv_heads": 1}, {"shared_projection": False}])
def test_the_form_of_the_layer_is_the_modules(option):
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=f"{name} comes from the module, got {value}; leave it"):
        from_performer_pytorch(SelfAttention(), **option)


@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")
@pytest.mark.parametrize("build", [SelfAttention, FastAttention])
def test_the_projection_goes_to_the_device_that_is_asked_for(build):
    ours = from_performer_pytorch(build(), device="meta")
    assert all(x.is_meta for x in (*ours.parameters(), *ours.buffers()))


def test_redraws_are_of_the_same_kind():
    ours = from_performer_pytorch(SelfAttention(scaling=1), redraw_interval=1)
    ours.redraw()
    want = performer.draw_projection(6, 4, norm="sqrt_d", draw=1)
    assert torch.equal(ours.projection, want)


def test_swaps_inside_a_model_by_one_loop():
    model = nn.Sequential(SelfAttention(), SelfAttention(causal=True))
    x = torch.randn(2, 7, 12)
    want = model(x)
    for block in model.modules():
        if hasattr(block, "fast_attention"):
            block.fast_attention = from_performer_pytorch(block.fast_attention)
    torch.testing.assert_close(model(x), want, rtol=1e-4, atol=1e-5)
    assert performer.last_kernel().endswith("causal")


def with_local_heads():
    module = SelfAttention()
    module.local_attn, module.global_heads = nn.Identity(), 1
    return module


def with_dropout():
    module = SelfAttention()
    module.dropout.p = 0.2
    return module


@pytest.mark.parametrize(
    ("module", "error", "message"),
    [
        (FastAttention(no_projection=True), ValueError, "no_projection must be False"),
        (with_local_heads(), ValueError, "local_heads must be 0, got 2"),
        (with_dropout(), ValueError, r"dropout must be 0, got 0.2.*put nn.Dropout\(0.2\)"),
        (nn.Linear(2, 2), TypeError, "got Linear without dim_heads, nb_features"),
    ],
)
def test_what_cannot_be_taken_over_is_refused_in_one_line(module, error, message):
    with pytest.raises(error, match=message) as seen:
        from_performer_pytorch(module)
    assert "\n" not in str(seen.value)


def test_an_output_of_performer_pytorch_itself():
    """FastAttention(2, nb_features=3) of version 1.1.4, in float64, its 1e-4 set to 0."""
    theirs = FastAttention(2, 3)
    theirs.projection_matrix = torch.tensor([[1.0, -0.5], [0.25, 2.0], [-1.5, 0.75]])
    q = torch.tensor([[0.5, -1.0], [2.0, 0.25], [-0.75, 1.5]], dtype=torch.float64)[None, None]
    v = torch.tensor([[1.0, 2.0], [-3.0, 0.5], [4.0, -1.0]], dtype=torch.float64)[None, None]
    out = from_performer_pytorch(theirs)(q, q.flip(2), v)
    torch.testing.assert_close(out, GOLDEN[None, None], rtol=1e-12, atol=1e-12)


GOLDEN = torch.tensor(
    [
        [0.9318799719035425, 0.1688957387211574],
        [0.8027054729468732, 0.6441847444768248],
        [0.7598027676732719, 1.7242111791788304],
    ],
    dtype=torch.float64,
)
