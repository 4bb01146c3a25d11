"""Finds libperformer.so, checks that it was built for the running torch, and loads it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

LIBRARY = "libperformer.so"
SIDECAR = "performer_build.json"
REBUILD = "`pip install --no-build-isolation .` in the performer source tree"


class Build(NamedTuple):
    """What the build recorded beside the library."""

    version: str
    torch: str


def find_library() -> Path:
    """PERFORMER_LIBRARY (sanitizer builds), else the wheel's copy, else the development tree's."""
    package = Path(__file__).resolve().parent
    override = os.environ.get("PERFORMER_LIBRARY")
    if override:
        places = [Path(override)]
    else:
        places = [package / LIBRARY, package.parents[1] / "build" / LIBRARY]
    for place in places:
        if place.is_file():
            return place
    looked = " and ".join(str(place) for place in places)
    raise ImportError(f"performer: no library, looked for {looked}; build it with {REBUILD}")


def read_build(library: Path) -> Build:
    """The sidecar of `library`: {"version": ..., "torch": ...}."""
    sidecar = library.parent / SIDECAR
    try:
        fields = json.loads(sidecar.read_text(encoding="utf-8"))
        return Build(str(fields["version"]), str(fields["torch"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ImportError(
            f"performer: {sidecar} must say which torch {LIBRARY} was built for, "
            f"got {type(error).__name__}: {error}; rebuild with {REBUILD}"
        ) from error


def check_torch(built: str, running: str) -> None:
    """A C++ library fits one torch only; another fails to load, or worse, loads and crashes.

    A build that records no variant (2.13.0) fits every variant (2.13.0+cpu) of that version.
    """
    if running == built or ("+" not in built and running.split("+")[0] == built):
        return
    raise ImportError(
        f"performer: built for torch {built}, found torch {running}; "
        f"install torch {built}, or rebuild with {REBUILD}"
    )


def load() -> Build:
    library = find_library()
    build = read_build(library)
    check_torch(build.torch, str(torch.__version__))
    load_library: Callable[[str], None] = torch.ops.load_library
    try:
        load_library(str(library))
    except OSError as error:
        # The same version with another ABI: a build of one's own, or a damaged library.
        reason = str(error.__cause__ or error).partition("\n")[0]  # torch wraps the loader's words
        raise ImportError(
            f"performer: {library}, built for torch {build.torch}, cannot be loaded beside torch "
            f"{torch.__version__} of this environment: {reason}; rebuild with {REBUILD}"
        ) from error
    return build
