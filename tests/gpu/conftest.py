import faulthandler
import os
import sys
import tempfile

import pytest
import torch
from known_failures import KNOWN

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="performer-inductor-")
VARIABLE = "PERFORMER_CUDA_KERNELS"
PATHS = ("portable", "auto")
GIVEN = os.environ.get(VARIABLE)  # portable: no test runs the other path
ON_CPU = os.environ.get("PERFORMER_TEST_DEVICE") == "cpu"
SECONDS = 900 if ON_CPU else 60  # after which a test is taken to hang, and the whole run ends
stderr = sys.stderr

if ON_CPU:
    collect_ignore = [
        "test_accuracy.py",
        "test_cuda.py",
        "test_decode.py",
        "test_dispatch.py",
        "test_graphs.py",
    ]
elif not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]  # nothing here runs without a GPU
else:
    # Unfused float32 is float32.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def pytest_configure():
    global stderr
    stderr = os.fdopen(os.dup(2), "w")  # that of the terminal: pytest captures the other


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """A kernel that does not end holds the interpreter, but not the thread that watches here."""
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=stderr)
    yield
    faulthandler.cancel_dump_traceback_later()


def pytest_collection_modifyitems(config, items):
    """Calls the Hopper kernels never serve are the same on both paths: portable alone."""

    def again(item):
        params = item.callspec.params if hasattr(item, "callspec") else {}
        same = params.get("dtype") == torch.float32 or params.get("feature_map") == "relu"
        return params.get("path") == "auto" and (same or ON_CPU or GIVEN == "portable")

    config.hook.pytest_deselected(items=[item for item in items if again(item)])
    items[:] = [item for item in items if not again(item)]
    for item in items:
        reason = KNOWN.get(f"{item.path.name}::{item.name}")
        if reason and not ON_CPU:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    """Every test that takes it runs with the portable kernels and with those that auto chooses."""
    monkeypatch.setenv(VARIABLE, request.param)
    return request.param


@pytest.fixture
def kernels(monkeypatch):
    """A function that sets PERFORMER_CUDA_KERNELS."""
    return lambda value: monkeypatch.setenv(VARIABLE, value)


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)
