"""Folders of models that somebody broke, or made to break: each is refused by one clear line, in no
more memory than the files take and 64 MiB."""

import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from conftest import PROGRAM, ROOT
from foreign_models import save

CORRUPT, UNUSABLE, USAGE = 4, 3, 2
WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
SLACK = 64 << 20


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good folders, one a kind, to be copied and broken."""
    folder = tmp_path_factory.mktemp("good")
    for name in ("bert_mlm", "esm", "gpt2", "llama", "mistral", "qwen2"):
        save(name, folder / name)
    save("gpt2", folder / "shards", max_shard_size="20KB")
    return folder


# Between the tests and the program: a child begins with the peak of who started it.
MEASURE = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


def peak(*args: object) -> tuple[int, str, int]:
    """Exit code, standard error and the peak of memory in bytes."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", MEASURE, str(PROGRAM), *map(str, args)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
        check=False,
    )
    return done.returncode, done.stderr, int(done.stdout) * 1024


@pytest.fixture(scope="session")
def usual(good: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """Memory of the program where all is well."""
    code, said, memory = peak("convert", good / "bert_mlm", tmp_path_factory.mktemp("o") / "out")
    assert code == 0, said
    return memory


Break = Callable[[Path], None]
CASES: list[Any] = []


def case(
    name: str, kind: str, code: int, said: str
) -> Callable[[Break], Break]:  # said: what the line has
    def register(change: Break) -> Break:
        CASES.append(pytest.param(kind, code, said, change, id=name))
        return change

    return register


# --- config.json


def config(name: str, kind: str, code: int, said: str, **values: Any) -> None:
    def change(folder: Path) -> None:
        file = folder / CONFIG
        known = json.loads(file.read_text())
        for key, value in values.items():
            if value is KeyError:
                del known[key]
            else:
                known[key] = value
        file.write_text(json.dumps(known))

    case(name, kind, code, said)(change)


def text(name: str, file: str, kind: str, said: str, content: str | bytes) -> None:
    def change(folder: Path) -> None:
        data = content if isinstance(content, bytes) else content.encode()
        (folder / file).write_bytes(data)

    case(name, kind, CORRUPT, said)(change)


text("config_empty", CONFIG, "bert_mlm", "config.json", "")
text("config_list", CONFIG, "bert_mlm", "must be an object, got []", "[]")
text("config_cut", CONFIG, "bert_mlm", "config.json", '{"model_type": "bert", "hid')
text("config_deep", CONFIG, "bert_mlm", "config.json", '{"a":' * 100_000 + "1" + "}" * 100_000)
text("config_lists", CONFIG, "bert_mlm", "config.json", "[" * 100_000)
text("config_twice", CONFIG, "bert_mlm", "config.json", '{"vocab_size": 1, "vocab_size": 2}')
text("config_bytes", CONFIG, "bert_mlm", "config.json", b'{"model_type": "\xff\xfe"}')
text("config_nan", CONFIG, "bert_mlm", "config.json", '{"layer_norm_eps": NaN}')
config("no_type", "bert_mlm", UNUSABLE, "model_type is", model_type=KeyError)
config("type_number", "bert_mlm", CORRUPT, "model_type must be a string, got 5", model_type=5)
config("type_t5", "bert_mlm", UNUSABLE, 'model_type is "t5"', model_type="t5")
config("type_control", "bert_mlm", UNUSABLE, "model_type is", model_type="\x1b[31m\nx")
config("no_architecture", "bert_mlm", UNUSABLE, "architectures is", architectures=None)
config("architectures_text", "bert_mlm", CORRUPT, "must be a list", architectures="BertModel")
config("other_head", "bert_mlm", UNUSABLE, "accepted: one of BertForMaskedLM",
       architectures=["BertForSequenceClassification"])  # fmt: skip
config("own_code", "gpt2", UNUSABLE, "auto_map is", auto_map={"AutoModel": "code.Model"})
config("quantised", "llama", UNUSABLE, "quantization_config is",
       quantization_config={"quant_method": "gptq"})  # fmt: skip
config("activation", "bert_mlm", UNUSABLE, 'hidden_act is "mish"', hidden_act="mish")
config("gpt2_activation", "gpt2", UNUSABLE, "activation_function", activation_function="tanh")
config("llama_activation", "llama", UNUSABLE, "hidden_act", hidden_act="gelu")
config("relative_positions", "bert_mlm", UNUSABLE, "position_embedding_type",
       position_embedding_type="relative_key")  # fmt: skip
config("esm_positions", "esm", UNUSABLE, 'is "absolute", which cannot',
       position_embedding_type="absolute")  # fmt: skip
config("decoder", "bert_mlm", UNUSABLE, "is_decoder is", is_decoder=True)
config("cross", "gpt2", UNUSABLE, "add_cross_attention is", add_cross_attention=True)
config("by_layer", "gpt2", UNUSABLE, "scale_attn_by_inverse_layer_idx is",
       scale_attn_by_inverse_layer_idx=True)  # fmt: skip
config("folding", "esm", UNUSABLE, "is_folding_model is", is_folding_model=True)
config("rope_scaling", "llama", UNUSABLE, 'rope_parameters.rope_type is "llama3"',
       rope_parameters={"rope_type": "llama3", "rope_theta": 1e4, "factor": 8})  # fmt: skip
config("old_rope_scaling", "llama", UNUSABLE, 'rope_scaling.type is "linear"',
       rope_parameters=KeyError, rope_scaling={"type": "linear", "factor": 2})  # fmt: skip
config("partial_rotary", "llama", UNUSABLE, "partial_rotary_factor is",
       rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 0.5})  # fmt: skip
