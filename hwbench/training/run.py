"""A training run from a network and the name of the data to a checkpoint."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from hwbench.data import (
    ClipSpec,
    FailurePolicy,
    Normalisation,
    PictureSpec,
    Reading,
    Splits,
    default_clip,
    open_dataset,
    open_splits,
)
from hwbench.data.datasets import TestClips, TrainingClips
from hwbench.data.reading import READING
from hwbench.data.transforms import NORMALISATION, PICTURE
from hwbench.data.video_scores import SCORES, save_scores
from hwbench.errors import InvalidFile, InvalidValue, WorkspaceError
from hwbench.models.answers import require_training_answer
from hwbench.models.by_hand import is_by_hand_network
from hwbench.specs import AUTO, Network
from hwbench.training.checkpoint import Checkpoint, Weights, build, load_checkpoint, save_checkpoint
from hwbench.training.description import RunDescription, read_description, write_description
from hwbench.training.loop import TrainingProgress, fingerprint, fit
from hwbench.training.metrics import Scores
from hwbench.training.processes import ALONE, World
from hwbench.training.quantized import Quantization, calibrated, packed, require_same
from hwbench.training.recipe import Recipe
from hwbench.training.resources import Resources
from hwbench.training.run_files import CHECKPOINT, REPORT, is_of_run, start_over
from hwbench.training.run_lock import is_trained_now, training_alone
from hwbench.training.state import POLICY, begun_in, check_same_run, remove_states
from hwbench.training.teacher import Teacher
from hwbench.workspace import Workspace, write_bytes, writing

# What a checkpoint tells its validation videos by, with their labels; weights do not hang on it.
VALIDATION = "validation"


@dataclass(frozen=True)
class Trained:
    """The result of a run.

    Attributes:
        checkpoint: What was trained.
        finished_before: Nothing was left to train, the stored result is given back.
        other_validation: The stored result is that of other validation videos, or of other labels of them.
    """

    checkpoint: Checkpoint
    finished_before: bool = False
    other_validation: bool = False


@dataclass(frozen=True)
class Data:
    """What a run reads: its name as the user gave it, and the clips to train and to validate on.

    ``picture`` and ``normalisation`` are how both scale, cut and normalise frames, ``reading`` how they get them.
    ``split_seed`` is the seed that divided the videos among both; None: that of the recipe.
    """

    source: str
    training: TrainingClips
    validation: TestClips
    picture: PictureSpec = PICTURE
    normalisation: Normalisation = NORMALISATION
    reading: Reading = READING
    split_seed: int | None = None


@dataclass(frozen=True)
class StartingWeights:
    """Weights that a run begins with in the place of random ones.

    ``weights`` may leave tensors out, which stay random; ``identity`` tells these weights from others.
    """

    weights: Mapping[str, torch.Tensor]
    identity: str

    def facts(self) -> dict[str, str]:
        """What tells this beginning from others, name -> text."""
        return {"weights": self.identity}


@dataclass(frozen=True)
class FineTuning:
    """A trained network, to go on with the rounding of int8 in it: its checkpoint, the weights in there, and how."""

    checkpoint: Checkpoint
    weights: Weights
    quantization: Quantization

    @classmethod
    def of(cls, path: Path, variant: str = AUTO) -> FineTuning:
        """The start that a file is.

        Raises:
            InvalidFile: No checkpoint there, or a damaged one.
            InvalidValue: It was trained with rounding already.
        """
        checkpoint, weights = load_checkpoint(path)
        if checkpoint.quantization is not None:
            raise InvalidValue(f"{path}: was trained with the rounding of int8 already; give the one it started from")
        return cls(checkpoint, weights, Quantization(checkpoint.sha256, variant))

    def original(self) -> nn.Module:
        """The network as it was trained, in eval mode."""
        return build(self.checkpoint, self.weights)

    def module(self, training: TrainingClips, recipe: Recipe) -> nn.Module:
        """The network with rounding, its ranges taken from training clips."""
        module = self.quantization.module(self.checkpoint.network, self.original())
        return calibrated(module, training, recipe.seed)

    def facts(self) -> dict[str, str]:
        """What tells this beginning from others, name -> text."""
        return self.quantization.facts()

    def top1_before(self, tuned: Checkpoint) -> float | None:
        """Top-1 of the start; None where it was tested on other videos, or other views of them, than ``tuned``."""
        start = self.checkpoint
        # Checkpoints of before do not tell their validation videos: the same split has the same training videos.
        fact = VALIDATION if VALIDATION in start.facts and VALIDATION in tuned.facts else "data"
        same = start.facts.get(fact) == tuned.facts.get(fact) and _test_views(start) == _test_views(tuned)
        return start.metrics["top1"] if same else None


def _test_views(checkpoint: Checkpoint) -> tuple[object, ...]:
    """What of a video the metrics of a checkpoint were measured on."""
    recipe, picture, clip = checkpoint.recipe, checkpoint.picture, checkpoint.network.input
    transform = picture.test_transform if checkpoint.quantization is None else picture.fixed_transform
    views = transform((clip.h, clip.w), recipe.test_crops, checkpoint.normalisation)
    return views, recipe.test_clips, checkpoint.clip, checkpoint.flow


def open_data(
    workspace: Workspace,
    source: str,
    size: tuple[int, int, int],
    recipe: Recipe,
    *,
    clip: ClipSpec | None = None,
    policy: FailurePolicy = FailurePolicy.RAISE,
    picture: PictureSpec = PICTURE,
    normalisation: Normalisation = NORMALISATION,
    reading: Reading = READING,
    splits: Splits | None = None,
    fixed: bool = False,
) -> Data:
    """Training and validation clips of ``size`` (T, H, W), as a recipe wants them.

    ``fixed`` is for networks that take no other size: three crops are no larger.
    ``splits`` are what ``open_splits`` says of the data and the recipe's seed, where that was read already.

    Raises:
        UnknownName: Neither ``synthetic`` nor an existing path, or no such transform or decoder.
        InvalidFile: A path whose folders or lists are not as they should be.
    """
    frames, height, width = size
    clip = clip or default_clip(source, frames)
    if clip.frames != frames:
        raise InvalidValue(f"clip: the network takes {frames} frames, the clip has {clip.frames}")
    splits = splits or open_splits(workspace, source, seed=recipe.seed)
    training = open_dataset(
        workspace,
        source,
        split="train",
        size=(height, width),
        clip=clip,
        seed=recipe.seed,
        policy=policy,
        picture=picture,
        normalisation=normalisation,
        transforms=recipe.transforms,
        reading=reading,
        splits=splits,
    )
    validation = open_dataset(
        workspace,
        source,
        split="val",
        size=(height, width),
        clip=clip,
        views=(recipe.test_clips, recipe.test_crops),
        seed=recipe.seed,
        policy=policy,
        picture=picture,
        normalisation=normalisation,
        reading=reading,
        splits=splits,
        fixed=fixed,
    )
    return Data(source, training, validation, picture, validation.transform.normalisation, reading, recipe.seed)


def train(
    recipe: Recipe,
    network: Network,
    data: Data,
    run_dir: Path,
    *,
    start: StartingWeights | FineTuning | None = None,
    teacher: Teacher | None = None,
    resources: Resources | None = None,
    world: World = ALONE,
    tensorboard: bool = False,
    fresh: bool = False,
    begins: Callable[[], None] | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
    validated: Callable[[int, Scores], None] | None = None,
) -> Trained:
    """Trains a network and writes ``checkpoint.pt`` in ``run_dir``; the same call again goes on, or finds it finished.

    Args:
        recipe: How.
        network: What.
        data: What on.
        run_dir: Folder of the run.
        start: Weights to begin with, or a trained network that goes on with the rounding of int8 in it; default: random
            weights.
        teacher: A trained network to learn from, too.
        resources: Device, threads, worker processes.
        world: The processes that train together; the first one reads and writes the files.
        tensorboard: Also write the log for TensorBoard.
        fresh: Start over: what is stored in ``run_dir`` is removed before the first step, and not where the arguments
            are refused.
        begins: Called once before the first step, in the first process: what was there before ``fresh`` is removed.
        progress: Called after every step.
        validated: Called after every validation with the epoch, from 1, and its scores.

    Raises:
        InvalidValue: ``run_dir`` holds another run, the network has another number of classes than the data, or none
            of its weights is trained.
        UnsupportedModule: A model by hand answers in training with something else than logits.
        And what ``hwbench.training.loop.fit`` raises.
    """
    classes = data.training.classes
    if network.num_classes != len(classes):
        raise InvalidValue(f"{network.name} has {network.num_classes} classes, {data.source} has {len(classes)}")
    if isinstance(start, FineTuning):
        require_same(network, start.checkpoint.classes, classes, data.source)
        _check_rounding(recipe, world, resources)
    identity = _identity(network, start, teacher) | data.reading.facts()
    facts = fingerprint(data.training, recipe, identity)
    path = run_dir / CHECKPOINT
    validation = data.validation.videos.identity
    finished = None if fresh else _finished(path, facts, validation, world)
    if finished is not None:
        if world.leads:
            _remove_left_states(run_dir)
        return finished
    taught = None if teacher is None else teacher.module(network, classes, data.normalisation)
    if isinstance(start, FineTuning):
        module = start.module(data.training, recipe)
    else:
        module = initial(network, recipe, start)
        if is_by_hand_network(network.blocks):
            require_training_answer(network.name, module, network.input, len(classes))
    description = _description(network, data, recipe, start, teacher)
    with training_alone(run_dir) if world.leads else contextlib.nullcontext():
        finished = None if fresh else _finished(path, facts, validation, world)
        if finished is not None:  # by another process meanwhile
            if world.leads:
                remove_states(run_dir)
            return finished
        result = fit(
            module,
            data.training,
            data.validation,
            recipe,
            run_dir=run_dir,
            resources=resources,
            identity=identity,
            teacher=taught,
            world=world,
            tensorboard=tensorboard,
            fresh=fresh,
            begins=partial(_begin, run_dir, description, begins, fresh=fresh) if world.leads else None,
            progress=progress,
            validated=validated,
        )
        assert result.scores is not None  # there is a validation set
        failures = result.failures.merged(result.scores.failures)
        by_video = result.scores.by_video
        metrics = {
            "top1": result.scores.top1,
            "top5": result.scores.top5,
            "videos": float(result.scores.videos),
            "epochs": float(recipe.epochs),
            "steps": float(result.steps),
            "seconds": result.seconds,
            "lost_samples": float(failures.samples),
            **({} if by_video is None else {"chance": by_video.chance, **by_video.measures()}),
        }
        clip, source = data.training.clip, data.source
        checkpoint = Checkpoint(
            network,
            classes,
            recipe,
            clip,
            metrics,
            source,
            facts | {VALIDATION: validation},
            failures.causes,
            data.normalisation,
            picture=data.picture,
            flow=data.reading.flow,
            split_seed=None if data.split_seed == recipe.seed else data.split_seed,
        )
        weights: Weights = module.state_dict()
        if isinstance(start, FineTuning):
            checkpoint = replace(checkpoint, quantization=start.quantization)
            weights = packed(module, start.original())
        if world.leads:
            _save_scores(run_dir, result.scores)
            checkpoint = save_checkpoint(path, checkpoint, weights)
            remove_states(run_dir)
    return Trained(world.share(checkpoint))


def _remove_left_states(run_dir: Path) -> None:
    """Removes what a finished run would go on from, where it was killed before it did so.

    It stays where another process trains in the folder, and where the folder cannot be written.
    """
    if begun_in(run_dir):
        with contextlib.suppress(InvalidValue, WorkspaceError), training_alone(run_dir), writing(run_dir):
            if (run_dir / CHECKPOINT).is_file():  # no other process started over meanwhile
                remove_states(run_dir)


def _begin(run_dir: Path, description: RunDescription, begins: Callable[[], None] | None, *, fresh: bool) -> None:
    """Prepares the folder of a run that is refused no more."""
    if fresh:
        start_over(run_dir)
    if begins is not None:
        begins()
    if not begun_in(run_dir):
        write_description(run_dir, description)


def _description(
    network: Network,
    data: Data,
    recipe: Recipe,
    start: StartingWeights | FineTuning | None,
    teacher: Teacher | None,
) -> RunDescription:
    return RunDescription(
        network=network.name,
        input=network.input.key,
        data=data.source,
        classes=len(data.training.classes),
        videos={"train": len(data.training.videos), "val": len(data.validation.videos)},
        recipe=recipe.to_plain(),
        reading=data.reading.facts(),
        begins_with={
            key: value for part in (start, teacher) if part is not None for key, value in part.facts().items()
        },
    )


def _finished(path: Path, facts: Mapping[str, str], validation: str, world: World) -> Trained | None:
    """The run, where it has been trained to its end; the same in all processes."""
    checkpoint = world.share(_stored(path, facts) if world.leads else None)
    if checkpoint is None:
        return None
    validated = checkpoint.facts.get(VALIDATION, validation)  # runs of before do not say it
    return Trained(checkpoint, finished_before=True, other_validation=validated != validation)


def _stored(path: Path, facts: Mapping[str, str]) -> Checkpoint | None:
    """The checkpoint of a finished run."""
    if not path.is_file():
        return None
    try:
        checkpoint, _ = load_checkpoint(path)
    except InvalidFile as error:
        way = "start over with --fresh" if is_of_run(path.parent) else "move it away"
        raise InvalidFile(f"{error}; {way} or choose another --out") from None
    check_same_run(path, {name: fact for name, fact in checkpoint.facts.items() if name != VALIDATION}, facts)
    return checkpoint


def _check_rounding(recipe: Recipe, world: World, resources: Resources | None) -> None:
    """Refuses what does not go with the rounding of int8: its module is one graph, without blocks."""
    if resources is not None and resources.cuda_graphs:
        raise InvalidValue("--cuda-graphs does not go with --qat; leave out one of them")
    if recipe.precision != "fp32":
        raise InvalidValue(f"--precision: training with the rounding of int8 is in fp32, got {recipe.precision}")
    for name in ("freeze", "layer_decay", "precise_bn", "sync_bn", "compile", "gradient_checkpointing", "multigrid"):
        if getattr(recipe, name) != getattr(Recipe, name):
            raise InvalidValue(f"recipe: {name} does not go with the rounding of int8; leave it out with --qat")
    if world.size > 1:
        raise InvalidValue("training with the rounding of int8 runs in one process; start hwbench without torchrun")


def _save_scores(run_dir: Path, scores: Scores) -> None:
    """The scores of each validation video, and what they are worth."""
    if scores.by_video is not None:
        save_scores(run_dir / SCORES, scores.by_video)
        write_bytes(run_dir / REPORT, json.dumps(scores.by_video.report(), indent=1).encode())


def run_folder(
    workspace: Workspace,
    recipe: Recipe,
    network: Network,
    data: Data,
    start: StartingWeights | FineTuning | None = None,
    teacher: Teacher | None = None,
) -> Path:
    """The folder of a run that was given none: below ``runs/``, the same for the same run and another for another.

    What is done about unreadable videos makes no other folder: a run that stopped at one goes on with ``skip``.
    """
    facts = fingerprint(data.training, recipe, _identity(network, start, teacher) | data.reading.facts())
    before = workspace.root / "runs" / _folder_name(network, facts)  # runs under skip and replace had their own once
    return before if before.is_dir() else before.with_name(_folder_name(network, facts | {POLICY: FailurePolicy.RAISE}))


def interrupted_beside(
    folder: Path,
    recipe: Recipe,
    network: Network,
    data: Data,
    start: StartingWeights | FineTuning | None = None,
    teacher: Teacher | None = None,
) -> Path | None:
    """The folder of an interrupted run beside that of a new one, which differs in its videos or clips alone."""
    asked = _description(network, data, recipe, start, teacher)
    for beside in sorted(folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*")):
        if beside != folder and begun_in(beside) and not is_trained_now(beside):
            with contextlib.suppress(InvalidFile):
                if replace(read_description(beside), videos=asked.videos) == asked:
                    return beside
    return None


def _folder_name(network: Network, facts: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    name = re.sub(r"[^A-Za-z0-9.]+", "-", network.name)[:40].strip("-")
    return f"{name}-{digest[:10]}"


def _identity(network: Network, start: StartingWeights | FineTuning | None, teacher: Teacher | None) -> dict[str, str]:
    facts = {"network": ">".join(block.key for block in network.blocks) + "@" + network.input.key}
    for part in (start, teacher):
        facts |= {} if part is None else part.facts()
    return facts


def initial(network: Network, recipe: Recipe, start: StartingWeights | None = None) -> nn.Module:
    """The untrained network; what ``start`` does not give follows from the recipe's seed.

    ``zero_init_final_bn`` is for random weights: with ``start`` the normalisations are as ``start`` has them.

    Raises:
        InvalidValue: None of its weights is trained.
    """
    from hwbench import models
    from hwbench.blocks import zero_final_norms

    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        module: nn.Module = models.network(network, dropout=recipe.dropout)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InvalidValue(f"{network.name}: no weight is trained: all have requires_grad=False")
    if start is not None:
        module.load_state_dict({**module.state_dict(), **start.weights})
    elif recipe.zero_init_final_bn:
        zero_final_norms(module)
    return module
