"""performer.load: the program's models in Python, with the program's logits."""

import json
import math
import shutil
import struct
from pathlib import Path

import pytest
import torch
from conftest import ROOT, answer
from small_recipes import TINY, one_layer, text_data
from torch.nn.functional import cross_entropy
from training_runs import checkpoint, reseal, trained

import performer

SEQUENCE = "MKTAYIAKQRQISFVKSHFSRQLEERLG"
FORMS = {
    "redrawn": [],
    "near": ["model.attention.near=8", "model.attention.per_head=false"],
    "relu": ["model.attention.kernel=relu", "model.attention.features=0"],
    "exp": ["model.attention.kernel=exp", "model.attention.eps=0.01", "model.attention.scale=0.5"],
    "hyperbolic": ["model.attention.kernel=hyperbolic", "model.attention.projection=givens"],
    "unrounded": ["model.attention.rounding=none", "model.attention.projection_norm=sqrt_d"],
    "exact": ["model.attention.kind=exact", "model.attention.scale=0.7"],
    "linear": ["model.attention.kind=linear"],
    "identity": ["model.attention.kind=identity"],
    "mean": ["model.attention.kind=mean"],
    "mixed": ['model.layer_kinds=["exact", "favor"]', "model.positions=learned"],
    "post": ["model.norm_position=post", "model.positions=sinusoidal", "model.norm=rms"],
    "swiglu": ["model.activation=swiglu", "model.tied=false", "model.positions=none"],
    "reversible": ["model.reversible=true", "model.activation=relu"],
    "numerator": ["model.attention.kernel=elu1", "model.attention.renormalize=false"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return trained(tmp_path_factory.mktemp("run"), TINY)


def losses_of_program(run: Path, folder: Path, sequence: str) -> float:
    """-log p of all residues and of EOS."""
    fasta = folder / "one.fasta"
    fasta.write_text(f">s\n{sequence}\n")
    done = answer("eval", run, "--data", fasta, "--length", 32)
    (result,) = done["splits"].values()
    return result["loss"] * result["targets"]


def losses_of(model, sequence: str) -> float:
    space = model.tokens
    tokens = model.encode(sequence)
    row = torch.cat([torch.tensor([space.start]), tokens])
    targets = torch.cat([tokens, torch.tensor([space.eos])])
    with torch.no_grad():
        return float(cross_entropy(model(row[None])[0].double(), targets, reduction="sum"))


@pytest.mark.parametrize("form", FORMS)
def test_log_probabilities_are_those_of_the_program(tmp_path: Path, form: str) -> None:
    run = trained(tmp_path, TINY, "optimizer.rate=0.05", *FORMS[form])
    model = performer.load(run)
    for length in (1, 9, 28):
        ours = losses_of(model, SEQUENCE[:length])
        theirs = losses_of_program(run, tmp_path, SEQUENCE[:length])
        assert math.isclose(ours, theirs, abs_tol=1e-5 * (length + 1)), (ours, theirs)


@pytest.mark.parametrize("name", ["2c2be99", "642545a"])  # of version 1 and 2
def test_older_checkpoints_mean_what_they_did(tmp_path: Path, name: str) -> None:
    run = Path(shutil.copytree(ROOT / "tests/fixtures" / name / "run", tmp_path / "run"))
    ours = losses_of(performer.load(run), SEQUENCE)
    assert math.isclose(ours, losses_of_program(run, tmp_path, SEQUENCE), abs_tol=2e-5)


@pytest.mark.parametrize("model_set", ["", "model.attention.kind=mean"])
def test_classifies_as_the_program(tmp_path: Path, model_set: str) -> None:
    rows = [("one", "first words of some length"), ("two", "others"), ("one", "a"), ("two", "bb")]
    table = tmp_path / "train.tsv"
    table.write_text("label\ttext\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
    data = f'task = "classify"\ntrain = "{table}"\nvalid = "{table}"\nlength = 32'
    recipe = one_layer(
        data, model='head = "classify"\ncausal = false', train="steps = 8\nbatch = 4"
    )
    run = trained(tmp_path, recipe, "optimizer.rate=0.01", *filter(None, [model_set]))
    model = performer.load(run)
    texts = [model.encode(text) for _, text in rows]
    begin = torch.tensor([model.tokens.bos])
    lengths = [len(text) + 1 for text in texts]
    tokens = torch.full((4, max(lengths)), model.tokens.pad)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text) + 1] = torch.cat([begin, text])
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    labels = torch.tensor([model.tokens.classes.index(label) for label, _ in rows])
    with torch.no_grad():
        ours = cross_entropy(model(tokens, mask), labels)
    (result,) = answer("eval", run, "--split", "train")["splits"].values()
    assert math.isclose(float(ours), result["loss"], abs_tol=1e-5)


def test_bytes_are_encoded_and_decoded(tmp_path: Path) -> None:
    text = tmp_path / "some.txt"
    text.write_text("Grüße, and other words. " * 40)
    model = performer.load(trained(tmp_path, one_layer(text_data(text))))
    tokens = model.encode("Grüße")
    assert tokens.tolist() == list("Grüße".encode())
    assert model.decode(torch.cat([tokens, torch.tensor([model.tokens.eos])])) == "Grüße"


def test_residues_are_encoded_as_the_program_does(run: Path) -> None:
    model = performer.load(run)
    assert model.decode(model.encode("mkt-a y.J*o\n")) == "MKTAYXXO"
    with pytest.raises(ValueError, match="'1' is not an amino acid"):
        model.encode("MK1")


def test_a_run_has_several_checkpoints(run: Path) -> None:
    last = performer.load(run, "latest")
    assert last.step == 12 and performer.load(run, 9).step == 9
    assert performer.load(checkpoint(run)).step == 12
    with pytest.raises(FileNotFoundError, match="no checkpoint of step 5"):
        performer.load(run, 5)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        performer.load(run / "nothing")


def test_hidden_states_and_gradients(run: Path) -> None:
    model = performer.load(run)
    hidden = model.hidden(model.encode(SEQUENCE)[None])
    assert hidden.shape == (1, 28, 16)
    hidden.sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "layers" in name)