config("rope_text", "llama", CORRUPT, "rope_parameters must be an object", rope_parameters="x")
config("rope_base", "llama", CORRUPT, "model.rotary_base", rope_parameters={"rope_theta": -1})
config("window", "mistral", UNUSABLE, "sliding_window is", sliding_window=4096)
config("qwen_window", "qwen2", UNUSABLE, "sliding_window is",
       use_sliding_window=True, sliding_window=4096)  # fmt: skip
config("layer_types", "qwen2", UNUSABLE, "layer_types is", layer_types=["sliding_attention"] * 3)
config("width_text", "bert_mlm", CORRUPT, "hidden_size must be", hidden_size="32")
config("width_negative", "bert_mlm", CORRUPT, "hidden_size must be", hidden_size=-32)
config("width_fraction", "bert_mlm", CORRUPT, "hidden_size must be", hidden_size=32.5)
config("width_huge", "bert_mlm", CORRUPT, "hidden_size must be", hidden_size=2**63 - 1)
config("width_beyond", "bert_mlm", CORRUPT, "hidden_size must be", hidden_size=2**64)
config("width_wide", "bert_mlm", CORRUPT, "describes no model", hidden_size=2**20)
config("width_other", "bert_mlm", CORRUPT, "by config.json it must be", hidden_size=64)
config("no_width", "bert_mlm", CORRUPT, "hidden_size is missing", hidden_size=KeyError)
config("layers_many", "gpt2", CORRUPT, "is missing", n_layer=16_384)
config("layers_huge", "gpt2", CORRUPT, "n_layer must be", n_layer=10**12)
config("layers_none", "gpt2", CORRUPT, "n_layer must be", n_layer=0)
config("layers_few", "gpt2", CORRUPT, "belongs to no GPT2LMHeadModel", n_layer=2)
config("heads", "bert_mlm", CORRUPT, "model.heads: must divide", num_attention_heads=5)
config("heads_odd", "esm", CORRUPT, "rotary needs an even head width", num_attention_heads=32)
config("key_heads", "llama", CORRUPT, "model.kv_heads: must divide", num_key_value_heads=3)
config("head_dim", "llama", CORRUPT, "by config.json it must be", head_dim=16)
config("vocabulary", "bert_mlm", CORRUPT, "by config.json it must be", vocab_size=2**27)
config("eps", "bert_mlm", CORRUPT, "model.norm_eps", layer_norm_eps=0)
config("eps_text", "bert_mlm", CORRUPT, "layer_norm_eps must be a number", layer_norm_eps="1")
config("dropout", "bert_mlm", UNUSABLE, "hidden_dropout_prob is", hidden_dropout_prob=1.5)
config("tied_text", "bert_mlm", CORRUPT, "true or false", tie_word_embeddings="yes")
config("untied", "gpt2", CORRUPT, "lm_head.weight", tie_word_embeddings=False)
config("mask_token", "esm", CORRUPT, "mask_token_id must be", mask_token_id=61)
config("no_mask_token", "esm", CORRUPT, "mask_token_id", mask_token_id=None)
config("eos_text", "gpt2", CORRUPT, "eos_token_id", eos_token_id="</s>")


