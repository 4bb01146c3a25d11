"""What the tests of installed things share: the README's examples and the commands they run."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(
    *command: str | Path, cwd: Path, env: dict[str, str] | None = None, fails: bool = False
) -> str:
    """Output of a command that must succeed (or fail, when asked for)."""
    result = subprocess.run(
        command,
        cwd=cwd,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert (result.returncode != 0) == fails, result.stdout
    return result.stdout


def readme_examples(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    examples: list[str] = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return examples


@pytest.fixture
def cpp_example() -> str:
    """The first C++ example of README.md."""
    return readme_examples("cpp")[0]


@pytest.fixture
def python_example() -> str:
    """The first Python example of README.md."""
    return readme_examples("python")[0]
