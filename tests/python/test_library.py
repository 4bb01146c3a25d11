"""Finding the library and refusing one that was built for another torch."""

import json
import os
import re
import subprocess
import sys

import pytest
import torch

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


def test_import_fails_with_one_line_before_the_library_is_loaded(tmp_path):
    """The file beside the sidecar is no library: loading it would be another error."""
    library = tmp_path / "libperformer.so"
    library.write_text("not a library")
    (tmp_path / "performer_build.json").write_text(json.dumps({"version": "9", "torch": "1.0"}))
    result = subprocess.run(
        [sys.executable, "-c", "import performer"],
        env=os.environ
        | {
            "PERFORMER_LIBRARY": str(library),
            "PYTHONPATH": os.path.dirname(os.path.dirname(performer.__file__)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith(
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
