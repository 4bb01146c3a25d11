"""The check of Markdown finds each kind of dead link and long line, and nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_markdown.py"

FOLDER = "docs"  # apart from the names, or the check would follow them in this file
OTHER = "# Some `code`, and more\n\n## Twice\n\n## Twice\n"


def check(tmp_path: Path, line: str, name: str = "page.md") -> subprocess.CompletedProcess[str]:
    for folder in (FOLDER, "pages"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "other.md").write_text(OTHER)
    (tmp_path / name).write_text(f"# Title\n\n{line}\n")
    return subprocess.run(
        [sys.executable, SCRIPT, tmp_path], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "line",
    [
        "[gone](pages/gone.md)",
        "![a picture](pages/gone.svg)",
        '<img src="pages/gone.svg">',
        "two: [fine](pages/other.md) and [gone](pages/gone.md)",
        "[no such heading](pages/other.md#three)",
        "[no such heading](#titel)",
        "[only two of these](pages/other.md#twice-2)",
        "word " * 21,
        "```\n" + "x" * 101 + "\n```",
    ],
)
def test_a_bad_line_is_named_with_its_page_and_number(tmp_path: Path, line: str) -> None:
    result = check(tmp_path, line)
    assert result.returncode == 1
    assert "page.md:3: " in result.stdout or "page.md:4: " in result.stdout


@pytest.mark.parametrize(
    "line",
    [
        "[a page](pages/other.md), [a folder](pages), [this one](#title)",
        "[code in a heading](pages/other.md#some-code-and-more)",
        "[both of these](pages/other.md#twice) [twice](pages/other.md#twice-1)",
        "[elsewhere](https://example.org/gone.md#nothing)",
        "`[not a link](pages/gone.md)`",
        "```\n[nor here](pages/gone.md)\n```",
        "| a row of a table | " + "x" * 101 + " |",
        f"[a long target](https://example.org/{'x' * 101})",
    ],
)
def test_a_good_line_passes(tmp_path: Path, line: str) -> None:
    result = check(tmp_path, line)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(("page", "code"), [("gone.md", 1), ("other.md", 0)])
def test_a_comment_that_names_a_page_is_followed(tmp_path: Path, page: str, code: int) -> None:
    assert check(tmp_path, f"# see {FOLDER}/{page}.", name="source.py").returncode == code


def test_this_tree_passes() -> None:
    result = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
