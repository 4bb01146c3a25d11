#!/usr/bin/env bash
# lint.sh check: formats, Python lint and types, include directions, links.  lint.sh format: rewrites.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t sources < <(find src tests examples -name '*.h' -o -name '*.cpp' -o -name '*.cuh' -o -name '*.cu' 2>/dev/null)
case ${1:-} in
  check)
    clang-format --dry-run --Werror "${sources[@]}"
    .venv/bin/ruff format --check .
    .venv/bin/ruff check .
    .venv/bin/mypy
    .venv/bin/python scripts/check_includes.py
    .venv/bin/python scripts/check_markdown.py
    .venv/bin/python scripts/draw_chart.py --check
    ;;
  format)
    clang-format -i "${sources[@]}"
    .venv/bin/ruff format .
    .venv/bin/ruff check --fix .
    ;;
  *)
    echo "usage: scripts/lint.sh check|format" >&2
    exit 2
    ;;
esac
