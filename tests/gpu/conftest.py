import os
import tempfile

import pytest
import torch

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="performer-inductor-")
VARIABLE = "PERFORMER_CUDA_KERNELS"
PATHS = ("portable", "auto")

if not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]  # nothing here runs without a GPU
else:
    # Unfused float32 is float32.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


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
