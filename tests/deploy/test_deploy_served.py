import os
import signal
from pathlib import Path

import numpy as np
import pytest

from hwbench.deploy.model_process import served
from hwbench.errors import CheckFailed
from hwbench.runtimes.runners import check_file
from hwbench.testing.models import write_pte

GOLDEN = Path(__file__).parents[1] / "golden" / "pte"


@pytest.fixture(scope="module")
def channels_last(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    return write_pte(tmp_path_factory.mktemp("served") / "last.pte", size=6, layout=torch.channels_last)


@pytest.mark.long
def test_many_inputs_in_one_process_give_what_one_run_each_gives(channels_last: Path) -> None:
    chance = np.random.default_rng(1)
    for path in (GOLDEN / "small-1.5.1.pte", channels_last):
        with served(path) as model:
            inputs = [chance.normal(size=model.input_shape).astype(np.float32) for _ in range(3)]
            outputs = [model(values) for values in (*inputs, inputs[0])]
            assert model.output_shape == outputs[0].shape
        assert np.array_equal(outputs[0], outputs[3])
        assert not np.array_equal(outputs[0], outputs[1])
        assert np.array_equal(outputs[1], check_file(path, inputs[1]).output)


def test_a_file_that_kills_its_process_is_told() -> None:
    said = r"abort-1.5.1.pte: on this machine the file ended its process: killed by SIG"
    with pytest.raises(CheckFailed, match=said), served(GOLDEN / "abort-1.5.1.pte"):
        pass


@pytest.mark.parametrize("content", [b"", b"no program", b"\0" * 4096])
def test_a_file_that_does_not_load_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(content)
    with pytest.raises(CheckFailed, match=r"model.pte does not load and run on this machine"), served(path):
        pass


def test_a_death_between_two_runs_is_told_and_another_shape_refused() -> None:
    with served(GOLDEN / "small-1.5.1.pte") as model:
        values = np.zeros(model.input_shape, np.float32)
        model(values)
        with pytest.raises(CheckFailed, match="takes an input of shape"):
            model(values[:1])
        os.kill(model._process.pid, signal.SIGKILL)
        with pytest.raises(CheckFailed, match="killed by SIGKILL"):
            model(values)


def test_the_limit_of_a_run_is_told() -> None:
    with served(GOLDEN / "small-1.5.1.pte", timeout_s=30) as model:
        os.kill(model._process.pid, signal.SIGALRM)  # as the alarm that the process sets itself
        with pytest.raises(CheckFailed, match="took longer than 30 s"):
            model(np.zeros(model.input_shape, np.float32))


def test_no_process_is_left_behind() -> None:
    with served(GOLDEN / "small-1.5.1.pte") as model:
        assert model._process.poll() is None
    assert model._process.returncode == -signal.SIGKILL
