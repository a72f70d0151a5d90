"""The test of a checkpoint on validation videos."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hwbench.data import FailurePolicy, Reading, open_dataset, open_splits
from hwbench.data.decoded_cache import saying_refusal
from hwbench.errors import InvalidValue
from hwbench.printable import beginning
from hwbench.training.checkpoint import Checkpoint, build, load_checkpoint
from hwbench.training.metrics import Scores, evaluate
from hwbench.training.processes import ALONE, World
from hwbench.training.resources import Resources
from hwbench.workspace import Workspace


def score(
    path: Path,
    workspace: Workspace,
    *,
    source: str | None = None,
    views: tuple[int, int] = (1, 1),
    policy: FailurePolicy = FailurePolicy.RAISE,
    reading: Reading | None = None,
    resources: Resources | None = None,
    world: World = ALONE,
    progress: Callable[[int, int], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> tuple[Checkpoint, Scores]:
    """Scores of a checkpoint on the validation videos of its own data or of ``source``, over views (clips, crops).

    ``progress`` is that of ``evaluate``; ``say`` hears once where decoded videos cannot be kept.

    Raises:
        InvalidFile: No checkpoint there, or a damaged one.
        InvalidValue: The data has other classes than the checkpoint.
        And what ``open_dataset`` and ``evaluate`` raise.
    """
    checkpoint, weights = load_checkpoint(path)
    _, _, _, height, width = checkpoint.network.input.shape
    data, seed = source or checkpoint.source, checkpoint.data_seed
    dataset = open_dataset(
        workspace,
        data,
        split="val",
        size=(height, width),
        clip=checkpoint.clip,
        views=views,
        seed=seed,
        policy=policy,
        picture=checkpoint.picture,
        normalisation=checkpoint.normalisation,
        reading=checkpoint.reading(reading),
        splits=open_splits(workspace, data, seed=seed, trained_on=checkpoint.trained_on),
        fixed=checkpoint.quantization is not None,
    )
    if dataset.classes != checkpoint.classes:
        raise InvalidValue(
            f"{data}: its classes ({beginning(dataset.classes)}) are not those of "
            f"{path} ({beginning(checkpoint.classes)}); name data with these with --data"
        )
    say_refusal = None if say is None else saying_refusal(dataset.decoder, say)

    def scored(done: int, total: int) -> None:
        if say_refusal is not None:
            say_refusal()
        if progress is not None:
            progress(done, total)

    resources = resources or Resources()
    with resources.applied() as device:
        module = build(checkpoint, weights).to(device)
        scores = evaluate(
            module,
            dataset,
            batch_size=checkpoint.recipe.test_batch(views[1], world.size),
            workers=resources.workers,
            device=device,
            world=world,
            progress=scored,
        )
    return checkpoint, scores
