"""The installed CMake package serves a project outside the tree."""

import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT, run

CMAKELISTS = """
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(performer REQUIRED)
add_executable(example example.cpp)
target_link_libraries(example PRIVATE performer::performer)
"""


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    run("cmake", "--install", ROOT / "build", "--prefix", tmp_path / "prefix", cwd=tmp_path)
    return tmp_path / "prefix"


@pytest.fixture
def consumer(tmp_path: Path, cpp_example: str) -> Path:
    folder = tmp_path / "consumer"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(CMAKELISTS)
    (folder / "example.cpp").write_text(cpp_example)
    return folder


def test_the_readme_example_builds_and_runs_against_the_installed_library(
    prefix: Path, consumer: Path
) -> None:
    paths = f"{prefix};{torch.utils.cmake_prefix_path}"
    run("cmake", "-G", "Ninja", "-B", "out", f"-DCMAKE_PREFIX_PATH={paths}", ".", cwd=consumer)
    run("cmake", "--build", "out", cwd=consumer)
    run(consumer / "out" / "example", cwd=consumer)
    linked = run("ldd", consumer / "out" / "example", cwd=consumer)
    assert f"{prefix}/lib/libperformer.so" in linked


def test_nothing_installed_names_the_source_tree_or_the_precompiled_header(prefix: Path) -> None:
    assert not list(prefix.rglob("pch.h"))
    for file in prefix.rglob("*.cmake"):
        # Where .venv is inside the tree, the library's own run path does name it; CMake must not.
        assert str(ROOT) not in file.read_text(), file


def test_every_installed_header_includes_installed_headers_alone(prefix: Path) -> None:
    include = prefix / "include"
    headers = list(include.rglob("*.h"))
    assert include / "performer" / "performer.h" in headers
    assert include / "performer" / "models" / "transformer.h" in headers
    named = {
        name
        for header in headers
        for name in re.findall(r'#include "([^"]+)"', header.read_text(encoding="utf-8"))
    }
    assert named
    assert not [name for name in named if not (include / name).is_file()]


def test_without_torch_the_package_says_how_to_name_it(prefix: Path, consumer: Path) -> None:
    hidden = f"-DCMAKE_PREFIX_PATH={prefix}"
    text = run("cmake", "-G", "Ninja", "-B", "out", hidden, ".", cwd=consumer, fails=True)
    assert "performer needs torch" in text
    assert "torch.utils.cmake_prefix_path" in text
    assert str(torch.__version__) in text


def test_another_torch_is_refused_before_anything_is_linked(prefix: Path, consumer: Path) -> None:
    (config,) = prefix.rglob("performerConfig.cmake")
    config.write_text(config.read_text().replace(str(torch.__version__), "1.0.0"))
    paths = f"-DCMAKE_PREFIX_PATH={prefix};{torch.utils.cmake_prefix_path}"
    text = run("cmake", "-G", "Ninja", "-B", "out", paths, ".", cwd=consumer, fails=True)
    words = " ".join(text.split())
    assert f"performer was built for torch 1.0.0, found torch {torch.__version__}" in words


def test_the_build_record_names_the_torch_of_this_environment() -> None:
    record = (ROOT / "build" / "performer_build.json").read_text()
    assert f'"torch": "{torch.__version__}"' in record, sys.executable


def test_the_installed_program_has_its_tokenizer_and_says_when_it_is_gone(
    prefix: Path, tmp_path: Path
) -> None:
    shutil.copy(ROOT / "data" / "books" / "persuasion.txt.gz", tmp_path / "text")
    tokenizer = [prefix / "bin" / "performer", "data", "tokenizer", "text", "--vocabulary", "600"]
    run(*tokenizer, "-o", "a.model", cwd=tmp_path)
    (prefix / "lib" / "performer-pieces").unlink()
    text = run(*tokenizer, "-o", "b.model", cwd=tmp_path, fails=True)
    (line,) = text.splitlines()
    assert f"{prefix}/lib/performer-pieces: cannot be started: No such file" in line
    assert "libsentencepiece0" in line
