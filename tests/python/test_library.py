"""Finding the library and refusing one that was built for another torch."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from packaging.specifiers import SpecifierSet

import performer
from performer import _library


def test_version_comes_from_the_build():
    build = _library.read_build(_library.find_library())
    assert performer.__version__ == build.version
    assert re.fullmatch(r"\d+\.\d+\.\d+", build.version)


def test_every_public_name_exists():
    assert all(hasattr(performer, name) for name in performer.__all__)


@pytest.mark.parametrize(
    ("built", "running"),
    [("2.13.0", "2.13.0+cpu"), ("2.13.0+cpu", "2.13.0+cpu"), ("2.13.0", "2.13.0")],
)
def test_the_torch_of_the_build_is_accepted(built, running):
    _library.check_torch(built, running)


@pytest.mark.parametrize(
    ("built", "running"),
    [("2.13.0", "2.13.1+cpu"), ("2.13.0+cpu", "2.13.0+cu130"), ("2.1", "2.13.0")],
)
def test_another_torch_is_refused(built, running):
    with pytest.raises(ImportError) as error:
        _library.check_torch(built, running)
    text = str(error.value)
    assert f"built for torch {built}, found torch {running}" in text
    assert "pip install --no-build-isolation ." in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "built", ["2.13.0", "2.13.0+cpu", "2.13.0+cu130", "2.14.0.dev20260901+cpu"]
)
@pytest.mark.parametrize(
    "running", ["2.13.0", "2.13.0+cpu", "2.13.1+cpu", "2.14.0.dev20260901+cpu"]
)
def test_the_import_accepts_what_the_wheels_metadata_asks_for(built, running):
    try:
        _library.check_torch(built, running)
        accepted = True
    except ImportError:
        accepted = False
    # scripts/wheel_metadata.py: torch== the version of the build.
    assert SpecifierSet(f"=={built}", prereleases=True).contains(running) == accepted


def test_a_library_that_the_loader_refuses_is_one_line(tmp_path):
    library = tmp_path / "libperformer.so"
    library.write_text("not a library")
    record = {"version": "9", "torch": str(torch.__version__)}
    (tmp_path / "performer_build.json").write_text(json.dumps(record))
    last = failed_import(library)
    assert last.startswith(
        f"ImportError: performer: {library}, built for torch {torch.__version__}"
    )
    assert "rebuild with" in last


def test_a_symbol_that_torch_lacks_is_one_line(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    (tmp_path / "part.cpp").write_text(
        "extern int absent_in_torch(); int used = absent_in_torch();"
    )
    library = tmp_path / "libperformer.so"
    subprocess.run(
        ["g++", "-shared", "-fPIC", tmp_path / "part.cpp", "-o", library, "-Wl,-z,now"], check=True
    )
    record = {"version": "9", "torch": str(torch.__version__)}
    (tmp_path / "performer_build.json").write_text(json.dumps(record))
    assert "undefined symbol" in failed_import(library)


def failed_import(library):
    """The last line of standard error of an import that takes `library`."""
    package = os.path.dirname(os.path.dirname(performer.__file__))
    result = subprocess.run(
        [sys.executable, "-c", "import performer"],
        env=os.environ | {"PERFORMER_LIBRARY": str(library), "PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    return result.stderr.strip().splitlines()[-1]


def test_import_fails_with_one_line_before_the_library_is_loaded(tmp_path):
    """The file beside the sidecar is no library: loading it would be another error."""
    library = tmp_path / "libperformer.so"
    library.write_text("not a library")
    (tmp_path / "performer_build.json").write_text(json.dumps({"version": "9", "torch": "1.0"}))
    assert failed_import(library).startswith(
        f"ImportError: performer: built for torch 1.0, found torch {torch.__version__}; "
    )


def test_a_missing_library_says_where_it_was_sought(tmp_path, monkeypatch):
    monkeypatch.setenv("PERFORMER_LIBRARY", str(tmp_path / "absent.so"))
    with pytest.raises(ImportError, match=r"no library, looked for .*absent\.so; build it with"):
        _library.find_library()


@pytest.mark.parametrize("content", [None, "{", "[]", '{"version": "1"}'])
def test_a_missing_or_broken_sidecar_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "performer_build.json").write_text(content)
    with pytest.raises(ImportError, match=r"performer_build\.json must say which torch"):
        _library.read_build(tmp_path / "libperformer.so")