# --- weights


def read(file: Path) -> tuple[dict[str, Any], bytes]:
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write(file: Path, header: dict[str, Any] | str, data: bytes) -> None:
    written = (header if isinstance(header, str) else json.dumps(header)).encode()
    file.write_bytes(struct.pack("<Q", len(written)) + written + data)


def header(
    name: str, kind: str, code: int, said: str
) -> Callable[[Callable[[dict[str, Any]], None]], None]:
    def register(change: Callable[[dict[str, Any]], None]) -> None:
        def on_folder(folder: Path) -> None:
            entries, data = read(folder / WEIGHTS)
            change(entries)
            write(folder / WEIGHTS, entries, data)

        case(name, kind, code, said)(on_folder)

    return register


text("weights_empty", WEIGHTS, "gpt2", "too few", b"")
text("weights_long_header", WEIGHTS, "gpt2", "header of", struct.pack("<Q", 2**63) + b"{}")
text("weights_longest", WEIGHTS, "gpt2", "header of", struct.pack("<Q", 2**64 - 1) + b"{}")
text("weights_pickle", WEIGHTS, "gpt2", WEIGHTS, b"PK\x03\x04" + bytes(60))
text("weights_deep", WEIGHTS, "gpt2", WEIGHTS,
     struct.pack("<Q", 500_000) + b'{"a":' * 100_000)  # fmt: skip
text("weights_none", WEIGHTS, "gpt2", "is missing, which a GPT2LMHeadModel has",
     struct.pack("<Q", 2) + b"{}")  # fmt: skip
TENSOR = "transformer.h.1.attn.c_attn.weight"


@header("overlap", "gpt2", CORRUPT, "overlaps")
def _(entries: dict[str, Any]) -> None:
    begin, end = entries[TENSOR]["data_offsets"]
    entries[TENSOR]["data_offsets"] = [0, end - begin]


@header("hole", "gpt2", CORRUPT, "hole")
def _(entries: dict[str, Any]) -> None:
    del entries[TENSOR]


@header("overflow", "gpt2", CORRUPT, "shape is larger than any memory")
def _(entries: dict[str, Any]) -> None:
    entries[TENSOR]["shape"] = [2**62, 2**62]


@header("transposed", "gpt2", CORRUPT, "is [96, 32], by config.json it must be [32, 96]")
def _(entries: dict[str, Any]) -> None:
    entries[TENSOR]["shape"] = [96, 32]


@header("renamed", "gpt2", CORRUPT, "is missing, which a GPT2LMHeadModel has")
def _(entries: dict[str, Any]) -> None:
    entries["transformer.h.1.attn.w"] = entries.pop(TENSOR)


@header("whole_numbers", "gpt2", UNUSABLE, "is I32; weights must be F32, F16 or BF16")
def _(entries: dict[str, Any]) -> None:
    entries[TENSOR]["dtype"] = "I32"


@header("quantised_type", "gpt2", UNUSABLE, "is F8_E4M3; weights must be F32, F16 or BF16")
def _(entries: dict[str, Any]) -> None:
    entries[TENSOR] |= {"dtype": "F8_E4M3", "shape": [4 * 32, 96]}


@header("unknown_type", "gpt2", CORRUPT, 'dtype "F9" is unknown')
def _(entries: dict[str, Any]) -> None:
    entries[TENSOR]["dtype"] = "F9"


