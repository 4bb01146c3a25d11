"""The real program, run as a user would run it."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_recipes import TINY

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "build" / "performer"

Result = subprocess.CompletedProcess[str]
Run = Callable[..., Result]


def run_program(*args: object, limit: str = "", handles: str = "", **kwargs: Any) -> Result:
    """`limit`: of ulimit, as in "-v 4194304"; `handles`: what a shell redirects, as in ">&-"."""
    command = [str(PROGRAM), *map(str, args)]
    if limit or handles:
        script = (f"ulimit {limit}; " if limit else "") + f'exec "$0" "$@" {handles}'
        command = ["bash", "-c", script, *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
        timeout=300,
        **kwargs,
    )


@pytest.fixture
def program() -> Run:
    return run_program


def answer(*args: object) -> dict[str, Any]:
    """The JSON object that a command prints; nothing else may be on standard output."""
    done = run_program(*args, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path
