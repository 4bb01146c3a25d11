"""Headers of safetensors files, changed at random: taken and refused as by the Python package.

PERFORMER_HEADERS: how many (default 4000).
"""

import os
import struct
import subprocess
from collections import Counter

from attacked import report
from conftest import ROOT
from hostile_headers import hostile_file, passes_by
from safetensors import SafetensorError, deserialize

HEADERS = int(os.environ.get("PERFORMER_HEADERS", "4000"))
VERDICTS = ROOT / "build/tests/fuzz/safetensors_verdicts"
BATCH = 5000


def package_takes(file: bytes) -> bool:
    try:
        deserialize(file)
    except SafetensorError:
        return False
    return True


def verdicts(files: list[bytes]) -> list[str]:
    framed = b"".join(struct.pack("<Q", len(file)) + file for file in files)
    done = subprocess.run([VERDICTS], input=framed, capture_output=True, check=True, timeout=600)
    return done.stdout.decode().splitlines()


def complaint(theirs: bool, ours: str, file: bytes) -> str:
    """What is wrong with a verdict; empty: nothing."""
    if not theirs:
        return "taken, by the package refused" if ours == "taken" else ""
    reason = passes_by(file)
    if ours == "taken":
        return f"taken with {reason}" if reason else ""
    return "" if reason else f"refused, by the package taken: {ours}"


def test_headers_are_taken_and_refused_as_by_the_package() -> None:
    complaints = []
    seen: Counter[str] = Counter()
    for begin in range(0, HEADERS, BATCH):
        files = [hostile_file(seed) for seed in range(begin, min(HEADERS, begin + BATCH))]
        said = verdicts(files)
        assert len(said) == len(files), "one line for each file"
        for seed, (file, ours) in enumerate(zip(files, said, strict=True), begin):
            theirs = package_takes(file)
            seen[(passes_by(file) or "taken") if theirs else "refused"] += 1
            if wrong := complaint(theirs, ours, file):
                complaints.append(f"{seed}: {wrong}: {file[:300]!r}")
    assert not complaints, report(complaints)
    print(dict(seen))
    # The attack has both kinds, or it shows nothing.
    assert min(seen["taken"], seen["refused"]) > HEADERS // 10, seen