@case("both_spellings", "bert_mlm", CORRUPT, "by config.json they are one")
def _(folder: Path) -> None:
    entries, data = read(folder / WEIGHTS)
    end = len(data) + 128
    name = "bert.encoder.layer.1.output.LayerNorm.gamma"
    entries[name] = {"dtype": "F32", "shape": [32], "data_offsets": [len(data), end]}
    write(folder / WEIGHTS, entries, data + bytes(128))


@header("scalar", "gpt2", CORRUPT, "by config.json it must be [32]")
def _(entries: dict[str, Any]) -> None:
    entries["transformer.ln_f.weight"]["shape"] = [32, 1]


@case("twice", "gpt2", CORRUPT, WEIGHTS)
def _(folder: Path) -> None:
    entries, data = read(folder / WEIGHTS)
    written = json.dumps(entries)
    doubled = written[:-1] + "," + json.dumps({TENSOR: entries[TENSOR]})[1:]
    write(folder / WEIGHTS, doubled, data)


@case("cut", "gpt2", CORRUPT, "cut short")
def _(folder: Path) -> None:
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size - 4)


@case("longer", "gpt2", CORRUPT, "follow the last tensor")
def _(folder: Path) -> None:
    with (folder / WEIGHTS).open("ab") as file:
        file.write(bytes(4))


@case("infinite", "gpt2", CORRUPT, "holds NaN or infinity")
def _(folder: Path) -> None:
    entries, data = read(folder / WEIGHTS)
    begin = entries[TENSOR]["data_offsets"][0]
    write(folder / WEIGHTS, entries, data[:begin] + b"\0\0\x80\x7f" + data[begin + 4 :])


@case("many_names", "gpt2", CORRUPT, "at most 8388608 are allowed here")
def _(folder: Path) -> None:
    nothing = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    write(folder / WEIGHTS, {f"t{i}": nothing for i in range(200_000)}, b"")


@case("sparse", "gpt2", CORRUPT, "belongs to no GPT2LMHeadModel")
def _(folder: Path) -> None:
    # 8 GiB that no disk holds, of a tensor that nobody asked for.
    entries, data = read(folder / WEIGHTS)
    end = len(data) + (8 << 30)
    entries["extra"] = {"dtype": "F32", "shape": [2 << 30], "data_offsets": [len(data), end]}
    write(folder / WEIGHTS, entries, data)
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size + (8 << 30))


@case("large_pooler", "bert_mlm", CORRUPT, "is larger than any model has it")
def _(folder: Path) -> None:
    entries, data = read(folder / WEIGHTS)
    end = len(data) + (1 << 30)
    name = "bert.pooler.dense.weight"
    entries[name] = {"dtype": "F32", "shape": [1 << 14, 1 << 14], "data_offsets": [len(data), end]}
    write(folder / WEIGHTS, entries, data)
    os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size + (1 << 30))


