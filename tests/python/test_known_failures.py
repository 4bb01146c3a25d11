"""tests/gpu/known_failures.py, where there is no GPU to read it."""

import re
import runpy
from pathlib import Path

import pytest

GPU = Path(__file__).parents[1] / "gpu"
KNOWN = runpy.run_path(str(GPU / "known_failures.py"))["KNOWN"]


@pytest.mark.parametrize("test", KNOWN)
def test_what_is_known_to_fail_is_there_and_has_a_reason(test):
    file, name = test.split("::")
    function = re.escape(name.partition("[")[0])
    assert re.search(rf"^def {function}\(", (GPU / file).read_text(), re.MULTILINE)
    assert KNOWN[test]
