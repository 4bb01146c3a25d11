#!/usr/bin/env python3
"""Checks the direction of the includes between the folders of src/performer.

cli -> {fit -> train -> infer -> run, pretrained -> infer, report} -> {models -> ops -> kernels,
data}; core serves all but kernels.
"""

import re
import sys
from pathlib import Path

OPS = {"core", "kernels"}
MODELS = OPS | {"ops"}
UPPER = MODELS | {"models", "data"}

# Folder -> the folders that it may include, beside itself.
ALLOWED = {
    "core": set(),
    "kernels": set(),
    "ops": OPS,
    "models": MODELS,
    "data": {"core"},
    "run": UPPER,
    "infer": UPPER | {"run"},
    "train": UPPER | {"run", "infer"},
    "fit": UPPER | {"run", "infer", "train"},
    "pretrained": UPPER | {"run", "infer"},
    "report": UPPER,
    "cli": UPPER | {"run", "infer", "train", "fit", "pretrained", "report"},
}
FRAMEWORK = ("torch/", "ATen/", "c10/", "caffe2/")  # unknown to kernels
SUFFIXES = {".h", ".cpp", ".cuh", ".cu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')


def check_line(folder: str, line: str) -> str | None:
    """What is wrong with one line of a file in `folder`, if anything."""
    match = INCLUDE.match(line)
    if match is None:
        return None
    target = match[1]
    if folder == "kernels" and target.startswith(FRAMEWORK):
        return f"kernels know no framework, yet include {target}"
    if not target.startswith("performer/"):
        # Relative paths would pass by the table, so project headers are named from the root.
        return f"write {target} from the root: performer/…" if target.startswith(".") else None
    other = target.split("/")[1]
    if other == folder or other in ALLOWED[folder]:
        return None
    return f"{folder} must not include {other} ({target})"


def check_tree(root: Path) -> list[str]:
    """All problems under `root`, the folder that holds performer/."""
    problems = []
    for path in sorted((root / "performer").glob("*/**/*")):
        if path.suffix not in SUFFIXES:
            continue
        folder = path.relative_to(root).parts[1]
        if folder not in ALLOWED:
            problems.append(f"{path}:1: folder {folder} has no row in scripts/check_includes.py")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if problem := check_line(folder, line):
                problems.append(f"{path}:{number}: {problem}")
    return problems


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "src"
    problems = check_tree(root)
    print("\n".join(problems) or "includes: every arrow points the right way")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
