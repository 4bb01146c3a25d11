"""Small random models of transformers, whose folders and outputs are the oracle of conversions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 61,
}
MASK_TOKEN = 32


def bert(base: bool = False, **options: Any) -> Any:
    config = transformers.BertConfig(**SIZES, max_position_embeddings=48, **options)
    return transformers.BertModel(config) if base else transformers.BertForMaskedLM(config)


def esm(base: bool = False, **options: Any) -> Any:
    options = {
        "pad_token_id": 1,
        "mask_token_id": MASK_TOKEN,
        "position_embedding_type": "rotary",
        "token_dropout": True,
        "layer_norm_eps": 1e-5,
        **options,
    }
    config = transformers.EsmConfig(**SIZES, **options)
    model = transformers.EsmModel(config) if base else transformers.EsmForMaskedLM(config)
    # As in the published files, which hold the numbers of a training in half precision.
    frequencies = model.base_model.rotary_embeddings.inv_freq
    frequencies.copy_(frequencies.mul(1.01).half().float())
    return model


def gpt2(base: bool = False, **options: Any) -> Any:
    config = transformers.GPT2Config(
        vocab_size=61,
        n_positions=48,
        n_embd=32,
        n_layer=3,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        **options,
    )
    return transformers.GPT2Model(config) if base else transformers.GPT2LMHeadModel(config)


def llama(**options: Any) -> Any:
    options = {"num_key_value_heads": 2, "tie_word_embeddings": False, **options}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **options))


def mistral(**options: Any) -> Any:
    config = transformers.MistralConfig(
        **SIZES, num_key_value_heads=1, head_dim=12, sliding_window=None, **options
    )
    return transformers.MistralForCausalLM(config)


def qwen2(**options: Any) -> Any:
    config = transformers.Qwen2Config(**SIZES, num_key_value_heads=2, **options)
    return transformers.Qwen2ForCausalLM(config)


MODELS: dict[str, Callable[[], Any]] = {
    "bert_mlm": bert,
    "bert_untied": lambda: bert(tie_word_embeddings=False, hidden_act="relu"),
    "bert_base": lambda: bert(base=True, hidden_act="gelu_new", type_vocab_size=3),
    "esm": esm,
    "esm_plain": lambda: esm(token_dropout=False, emb_layer_norm_before=True),
    "esm_base": lambda: esm(base=True),
    "gpt2": gpt2,
    "gpt2_base": lambda: gpt2(base=True, scale_attn_weights=False, n_inner=40),
    "llama": llama,
    "llama_tied": lambda: llama(
        tie_word_embeddings=True,
        num_key_value_heads=4,
        attention_bias=True,
        mlp_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    ),
    "mistral": mistral,
    "qwen2": qwen2,
}


def build(name: str) -> Any:
    """The model `name` in evaluation mode, with weights for which every part matters."""
    torch.manual_seed(sum(name.encode()))
    model = MODELS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.15)
    return model


def save(name: str, folder: Path, **how: Any) -> Any:
    """Writes the model and returns it."""
    model = build(name)
    model.save_pretrained(folder, **how)
    return model


def tokens_of(batch: int, length: int, salt: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * length + salt)
    tokens = torch.randint(2, 61, (batch, length), generator=generator)
    if (
        length > 4
    ):  # of ESM, a token like others elsewhere; never all of a row, which would be 0 / 0
        tokens[0, :: length // 3] = MASK_TOKEN
    return tokens


def outputs(
    model: Any, tokens: torch.Tensor, mask: torch.Tensor | None = None
) -> dict[str, torch.Tensor]:
    """`hidden` and, where the model has an output layer, `logits`."""
    with torch.no_grad():
        found = model.base_model(input_ids=tokens, attention_mask=mask)
        result = {"hidden": found.last_hidden_state}
        if model.base_model is not model:
            result["logits"] = model(input_ids=tokens, attention_mask=mask).logits
    return result
