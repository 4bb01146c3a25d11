"""Small random models of the package transformers, with attention that is far from uniform."""

import torch
import transformers

transformers.logging.set_verbosity_error()

VOCABULARY = 64
_SIZES = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 3}
_HEADS = {"num_attention_heads": 4, "intermediate_size": 48}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}


def bert(**changes):
    config = transformers.BertConfig(**{**_SIZES, **_HEADS, **_NO_DROPOUT, **changes})
    return _ready(transformers.BertModel(config))


def esm(**changes):
    given = {"pad_token_id": 1, "mask_token_id": 32, "position_embedding_type": "rotary"}
    config = transformers.EsmConfig(**{**_SIZES, **_HEADS, **_NO_DROPOUT, **given, **changes})
    return _ready(transformers.EsmForMaskedLM(config))


def gpt2(**changes):
    sizes = {"n_embd": 32, "n_layer": 3, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 512}
    dropout = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    config = transformers.GPT2Config(**{**sizes, **dropout, **_NO_TOKENS, **changes})
    return _ready(transformers.GPT2LMHeadModel(config))


def llama(**changes):
    given = {**_SIZES, **_HEADS, "num_key_value_heads": 2, **_NO_TOKENS}
    return _ready(transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**given, **changes})))


ENCODERS = {"bert": bert, "esm": esm}
CAUSAL = {"gpt2": gpt2, "llama": llama}


def _ready(model):
    """Initial weights are so small that every attention averages: queries and keys are widened."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                wide = parameter.shape[-1] if parameter.shape[0] != VOCABULARY else 8
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / wide**0.5)
    return model.eval()


def tokens(batch=2, length=90, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCABULARY, (batch, length), generator=generator)


def padding(batch=2, length=90, pads=17, left=False):
    """int64 [B, L], 0 for the pads of all rows but the first."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    if left:
        mask[1:, :pads] = 0
    else:
        mask[1:, length - pads :] = 0
    return mask
