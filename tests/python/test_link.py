"""Importing performer leaves torch as it was: no symbol of one binds to memory of the other."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import performer
from performer import _library

ROOT = Path(__file__).parents[2]
TORCH = Path(torch.__file__).parent / "lib"
CHECK = [sys.executable, str(ROOT / "scripts" / "check_symbols.py")]
needs_tools = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("g++", "nm", "ldd")),
    reason="g++, nm or ldd is not installed",
)


def python(code: str) -> subprocess.CompletedProcess[str]:
    """`code` in a fresh process, which must end."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(performer.__file__))},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_function_is_traced_after_the_import():
    code = "import torch, performer\nprint(torch.jit.trace(lambda x: x + 1, torch.ones(3)).graph)"
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert "aten::add" in done.stdout


def test_an_allocation_that_cannot_be_is_an_exception_after_the_import():
    code = """
import torch, performer
for size in (2**42, 2**56):
    try:
        torch.empty(size)
    except RuntimeError as error:
        print(type(error).__name__, "allocate memory" in str(error))
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    # The smaller one is granted where the system promises more than it has.
    assert "RuntimeError True" in done.stdout.splitlines()


def test_no_tokenizer_library_is_loaded_beside_torch():
    code = "import performer\nprint(open('/proc/self/maps').read())"
    done = python(code)
    assert "libperformer" in done.stdout
    assert "sentencepiece" not in done.stdout
    assert "protobuf" not in done.stdout


@needs_tools
def test_what_the_library_loads_shares_no_symbol_with_torch():
    library = _library.find_library()
    done = subprocess.run([*CHECK, library], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_tools
def test_the_check_refuses_a_variable_of_another_size(tmp_path):
    source, library = tmp_path / "flags.cpp", tmp_path / "libflags.so"
    source.write_text('extern "C" { char FLAGS_minloglevel[32]; int ours_alone; }')
    link = ["-shared", "-fPIC", f"-Wl,-rpath,{TORCH}", "-Wl,--no-as-needed", f"-L{TORCH}"]
    subprocess.run(["g++", *link, source, "-ltorch", "-lc10", "-o", library], check=True)
    done = subprocess.run([*CHECK, library], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FLAGS_minloglevel: 32 bytes in " in done.stdout
    assert "4 bytes in " in done.stdout
    assert "ours_alone" not in done.stdout


@needs_tools
def test_the_check_refuses_two_copies_of_one_library(tmp_path):
    copies = [tmp_path / folder / "libtwice.so" for folder in ("a", "b")]
    for number, copy in enumerate(copies):
        copy.parent.mkdir()
        (tmp_path / "part.cpp").write_text(f"int part_{number};")
        name = f"-Wl,-soname,libtwice.so.{number}"
        command = ["g++", "-shared", "-fPIC", name, tmp_path / "part.cpp", "-o", copy]
        subprocess.run(command, check=True)
        shutil.copy(copy, f"{copy}.{number}")
    whole = tmp_path / "libwhole.so"
    (tmp_path / "whole.cpp").write_text("")
    paths = [f"-Wl,-rpath,{folder}" for folder in (TORCH, tmp_path / "a", tmp_path / "b")]
    link = ["-shared", "-fPIC", "-Wl,--no-as-needed", *paths, f"-L{TORCH}"]
    parts = [*copies, "-ltorch", "-lc10"]
    subprocess.run(["g++", *link, tmp_path / "whole.cpp", *parts, "-o", whole], check=True)
    done = subprocess.run([*CHECK, whole], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "loaded twice: " in done.stdout
    assert "libtwice.so.0 and " in done.stdout