def sealed(manifest: dict) -> str:
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    text = json.dumps(body, separators=(",", ":"))
    return json.dumps({**body, "sha256": performer._run.files.sha256_of(text.encode())})


def forge(folder: Path, name: str, content: bytes) -> None:
    """Another file, with a manifest that vouches for it."""
    (folder / name).write_bytes(content)
    reseal(folder)


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(checkpoint(run), tmp_path / "copy")
    return tmp_path / "copy"


def change_config(folder: Path, place: str, value: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    *path, last = place.split(".")
    section = config
    for key in path:
        section = section[key]
    section[last] = value
    forge(folder, "config.json", json.dumps(config).encode())


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("model.attention.kind", "lsh", "performer.load knows favor, exact"),
        ("model.layer_kinds", ["favor", "linformer"], "layer_kinds must be 2 of favor"),
        ("model.flash", True, "model.flash is an option that performer.load does not know"),
        ("model.attention.flash", 1, "model.attention.flash is an option"),
        ("model.heads", 3, "model.heads must divide 16, got 3"),
        ("model.kv_heads", 3, "model.kv_heads must divide 2, got 3"),
        ("model.head_width", 1 << 16, r"qkv.weight is \[48, 16\] in the file"),
        ("model.attention.projection", "fitted", "features.query_weight is not in the file"),
        ("model.layers", 1 << 14, "cannot be a model of 16384 layers"),
        ("model.layers", True, "layers must be int, got True"),
        ("model.dim", 1 << 20, r"embedding.weight is \[29, 16\] in the file, \[29, 1048576\]"),
        ("model.ff_dim", 1 << 62, "must be from 1 to 1048576"),
        ("model.vocabulary", 30, "in the model"),
        ("model.activation", "silu", "performer.load knows relu, gelu, gelu_tanh, swiglu"),
        ("model.norm", "rms", "only in the file"),
        ("model.tied", False, "output.weight is not in the file"),
        ("model.attention.features", "8", "features must be int, got '8'"),
    ],
)
def test_other_configs_are_refused(copy: Path, place: str, value: object, words: str) -> None:
    change_config(copy, place, value)
    with pytest.raises(ValueError, match=words) as error:
        performer.load(copy)
    assert "\n" not in str(error.value)


