"""Finds and loads libperformer.so."""

import json
from pathlib import Path

import torch


def load() -> str:
    """Loads the library of the wheel, else of the build folder; returns the version."""
    package = Path(__file__).resolve().parent
    places = [package, package.parents[1] / "build"]
    folder = next((place for place in places if (place / "libperformer.so").is_file()), None)
    if folder is None:
        raise ImportError(f"performer: no libperformer.so in {places[0]} or {places[1]}")
    build = json.loads((folder / "performer_build.json").read_text())
    if build["torch"] != str(torch.__version__):
        raise ImportError(f"performer: built for torch {build['torch']}, got {torch.__version__}")
    torch.ops.load_library(str(folder / "libperformer.so"))
    return str(build["version"])
