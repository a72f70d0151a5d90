import pytest
import torch

from hwbench.runtimes.capabilities import NATIVE
from hwbench.runtimes.native.build import build_runner
from hwbench.runtimes.runners import Runner
from hwbench.testing.models import write_pte


@pytest.fixture(scope="session")
def native(runner_cache):
    return Runner(NATIVE, (str(build_runner(runner_cache)),))


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Real models: fp32, a wider one, int8, one whose input is stored with the channels last."""
    folder = tmp_path_factory.mktemp("models")
    return {
        "small": write_pte(folder / "small.pte"),
        "wide": write_pte(folder / "wide.pte", channels=16),
        "int8": write_pte(folder / "int8.pte", int8=True),
        "last": write_pte(folder / "last.pte", layout=torch.channels_last),
    }
