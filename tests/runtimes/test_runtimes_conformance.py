"""Every runtime that there is passes the suite of ``hwbench.testing.runtimes``."""

import pytest
import torch

from hwbench.errors import MissingDependency
from hwbench.runtimes import get, names
from hwbench.testing.runtimes import RuntimeConformance


class TestRuntimes(RuntimeConformance):
    @pytest.fixture(params=[name for name in names() if name != "faulty"])
    def runtime(self, request):
        torch.set_num_threads(1)
        runtime = get(request.param)
        try:
            runtime.version()
        except MissingDependency as error:
            pytest.skip(str(error))
        return runtime
