"""The wheel works from a folder that has nothing to do with the source tree."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from conftest import ROOT, run


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
    ]
    # By the very name that the tree's build used, so that the compiler cache knows its objects.
    cache = (ROOT / "build" / "CMakeCache.txt").read_text()
    (compiler,) = re.findall(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.MULTILINE)
    build += ["-C", f"cmake.define.CMAKE_CXX_COMPILER={compiler}"]
    run(*build, "-w", folder, ".", cwd=ROOT)
    (built,) = folder.glob("performer-*.whl")
    return built


@pytest.fixture
def target(wheel: Path, tmp_path: Path) -> Path:
    """An installation of the wheel that a test may spoil."""
    folder = tmp_path / "target"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-compile"]
    run(*install, "--target", folder, wheel, cwd=tmp_path)
    return folder


def import_environment(target: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(target)}


def test_the_readme_example_runs_from_an_unrelated_folder(
    target: Path, tmp_path: Path, python_example: str
) -> None:
    script = tmp_path / "example.py"
    check = "import performer as _p\nprint('imported from', _p.__file__)\n"
    script.write_text(check + python_example)
    output = run(sys.executable, script, cwd=tmp_path, env=import_environment(target))
    assert f"imported from {target}" in output


def test_the_wheel_loads_its_own_library(target: Path, tmp_path: Path) -> None:
    code = "import performer, torch; print(*torch.ops.loaded_libraries)"
    output = run(sys.executable, "-c", code, cwd=tmp_path, env=import_environment(target))
    assert output.split() == [str(target / "performer" / "libperformer.so")]


def test_the_wheels_own_build_computes_right(target: Path, tmp_path: Path) -> None:
    """It is compiled another way than the tree's library: in a few joined files, without tests."""
    package = target / "performer"
    where = tmp_path / "test_where.py"
    where.write_text(
        "import performer, torch\n"
        "def test_where():\n"
        f"    assert performer.__file__ == {str(package / '__init__.py')!r}\n"
        f"    assert torch.ops.loaded_libraries == {{{str(package / 'libperformer.so')!r}}}\n"
    )
    names = ("attention", "gradcheck", "errors", "state", "module_rotary")
    numeric = [ROOT / "tests" / "python" / f"test_{name}.py" for name in names]
    environment = import_environment(target)
    environment["PERFORMER_LIBRARY"] = str(package / "libperformer.so")
    # The usual path would put the tree's package before the wheel's.
    path = f"pythonpath={ROOT / 'tests' / 'support'}"
    options = ["-c", ROOT / "pyproject.toml", "-o", path, "-p", "no:cacheprovider"]
    run(sys.executable, "-m", "pytest", *options, where, *numeric, cwd=tmp_path, env=environment)


def test_the_wheel_holds_the_package_and_nothing_else(target: Path) -> None:
    tops = {path.name.split("-")[0] for path in target.iterdir()}
    assert tops == {"performer"}
    assert not (target / "performer" / "bench").exists()  # its peers are no part of the package
    kinds = {path.suffix for path in (target / "performer").rglob("*") if path.is_file()}
    assert kinds <= {".py", ".pyi", ".typed", ".so", ".json", ""}


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed")
def test_the_library_looks_for_torch_beside_itself(target: Path) -> None:
    dynamic = run("readelf", "-d", target / "performer" / "libperformer.so", cwd=target)
    assert "[$ORIGIN/../torch/lib]" in dynamic


def test_the_version_is_the_projects(wheel: Path, target: Path, tmp_path: Path) -> None:
    code = "import performer; print(performer.__version__)"
    output = run(sys.executable, "-c", code, cwd=tmp_path, env=import_environment(target))
    assert output.strip() == wheel.name.split("-")[1]
    assert f"project(performer VERSION {output.strip()} " in (ROOT / "CMakeLists.txt").read_text()


def test_the_metadata_asks_for_the_torch_that_the_import_accepts(target: Path) -> None:
    record = json.loads((target / "performer" / "performer_build.json").read_text())
    (info,) = target.glob("performer-*.dist-info")
    lines = (info / "METADATA").read_text().splitlines()
    assert [line for line in lines if line.startswith("Requires-Dist:")] == [
        f"Requires-Dist: torch=={record['torch']}"
    ]


def test_another_torch_is_refused_in_one_line(target: Path, tmp_path: Path) -> None:
    record = target / "performer" / "performer_build.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "torch": "1.0.0"}))
    code = "import performer"
    output = run(
        sys.executable, "-c", code, cwd=tmp_path, env=import_environment(target), fails=True
    )
    last = output.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert "1.0.0" in last