@case("weights_folder", "gpt2", UNUSABLE, WEIGHTS)
def _(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


@case("weights_pipe", "gpt2", UNUSABLE, WEIGHTS)
def _(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    os.mkfifo(folder / WEIGHTS)


@case("weights_loop", "gpt2", UNUSABLE, WEIGHTS)
def _(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(WEIGHTS)


@case("no_weights", "gpt2", UNUSABLE, "has neither model.safetensors nor")
def _(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


@case("pickled", "gpt2", UNUSABLE, "save_pretrained('")
def _(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


@case("tensorflow", "gpt2", UNUSABLE, "tf_model.h5: this format is not read")
def _(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "tf_model.h5")


@case("no_config", "gpt2", UNUSABLE, "has no config.json")
def _(folder: Path) -> None:
    (folder / CONFIG).unlink()


@case("config_long", "gpt2", UNUSABLE, CONFIG)
def _(folder: Path) -> None:
    os.truncate(folder / CONFIG, 1 << 34)


@case("tokenizer_long", "gpt2", UNUSABLE, "tokenizer.json")
def _(folder: Path) -> None:
    (folder / "tokenizer.json").touch()
    os.truncate(folder / "tokenizer.json", 1 << 34)


# --- shards


def index(name: str, said: str, code: int = CORRUPT) -> Callable[[Callable[..., None]], None]:
    """A change of weight_map, which is given with the folder."""

    def register(change: Callable[..., None]) -> None:
        def on_folder(folder: Path) -> None:
            known = json.loads((folder / INDEX).read_text())
            change(known["weight_map"], folder)
            (folder / INDEX).write_text(json.dumps(known))

        case(name, "shards", code, said)(on_folder)

    return register


def first_of(weight_map: dict[str, str]) -> str:
    return next(iter(weight_map))


def escaping(name: str, target: Any) -> None:
    @index(name, "a shard must be a file NAME.safetensors of the same folder")
    def _(weight_map: dict[str, Any], folder: Path) -> None:
        weight_map[first_of(weight_map)] = target


escaping("shard_above", "../gpt2/model.safetensors")
escaping("shard_absolute", "/etc/passwd")
escaping("shard_below", "sub/model.safetensors")
escaping("shard_hidden", ".model.safetensors")
escaping("shard_nothing", "")
escaping("shard_bin", "pytorch_model.bin")
escaping("shard_nul", "a\0.safetensors")
escaping("shard_number", 7)
escaping("shard_long", "a" * 5000 + ".safetensors")
text("index_empty", INDEX, "shards", INDEX, "{}")
text("index_list", INDEX, "shards", "weight_map must be an object", '{"weight_map": []}')
text("index_none", INDEX, "shards", "weight_map must be an object", '{"weight_map": {}}')
text("index_deep", INDEX, "shards", INDEX, '{"weight_map":' * 100_000)


@index("shard_missing", "missing, though")
def _(weight_map: dict[str, str], folder: Path) -> None:
    (folder / weight_map[first_of(weight_map)]).unlink()


@index("shard_unnamed_tensor", "does not name")
def _(weight_map: dict[str, str], folder: Path) -> None:
    del weight_map[first_of(weight_map)]


@index("shard_tensor_elsewhere", "to be in")
def _(weight_map: dict[str, str], folder: Path) -> None:
    name = first_of(weight_map)
    weight_map[name] = next(f for f in weight_map.values() if f != weight_map[name])


@index("shard_absent_tensor", "says it is")
def _(weight_map: dict[str, str], folder: Path) -> None:
    weight_map["transformer.h.9.ln_1.weight"] = weight_map[first_of(weight_map)]


@index("shards_many", "at most 1024 are possible")
def _(weight_map: dict[str, str], folder: Path) -> None:
    weight_map.update({f"t{i}": f"s{i}.safetensors" for i in range(2000)})


@index("shards_and_single", "has both", UNUSABLE)
def _(weight_map: dict[str, str], folder: Path) -> None:
    shutil.copy(folder / weight_map[first_of(weight_map)], folder / WEIGHTS)


@case("shard_cut", "shards", CORRUPT, "cut short")
def _(folder: Path) -> None:
    shard = sorted(folder.glob("model-*.safetensors"))[1]
    os.truncate(shard, shard.stat().st_size - 1)


@pytest.mark.parametrize(("kind", "code", "said", "change"), CASES)
def test_a_bad_folder_is_refused_by_one_line(
    kind: str, code: int, said: str, change: Break, good: Path, usual: int, tmp_path: Path
) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(good / kind, folder)
    change(folder)
    size = sum(f.lstat().st_blocks * 512 for f in folder.iterdir())
    got, line, memory = peak("convert", folder, tmp_path / "ours", "--attention", "exact")
    assert (got, line.count("\n")) == (code, 1), line
    assert line.startswith("performer: ")
    assert said in line
    assert "\x1b" not in line
    assert memory < usual + size + SLACK
    assert sorted(p.name for p in tmp_path.iterdir()) == ["theirs"], "nothing is left behind"


def test_a_good_folder_takes_no_more_memory_than_its_weights(usual: int, tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        vocab_size=400_000, n_embd=64, n_layer=1, n_head=2, n_positions=8, eos_token_id=0
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "theirs")
    size = (tmp_path / "theirs" / WEIGHTS).stat().st_size
    assert size > SLACK, "one tensor larger than what may be taken beside the weights"
    code, said, memory = peak("convert", tmp_path / "theirs", tmp_path / "ours", "--check")
    assert code == 0, said
    assert memory < usual + size + SLACK


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 60
