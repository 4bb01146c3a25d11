#!/usr/bin/env bash
# Installs what is missing: the system packages of packages.txt, then .venv with requirements.txt.
# Does nothing, in a fraction of a second, when all is there.
#
# usage: setup.sh [tests]     tests: also what tests compare with (tests/requirements.txt)
set -euo pipefail
cd "$(dirname "$0")/.."

usable_python() {
  "$1" -c '
import ensurepip, os, sys, sysconfig, venv
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(not (sys.version_info >= (3, 10) and os.path.exists(header)))' 2>/dev/null
}

# The first python3 that can make an environment: PATH may name one without ensurepip before Debian's.
find_python() {
  local candidate
  for candidate in $(type -ap python3) /usr/bin/python3; do
    if usable_python "$candidate"; then
      echo "$candidate"
      return
    fi
  done
}

missing_packages() {
  local package substitute python
  python=$(find_python)
  while read -r package substitute; do
    case $package in '' | '#'*) continue ;; esac
    case $substitute in
      python) [[ -n $python ]] && continue ;;
      ?*) command -v "$substitute" >/dev/null && continue ;;
    esac
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done <scripts/packages.txt
}

install_packages() {
  local packages
  mapfile -t packages < <(missing_packages)
  ((${#packages[@]})) || return 0
  local install="apt-get install -y --no-install-recommends ${packages[*]}"
  if (($(id -u) != 0)); then
    echo "setup: system packages are missing; an administrator must run:" >&2
    echo "  sudo sh -c 'apt-get update && $install'" >&2
    exit 1
  fi
  echo "setup: installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  # Fresh machines have no package lists, old ones have stale lists: both are seen as a failure here.
  $install 2>/dev/null || { apt-get update && $install; }
}

# install_requirements FILE STAMP: unless the stamp says that this very list is installed.
install_requirements() {
  local file=$1 stamp=$2
  cmp -s "$file" "$stamp" && return 0
  echo "setup: installing the Python packages of $file into .venv"
  .venv/bin/python -m pip install --disable-pip-version-check --progress-bar off -r "$file"
  cp "$file" "$stamp"
}

install_environment() {
  # A link is an environment shared with another checkout, which looks after it.
  [[ -L .venv && -x .venv/bin/python ]] && return 0
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    echo "setup: creating .venv"
    rm -rf .venv
    "$(find_python)" -m venv .venv
  fi
  install_requirements requirements.txt .venv/requirements.installed
  [[ $1 != tests ]] || install_requirements tests/requirements.txt .venv/tests.installed
  local site
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$PWD/python" >"$site/performer.pth"  # so that .venv imports the package of this tree
}

install_packages
install_environment "${1:-}"
