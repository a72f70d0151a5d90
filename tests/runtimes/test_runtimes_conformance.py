"""Every runtime that there is passes the suite of ``hwbench.testing.runtimes``."""

import pytest
import torch

from hwbench.runtimes import get, names
from hwbench.testing.runtimes import RuntimeConformance


class TestRuntimes(RuntimeConformance):
    @pytest.fixture(params=[name for name in names() if name != "faulty"])
    def runtime(self, request):
        torch.set_num_threads(1)
        return get(request.param)
