import os
import tempfile

import pytest
import torch

# Code compiled for another build of the operators must not serve this one.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="performer-inductor-")


@pytest.fixture(autouse=True)
def fixed_seed():
    torch.manual_seed(0)


@pytest.fixture
def fresh_dynamo():
    """Compiled code of another test must not serve this one, nor its recompilations count."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
