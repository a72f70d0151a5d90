"""Passes that are replayed, as far as a CPU shows it: what is refused, and that a recording leaves no trace."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_train_loop import CPU, Clips, run, same
from tiny import RECIPE, Tiny
from torch import nn

from hwbench.errors import InvalidValue
from hwbench.training import Recipe, Resources, fit
from hwbench.training import steps as module
from hwbench.training.replayed import check_replayable

CUDA = torch.device("cuda")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accumulate": 2}, "does not go with accumulate = 2"),
        ({"precision": "bf16"}, "does not go with precision = 'bf16'"),
        ({"multigrid": "long"}, "does not go with multigrid = 'long'"),
        ({"compile": True}, "does not go with compile = True"),
        ({"gradient_checkpointing": True}, "gradient_checkpointing"),
    ],
)
def test_passes_that_are_not_always_the_same_are_refused(changes: dict[str, object], words: str) -> None:
    check_replayable(RECIPE, CUDA, 1)
    with pytest.raises(InvalidValue, match=words):
        check_replayable(replace(RECIPE, **changes), CUDA, 1)
    with pytest.raises(InvalidValue, match="--cuda-graphs goes with one process"):
        check_replayable(RECIPE, CUDA, 2)


def test_a_cpu_replays_nothing(clips: Clips) -> None:
    with pytest.raises(InvalidValue, match=r"^--cuda-graphs needs a GPU; leave it out$"):
        fit(Tiny(), *clips, RECIPE, resources=replace(CPU, cuda_graphs=True))


def test_a_recording_moves_neither_statistics_nor_random_numbers(
    clips: Clips, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's recording is the one of a GPU: here it runs the passes, as that one does first, and replays nothing."""
    replayed: list[torch.Size] = []

    def recorded(shell: nn.Module, sample: tuple[torch.Tensor], **_: object) -> Callable[[torch.Tensor], torch.Tensor]:
        for _ in range(3):
            shell(*sample).sum().backward()

        def replay(x: torch.Tensor) -> torch.Tensor:
            replayed.append(x.shape)
            logits: torch.Tensor = shell(x)
            return logits

        shell.zero_grad(set_to_none=True)
        return replay

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", recorded)
    monkeypatch.setattr(module, "check_replayable", lambda *_: None)
    recipe: Recipe = replace(RECIPE, batch_size=5)  # 24 videos: four batches an epoch
    plain, _ = run(clips, recipe=recipe)
    network = Tiny()
    fit(network, *clips, recipe, resources=Resources("cpu", 1, cuda_graphs=True))
    assert same(plain, network)
    assert replayed == [torch.Size((5, 3, 4, 16, 16))] * 12
