"""The wheel's dependency on torch, for scikit-build-core: the torch that is built against, exactly.

A C++ library fits one torch only, so the metadata says what `import performer` accepts
(performer._library.check_torch): torch==2.13.0 is met by 2.13.0+cpu and 2.13.0+cu130,
torch==2.13.0+cpu by that variant alone.
"""

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path

VERSION = re.compile(r"^__version__ = '(.+)'$", re.MULTILINE)


def torch_version() -> str:
    """Of the torch beside this Python, from the file that cmake/torch.cmake reads."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "performer: no torch to build against; install one and take --no-build-isolation"
        )
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    match = VERSION.search(text)
    if match is None:
        raise RuntimeError(f"performer: no __version__ in version.py beside {spec.origin}")
    return match[1]


def dynamic_metadata(field: str, settings: Mapping[str, object]) -> list[str]:
    """scikit-build-core's hook; `settings` has nothing to set."""
    if field != "dependencies" or settings:
        raise RuntimeError(f"performer: only the dependencies are made here, got {field}")
    return [f"torch=={torch_version()}"]
