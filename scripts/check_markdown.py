#!/usr/bin/env python3
"""Checks that every page of Markdown leads somewhere: relative links, anchors, lengths of lines.

Sources that name a page of docs/ in a comment or a message are checked too.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST = 100  # columns of a line, without the targets of its links
SOURCES = {".py", ".h", ".cpp", ".cu", ".cuh", ".sh", ".toml", ".cmake"}
OUTPUT = re.compile(r"build(-\w+)?|runs")  # folders of the root, besides hidden ones

FENCE = re.compile(r"^\s*(```|~~~)")
CODE = re.compile(r"(`+).+?\1")
TARGET = re.compile(r"(?<=\]\()[^()\s]+(?=\))|(?<=src=\")[^\"]+|(?<=href=\")[^\"]+")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$")
PAGE = re.compile(r"(?<![\w/.-])docs/[\w/.-]+\.(?:md|svg)\b")
FOREIGN = ("http://", "https://", "mailto:")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The numbered lines outside of fenced code, inline code left empty."""
    fenced = False
    for number, line in enumerate(text.splitlines(), start=1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, CODE.sub("``", line)


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", "")).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """All anchors of a page; a heading that occurs again gets -1, -2, …"""
    found: set[str] = set()
    fenced = False
    for line in page.read_text(encoding="utf-8").splitlines():
        fenced ^= FENCE.match(line) is not None
        match = None if fenced else HEADING.match(line)
        if match is None:
            continue
        name = first = slug(match[1])
        count = 0
        while name in found:
            count += 1
            name = f"{first}-{count}"
        found.add(name)
    return found


def check_target(page: Path, target: str) -> str | None:
    """What is wrong with a link, if anything."""
    if target.startswith(FOREIGN):
        return None
    name, _, anchor = target.partition("#")
    file = page.parent / name if name else page
    if not file.exists():
        return f"{target} leads nowhere: no {name} beside this page"
    if anchor and (file.suffix != ".md" or anchor not in anchors(file)):
        return f"{target} leads nowhere: {file.name} has no heading #{anchor}"
    return None


def check_page(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    for number, line in prose(text):
        for target in TARGET.findall(line):
            if problem := check_target(page, target):
                yield f"{page}:{number}: {problem}"
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("|"):
            continue  # a row of a table cannot be broken
        if (length := len(TARGET.sub("", line))) > LONGEST:
            yield f"{page}:{number}: {length} columns; break the line before {LONGEST}"


def check_source(source: Path, root: Path) -> Iterator[str]:
    text = source.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        for name in PAGE.findall(line):
            if not (root / name).exists():
                yield f"{source}:{number}: names {name}, which does not exist"


def files(folder: Path, *, top: bool = True) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or (top and OUTPUT.fullmatch(path.name)):
            continue
        if path.is_dir():
            yield from files(path, top=False)
        else:
            yield path


def check_tree(root: Path) -> list[str]:
    problems: list[str] = []
    for path in files(root):
        if path.suffix == ".md":
            problems += check_page(path)
        elif path.suffix in SOURCES:
            problems += check_source(path, root)
    return problems


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    problems = check_tree(root)
    print("\n".join(problems) or "markdown: every link leads somewhere")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
