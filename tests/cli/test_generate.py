"""`performer generate`: text, images, which checkpoint, lengths and ranges of its options."""

import json
import os
import pty
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from conftest import PROGRAM, ROOT, answer, run_program
from small_recipes import TINY, one_layer, pixel_data, text_data
from training_runs import train, trained


def of_pixels(data: str, positions: str) -> str:
    return one_layer(
        data,
        model=f'positions = "{positions}"',
        attention='kernel = "relu"\nfeatures = 0',
        train="batch = 1",
    )


@pytest.fixture(scope="module")
def protein_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learned positions for 32 tokens; checkpoints of steps 9, 12 and of the best."""
    folder = tmp_path_factory.mktemp("protein")
    return trained(folder, TINY, "model.positions=learned", "optimizer.rate=0.001")


@pytest.fixture(scope="module")
def pixel_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = pixel_data("data/images/fashion-200.idx3-ubyte.gz", 785)
    return trained(tmp_path_factory.mktemp("pixels"), of_pixels(data, "learned"))


def grey_values(png: Path) -> tuple[int, int, bytes]:
    """Width, height and values of an 8-bit grey PNG, read by the format's own rules."""
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, width, height = 8, b"", 0, 0
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert struct.unpack(">I", data[at + 8 + size : at + 12 + size])[0] == zlib.crc32(
            kind + body
        )
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
            assert (depth, color) == (8, 0)
        packed += body if kind == b"IDAT" else b""
        at += 12 + size
    raw, lines = zlib.decompress(packed), []
    previous = bytes(width)
    for row in range(height):
        line = bytearray(raw[row * (width + 1) + 1 : (row + 1) * (width + 1)])
        rule = raw[row * (width + 1)]
        for i in range(width):
            left, up = line[i - 1] if i else 0, previous[i]
            corner = previous[i - 1] if i else 0
            estimate = left + up - corner
            paeth = min((left, up, corner), key=lambda v: abs(estimate - v))
            line[i] = (line[i] + (0, left, up, (left + up) // 2, paeth)[rule]) & 255
        previous = bytes(line)
        lines.append(previous)
    return width, height, b"".join(lines)


def test_a_pixel_model_writes_png_files_and_a_sheet(pixel_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "samples"
    said = answer("generate", pixel_run, "--n", "3", "-o", out, "--seed", "4")
    names = ["sample-001.png", "sample-002.png", "sample-003.png"]
    assert said["files"] == [str(out / name) for name in names]
    assert said["sheet"] == str(out / "sheet.png")
    assert sorted(p.name for p in out.iterdir()) == [*names, "sheet.png"]
    images = [grey_values(out / name) for name in names]
    assert {image[:2] for image in images} == {(28, 28)}
    assert images[0][2] != images[1][2]
    width, height, sheet = grey_values(out / "sheet.png")
    scale, line = 4, 2
    assert (width, height) == (2 * (28 * scale + line) + line,) * 2
    left = line + 28 * scale + line  # of the second image
    shown = [
        sheet[(line + y * scale) * width + left + x * scale] for y in range(28) for x in range(28)
    ]
    assert bytes(shown) == images[1][2]


def test_the_same_seed_gives_the_same_image(pixel_run: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run_program("generate", pixel_run, "--n", "1", "-o", tmp_path / name).returncode == 0
    first, second = (tmp_path / name / "sample-001.png" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert not (tmp_path / "a" / "sheet.png").exists()  # one image needs none


def test_images_that_are_there_are_not_overwritten_unless_asked(
    pixel_run: Path, tmp_path: Path
) -> None:
    old = tmp_path / "sheet.png"
    old.write_text("mine")
    arguments = ["generate", pixel_run, "--n", "2", "-o", tmp_path]
    done = run_program(*arguments)
    assert done.returncode == 2
    assert "sheet.png: already exists" in done.stderr
    assert old.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["sheet.png"]
    assert run_program(*arguments, "--overwrite").returncode == 0
    assert old.read_bytes().startswith(b"\x89PNG")


def test_a_name_that_takes_no_image_is_told_before_sampling(
    pixel_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "sheet.png").mkdir()
    done = run_program("generate", pixel_run, "--n", "2", "-o", tmp_path, "--overwrite")
    assert done.returncode == 5, done.stderr
    assert "sheet.png: is a folder" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["sheet.png"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "name a folder for them by -o DIR"),
        (["-o", "DIR", "--prompt", "A"], "--prompt: "),
        (["-o", "DIR", "--length", "100"], "has 784 values, got 100"),
    ],
)
def test_what_an_image_cannot_take_is_one_line(
    pixel_run: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    options = [str(tmp_path / "out") if option == "DIR" else option for option in options]
    done = run_program("generate", pixel_run, *options)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_sheet_that_is_too_large_is_refused_before_sampling(tmp_path: Path) -> None:
    # 4096 images of 300 x 300 points: a sheet of 19,330 points a side.
    images = struct.pack(">HBBIII", 0, 8, 3, 1, 300, 300) + bytes(300 * 300)
    (tmp_path / "in.idx").write_bytes(images)
    run = trained(tmp_path, of_pixels(pixel_data(tmp_path / "in.idx", 64), "rotary"))
    out = tmp_path / "out"
    done = run_program("generate", run, "--n", "4096", "-o", out)
    assert done.returncode == 2, done.stderr
    assert "a sheet of 4096 images" in done.stderr
    assert "too large; take fewer" in done.stderr
    assert not out.exists()


def test_a_folder_that_cannot_be_made_ends_with_five(pixel_run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run_program("generate", pixel_run, "-o", tmp_path / "file" / "in")
    assert done.returncode == 5, done.stderr


def test_learned_positions_cap_the_length_and_say_so(protein_run: Path) -> None:
    done = run_program("generate", protein_run, "--n", "1", "--no-stop", "--json")
    assert done.returncode == 0, done.stderr
    # 32 positions: BOS and 31 tokens are read, the last new one is not.
    assert json.loads(done.stdout)["sequences"][0]["tokens"] == 32
    assert "--length: 32 new tokens instead of 500" in done.stderr
    short = run_program("generate", protein_run, "--n", "1", "--length", "32", "--prompt", "ACDE")
    assert "28 new tokens instead of 32" in short.stderr
    assert "instead of" not in run_program("generate", protein_run, "--length", "32").stderr
    long = run_program("generate", protein_run, "--prompt", "A" * 32)
    assert long.returncode == 2
    assert "--prompt: 33 tokens" in long.stderr


def test_a_bidirectional_model_is_refused_before_anything_is_said_of_lengths(
    tmp_path: Path,
) -> None:
    masked = ("data.objective=masked", "model.causal=false", "model.positions=learned")
    run = trained(tmp_path, TINY, *masked, "train.steps=2", "train.valid_every=0")
    done = run_program("generate", run)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "the model is bidirectional (model.causal = false)" in done.stderr.splitlines()[-1]
    assert "--length" not in done.stderr


def test_the_checkpoint_is_said_and_can_be_chosen(protein_run: Path) -> None:
    best = int((protein_run / "best").read_text().split()[0].split("-")[1])
    said = run_program("generate", protein_run, "--n", "1", "--length", "3").stderr
    assert f"step {best}, the best of validation" in said
    latest = run_program("generate", protein_run, "--n", "1", "--checkpoint", "latest", "--json")
    assert "step 12, the latest" in latest.stderr
    assert json.loads(latest.stdout)["step"] == 12
    of_step = answer("generate", protein_run, "--n", "1", "--checkpoint", "9")
    assert of_step["step"] == 9
    missing = run_program("generate", protein_run, "--checkpoint", "7")
    assert missing.returncode == 3
    assert "no checkpoint of step 7; there are" in missing.stderr
    wrong = run_program("generate", protein_run, "--checkpoint", "newest")
    assert wrong.returncode == 2
    assert "best, latest or the number of a step" in wrong.stderr


@pytest.mark.parametrize(
    "option", ["--n", "--length", "--temperature", "--top-k", "--top-p", "--seed"]
)
@pytest.mark.parametrize(
    "value",
    ["nan", "inf", "-inf", "-1", "1e18", "1e999", "", "x", "0x10", "99999999999999999999"],
)
def test_a_number_out_of_range_is_one_line(protein_run: Path, option: str, value: str) -> None:
    done = run_program("generate", protein_run, f"{option}={value}")
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert option in done.stderr


def test_zero_and_extreme_temperatures_give_sequences(protein_run: Path) -> None:
    for temperature in ("0", "1e-300", "1000000"):
        said = answer(
            "generate", protein_run, "--n", "2", "--temperature", temperature, "--no-stop"
        )
        assert [s["tokens"] for s in said["sequences"]] == [32, 32], temperature


def test_threads_do_not_change_a_sequence(protein_run: Path) -> None:
    texts = {
        json.dumps(answer("generate", protein_run, "--threads", threads)["sequences"])
        for threads in ("1", "2")
    }
    assert len(texts) == 1


def test_bytes_that_a_terminal_would_obey_are_shown_and_not_sent(tmp_path: Path) -> None:
    text, recipe = tmp_path / "text.txt", tmp_path / "recipe.toml"
    text.write_text("It is a truth universally acknowledged. " * 5)
    data = text_data(text)
    recipe.write_text(one_layer(data, model='positions = "rotary"', train="sample_every = 1"))
    assert "\\x" in train(recipe, tmp_path / "run")  # a model that knows nothing yet makes any byte
    command = [str(PROGRAM), "generate", str(tmp_path / "run"), "--length", "300", "--no-stop"]
    main, other = pty.openpty()
    with subprocess.Popen(command, cwd=ROOT, stdout=other, stderr=subprocess.DEVNULL) as process:
        os.close(other)
        shown = b""
        while piece := read_some(main):
            shown += piece
    os.close(main)
    assert process.returncode == 0
    assert b"\\x1b" in shown
    assert not set(shown) & ({*range(32), 127} - set(b"\r\n\t"))
    piped = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    assert b"\x1b" in piped


def read_some(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how a terminal says that nobody writes there any more
        return b""