def header(length: int, text: bytes = b"") -> bytes:
    return struct.pack("<Q", length) + text


def tensors(**entries: object) -> bytes:
    text = json.dumps(entries).encode()
    return header(len(text), text)


ENTRY = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "a header of 0 bytes in a file of 0"),
        (header(1 << 63), "damaged: a header of"),
        (header(4, b"{}"), "damaged: a header of 4 bytes in a file of 10"),
        (header(2, b"[]"), "must be an object"),
        (header(200, b"[" * 200), "nested deeper than 32"),
        (header(1 << 21, b"[" + b"1," * (1 << 20)), "more than 1048576 values"),
        (header(12, rb'{"a\"[[[[[[['), "damaged"),
        (header(20, b'{"a":1,"b":2,"a":3}x'), "'a' occurs twice"),
        (header(99, b'{"a":' + b"9" * 93 + b"}"), "longer than any whole number"),
        (header(18, b'{"a":NaN,"a":NaN}x'), "damaged"),
        (tensors(a=ENTRY), "its tensors end at"),
        (tensors(a=ENTRY, b=ENTRY) + b"1234", "overlaps another tensor, or a hole"),
        (tensors(a={**ENTRY, "data_offsets": [4, 8]}) + b"12345678", "or a hole"),
        (tensors(a={**ENTRY, "shape": [1 << 40, 1 << 40]}), "data_offsets"),
        (tensors(a={**ENTRY, "shape": [-1]}), "whole numbers, got -1"),
        (tensors(a={**ENTRY, "shape": [True]}), "whole numbers, got True"),
        (tensors(a={**ENTRY, "dtype": "F31"}), "dtype must be one of"),
        (tensors(a={**ENTRY, "data_offsets": [0]}), "data_offsets"),
        (tensors(a={**ENTRY, "shape": [1] * 9}), "at most 8 numbers"),
        (tensors(a=ENTRY) + b"1234", "cannot be a model of 2 layers"),
    ],
)
def test_hostile_weights_are_refused(copy: Path, content: bytes, words: str) -> None:
    forge(copy, "model.safetensors", content)
    with pytest.raises(ValueError, match=words) as error:
        performer.load(copy)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "trainer.safetensors"])
def test_every_byte_is_verified(copy: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[-20] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(ValueError, match="its hash is not the one in the manifest"):
        performer.load(copy)
    (copy / name).write_bytes(content[:-1])
    with pytest.raises(ValueError, match="in the manifest"):
        performer.load(copy)


def test_a_manifest_is_held_to_its_own_words(copy: Path) -> None:
    (copy / "extra.py").write_text("")
    with pytest.raises(ValueError, match="not listed in the checkpoint's manifest"):
        performer.load(copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    for changed, words in [
        ({"version": 99}, "of version 99; this package reads performer-checkpoint of 1 to 4"),
        ({"files": [{"name": "../x", "bytes": 0, "sha256": ""}]}, "no checkpoint has"),
        ({"files": []}, "does not list model.safetensors"),
    ]:
        (copy / "manifest.json").write_text(sealed({**manifest, **changed}))
        with pytest.raises(ValueError, match=words):
            performer.load(copy)
    (copy / "manifest.json").write_text(json.dumps({**manifest, "step": 5}))
    with pytest.raises(ValueError, match="does not match its own hash"):
        performer.load(copy)


def test_a_pointer_names_its_checkpoint(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    latest = tmp_path / "run" / "latest"
    latest.write_text(latest.read_text().replace("step-000000012", "step-000000009"))
    with pytest.raises(ValueError, match="does not match its own hash"):
        performer.load(tmp_path / "run", "latest")


def test_a_longer_sequence_than_learned_positions(tmp_path: Path) -> None:
    model = performer.load(trained(tmp_path, TINY, "model.positions=learned", "train.steps=1"))
    with pytest.raises(ValueError, match="learned positions end at model.max_length = 32"):
        model(torch.zeros(1, 33, dtype=torch.int64))
