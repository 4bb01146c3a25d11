"""Set-up installs the missing packages, only those, and asks an administrator when it may not."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT


class Machine:
    """A pretended machine: a copy of the script, and recording stand-ins for the system's tools."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "setup.sh", folder / "scripts")
        # A linked environment is left alone, so that these tests see the system packages only.
        (folder / ".venv").symlink_to((ROOT / ".venv").resolve())
        self.tool("apt-get", f'echo "$*" >>{folder}/calls; exit 0')
        self.tool("dpkg-query", "exit 1")
        self.tool("id", "echo 0")

    def tool(self, name: str, script: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def setup(self, packages: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "scripts" / "packages.txt").write_text(packages)
        return subprocess.run(
            [self.folder / "scripts" / "setup.sh"],
            env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[str]:
        log = self.folder / "calls"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_nothing_is_installed_when_all_is_there(machine: Machine) -> None:
    machine.tool("dpkg-query", 'echo "install ok installed"')
    result = machine.setup("# a comment\n\nlibgtest-dev\nshell sh\npython3-venv python\n")
    assert (result.returncode, machine.calls()) == (0, []), result.stderr


def test_a_command_or_a_python_from_elsewhere_will_do(machine: Machine) -> None:
    result = machine.setup("some-shell sh\npython3-venv python\n")
    assert (result.returncode, machine.calls()) == (0, []), result.stderr


def test_only_the_missing_packages_are_installed(machine: Machine) -> None:
    result = machine.setup("some-shell sh\nfirst-missing no-such-command\nsecond-missing\n")
    assert result.returncode == 0, result.stderr
    assert machine.calls() == [
        "install -y --no-install-recommends first-missing second-missing",
    ]


def test_package_lists_are_fetched_when_the_first_try_fails(machine: Machine) -> None:
    calls = machine.folder / "calls"
    machine.tool("apt-get", f'echo "$1" >>{calls}; [ "$1" = update ] || grep -q update {calls}')
    result = machine.setup("missing\n")
    assert (result.returncode, machine.calls()) == (0, ["install", "update", "install"])


def test_without_root_the_one_command_for_an_administrator_is_printed(machine: Machine) -> None:
    machine.tool("id", "echo 1000")
    result = machine.setup("first-missing\nsecond-missing\n")
    assert (result.returncode, machine.calls()) == (1, [])
    (command,) = [line for line in result.stderr.splitlines() if "apt-get" in line]
    assert "apt-get update && apt-get install -y" in command
    assert "first-missing second-missing" in command
