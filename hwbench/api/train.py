"""``hwbench.train``: from a network by name and data by name to a checkpoint."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench import lookup
from hwbench.api.listener import SILENT, Listener, StageProgress
from hwbench.api.models import card_name, check_made_by, checkpoint_file, is_own_function, resolve_model
from hwbench.api.reading import DECODER, RGB, check_modality, clip_of, reading_of
from hwbench.api.resources import resources_for
from hwbench.api.starting_weights import GivenWeights, check_own_weights, own_normalisation
from hwbench.api.train_request import RAISE
from hwbench.api.train_request import TrainRequest as TrainRequest
from hwbench.api.zoo import PUBLISHED, published_weights
from hwbench.errors import InvalidValue, WorkspaceError
from hwbench.interpreter import cores

if TYPE_CHECKING:
    from pandas import DataFrame

    from hwbench.data import ClipSpec, FailurePolicy, Reading, Splits
    from hwbench.data.decoders import Decoder
    from hwbench.specs import Network
    from hwbench.training import Checkpoint, FineTuning, Recipe, Resources, StartingWeights, Trained, TrainingProgress
    from hwbench.training.processes import World
    from hwbench.training.teacher import Teacher
    from hwbench.workspace import Workspace


@dataclass(frozen=True)
class TrainResult:
    """A trained network: its file, and what it is worth on the validation videos.

    Attributes:
        checkpoint: The file; its folder is that of the run.
        architecture: The name of the network.
        top1: Share of validation videos whose best class is the right one.
        top5: Share whose right class is among the best five.
        chance: Top-1 of guessing: the share of the classes that a validation video has, on average.
        epochs: Passes over the training videos.
        steps: Steps of the optimizer.
        seconds: Wall time of all parts of the run.
        unreadable: Videos that could not be read.
        top1_start: Top-1 of the checkpoint that fine-tuning started from; None without fine-tuning, and where that
            was tested on other videos or views.
        mean_ap: Mean average precision over the classes; None where a video has one class.
        finished_before: Nothing was left to train, the stored result is given back.
    """

    checkpoint: Path
    architecture: str
    top1: float
    top5: float
    chance: float
    epochs: int
    steps: int
    seconds: float
    unreadable: tuple[str, ...]
    top1_start: float | None = None
    mean_ap: float | None = None
    finished_before: bool = False

    @classmethod
    def of(cls, trained: Trained, tuning: FineTuning | None = None) -> TrainResult:
        """The result of a run, and of what it started from."""
        stored, metrics = trained.checkpoint, trained.checkpoint.metrics
        return cls(
            checkpoint=stored.path,
            architecture=stored.network.name,
            top1=metrics["top1"],
            top5=metrics["top5"],
            chance=metrics.get("chance", 1 / len(stored.classes)),
            epochs=int(metrics["epochs"]),
            steps=int(metrics["steps"]),
            seconds=round(metrics["seconds"], 1),
            unreadable=tuple(sorted(stored.unreadable)),
            top1_start=None if tuning is None else tuning.top1_before(stored),
            mean_ap=metrics.get("mean_ap"),
            finished_before=trained.finished_before,
        )

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench train --json`` prints."""
        values: dict[str, Any] = {
            "checkpoint": str(self.checkpoint),
            "architecture": self.architecture,
            "top1": self.top1,
            "top5": self.top5,
            "chance": self.chance,
            "epochs": self.epochs,
            "steps": self.steps,
            "seconds": self.seconds,
            "unreadable": list(self.unreadable),
        }
        more = {"top1_start": self.top1_start, "mean_ap": self.mean_ap}
        return values | {key: value for key, value in more.items() if value is not None}

    def to_frame(self) -> DataFrame:
        """The log of the run: one row for each step and for each epoch, as ``metrics.jsonl`` has them.

        ``event`` is ``step`` (``loss``, ``learning_rate`` of one step) or ``epoch`` (``top1``, ``top5``, ``videos``).

        Raises:
            InvalidFile: The log is not in the folder of the run any more.
        """
        from pandas import DataFrame

        from hwbench.training.log import read_metrics

        return DataFrame(read_metrics(self.checkpoint.parent)).drop(columns="unreadable", errors="ignore")


def train(
    request: TrainRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> TrainResult:
    """Trains a network, or goes on where a run stopped; after the end gives the stored result.

    Args:
        request: What, on what, and how.
        listener: Hears each step (``trained`` and ``progress``), and which videos could not be read.
        workspace: Holds studies, spaces, the synthetic set and runs; default: the one around the current folder.

    Raises:
        What ``train_network`` raises; with ``qat`` also InvalidFile or InvalidValue where no fine-tuning can start from
        the checkpoint.
    """
    from hwbench.training.processes import joined

    # With --fresh the same command would delete what was trained once more.
    after = ("without --fresh " if request.fresh else "") + "the same command goes on from the last stored step"
    with joined(request.device, after) as world:
        return _train(request, listener, workspace, world)


def _train(
    request: TrainRequest, listener: Listener, workspace: Workspace | str | Path | None, world: World
) -> TrainResult:
    from hwbench.data import SYNTHETIC, FailurePolicy
    from hwbench.models.published import EXPECTED
    from hwbench.spaces import load_named
    from hwbench.training import FineTuning
    from hwbench.training.checkpoint import find_checkpoint
    from hwbench.training.teacher import Teacher
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    if request.made_by is not None:
        for name in request.made_by.split(","):
            load_named(name.strip())
    tuning = FineTuning.of(checkpoint_file(request.architecture), request.variant) if request.qat else None
    teacher = None if request.teacher is None else Teacher.of(checkpoint_file(str(request.teacher)))
    before = [] if tuning is None else [tuning.checkpoint]
    for own in before if teacher is None else [*before, teacher.checkpoint]:
        check_made_by(request.made_by, str(own.path), own.network.blocks, own.network.input)
    if tuning is not None:
        check_modality(request.modality, tuning.checkpoint)
    weights = request.weights
    if weights is not None and weights != Path(PUBLISHED):
        weights = checkpoint_file(str(weights))
    if weights is not None and request.modality == RGB and lookup.is_file(weights):
        begun = find_checkpoint(weights, EXPECTED)
        if begun is not None:
            check_modality(request.modality, begun)
    data = request.data or (SYNTHETIC if tuning is None else tuning.checkpoint.source)
    trained = train_network(
        workspace,
        request.architecture,
        _recipe(request, tuning),
        data=data,
        tuning=tuning,
        span=request.span,
        stride=request.stride,
        policy=FailurePolicy.parse(request.on_error),
        reading=reading_of(request.decoder, request.decoded_cache, request.modality),
        teacher=teacher,
        resources=shared_resources(data, request.device, request.threads, request.workers, request.cuda_graphs),
        world=world,
        tensorboard=request.tensorboard,
        weights=weights,
        new_head=request.new_head,
        out=request.out,
        fresh=request.fresh,
        listener=listener,
        causal=request.causal,
    )
    result = TrainResult.of(trained, tuning)
    if result.finished_before:
        listener.say(f"{result.checkpoint}: was finished before; this is the stored result (start over with --fresh)")
        if trained.other_validation:
            listener.say(_other_validation(trained.checkpoint, data, request))
    say_unreadable(listener, trained.checkpoint.unreadable)
    return result


def train_network(
    workspace: Workspace,
    architecture: str,
    recipe: Recipe,
    *,
    data: str = "synthetic",
    tuning: FineTuning | None = None,
    teacher: Teacher | None = None,
    span: str | None = None,
    stride: int | None = None,
    policy: FailurePolicy | None = None,
    reading: Reading | None = None,
    resources: Resources | None = None,
    world: World | None = None,
    tensorboard: bool = False,
    weights: Path | None = None,
    new_head: bool = False,
    out: Path | None = None,
    fresh: bool = False,
    listener: Listener = SILENT,
    causal: bool = False,
) -> Trained:
    """Trains a network by name on data by name, or goes on where that stopped.

    Args:
        workspace: Holds studies, spaces, the synthetic set and runs.
        architecture: A printed key, ``STUDY:best`` or ``zoo:NAME``; its head gets as many classes as the data has.
        recipe: How.
        data: ``synthetic``, ``synthetic:NAME``, a folder of class folders, a list file, or ``READER:PATH``.
        tuning: What goes on with the rounding of int8 in it; its network is trained, and ``architecture`` not read.
        teacher: A trained network to learn from, too.
        span: Length of a clip, with a unit.
        stride: Frames from one of a clip to the next.
        policy: What happens with unreadable videos; default: raise.
        reading: Who decodes videos, and what is kept of it.
        resources: Device, threads and reader processes; default: all cores.
        world: The processes that train together; default: this one.
        tensorboard: Also write the log for TensorBoard.
        weights: Weights to begin with: published ones, or a checkpoint, which also tells how its clips were read.
        new_head: Leave out their last layer.
        out: Folder of the run; default: one below ``runs/``.
        fresh: Start over; a refused call leaves what is stored as it is.
        listener: Hears each step.
        causal: No frame looks at a later one; of networks of X3D's blocks.

    Raises:
        UnknownName: No such architecture, study or data.
        UnsupportedModule: A network without a causal form.
        VideoError: A video cannot be read, or no class is left.
        InvalidFile: The folder holds another run, or the weights are those of another network.
        InvalidValue: The weights have another number of classes than the data, or are of another kind of network.
        WorkspaceError: No rights or no room; with ``fresh`` it says how the run goes on, where it has begun.
    """
    from hwbench.data import FailurePolicy, Normalisation, PictureSpec, Reading
    from hwbench.spaces import load_card
    from hwbench.training import check_folder, open_data, run_folder
    from hwbench.training import train as run
    from hwbench.training.processes import ALONE
    from hwbench.training.run import interrupted_beside
    from hwbench.training.state import begun_in

    world, reading = world or ALONE, reading or Reading()
    start: StartingWeights | FineTuning | None = tuning
    with world.leader_first():  # the synthetic set is made once
        picture, normalisation, given = PictureSpec(), Normalisation(), None
        if tuning is None:
            # Before videos are made or listed: an unknown name, and weights that are not there.
            network = _before_its_data(workspace, architecture)
            if weights == Path(PUBLISHED) and not weights.is_file():
                weights = published_weights(workspace, architecture, listener)
            splits: Splits | None = None
            if network is None:  # a function of the user's is called with the number of classes that the data has
                check_own_weights(weights, architecture)
                splits = _open_splits(data, workspace, recipe.seed, listener)
                network = resolve_model(workspace, architecture, len(splits.train.classes))
            if weights is not None:
                given = GivenWeights.of(weights, network, listener)
                reading = given.reading(reading)
            splits = splits or _open_splits(data, workspace, recipe.seed, listener)
            network = _with_classes_of(splits, network, workspace, architecture)
            network = (network.causal() if causal else network).with_channels(reading.channels)
            clip, card = asked_clip(network, span, stride), card_name(architecture)
            if given is not None:
                sheet = None if card is None else load_card(workspace, card)
                clip, picture, normalisation = given.seen(network, clip, sheet, listener)
                start = given.start(network, data, new_head)
            elif reading.flow is None:
                normalisation = own_normalisation(network) or normalisation
        else:
            before = tuning.checkpoint
            reading = before.reading(reading)
            network, clip, picture, normalisation = before.network, before.clip, before.picture, before.normalisation
            splits = _open_splits(data, workspace, recipe.seed, listener, before.trained_on)
        opened = open_data(
            workspace,
            data,
            (network.input.t, network.input.h, network.input.w),
            recipe,
            clip=clip,
            policy=policy or FailurePolicy.RAISE,
            picture=picture,
            normalisation=normalisation,
            reading=reading,
            splits=splits,
            fixed=tuning is not None,
        )
        if given is not None:
            given.warn(workspace, data, opened, recipe, listener)
        recipe = recipe.for_targets(several=opened.training.videos.multi_label)
        folder = out or run_folder(workspace, recipe, network, opened, start, teacher)
        check_folder(folder, fresh=fresh)
    if out is None and not folder.exists():
        interrupted = interrupted_beside(folder, recipe, network, opened, start, teacher)
        if interrupted is not None:
            listener.say(
                f"{interrupted}: was interrupted on other videos or clips of {data} than there are now, and does not "
                f"go on; {folder} begins anew"
            )
    goes_on = False

    def begins() -> None:
        nonlocal goes_on
        goes_on = fresh  # what is stored from now on is of this run

    try:
        return run(
            recipe,
            network,
            opened,
            folder,
            start=start,
            teacher=teacher,
            resources=resources or resources_for(data),
            world=world,
            tensorboard=tensorboard,
            fresh=fresh,
            begins=begins,
            progress=_told(listener, network.name, opened.training.decoder),
        )
    except WorkspaceError as error:
        if not (goes_on and begun_in(folder)):
            raise
        raise WorkspaceError(
            f"{error}: with --fresh it begins anew, without --fresh the same command goes on where it stopped"
        ) from error


def shared_resources(
    data: str, device: str, threads: int | None, workers: int | None, cuda_graphs: bool = False
) -> Resources:
    """What one process may use; where torchrun started several on this machine, they divide its cores."""
    from hwbench.data import stays_in_memory
    from hwbench.torchrun import neighbours

    count = neighbours()
    if count > 1:
        share = max(1, cores() // count)
        threads = threads or share
        if workers is None and not stays_in_memory(data):
            workers = max(1, share - 1)
    return resources_for(data, device=device, threads=threads, workers=workers, cuda_graphs=cuda_graphs)


def say_unreadable(listener: Listener, causes: Mapping[str, str]) -> None:
    """Tells which videos could not be read, path -> cause, and why."""
    if causes:
        listener.say(
            "\n".join((f"{len(causes)} videos could not be read:", *(causes[path] for path in sorted(causes))))
        )


def _other_validation(checkpoint: Checkpoint, data: str, request: TrainRequest) -> str:
    """What is said of a stored result where the validation videos of the data, or their labels, have changed."""
    recipe = checkpoint.recipe
    words = [str(checkpoint.path), "--data", data]
    words += ["--clips", str(recipe.test_clips), "--crops", str(recipe.test_crops)]
    words += [] if request.on_error == RAISE else ["--on-error", request.on_error]
    words += [] if request.decoder == DECODER else ["--decoder", request.decoder]
    words += [word for name in _own_model(checkpoint.network, request.made_by) for word in ("--made-by", name)]
    return (
        f"{checkpoint.path}: it was validated on other videos or labels than {data} has now; score it anew: "
        f"hwbench test {shlex.join(words)}"
    )


def _own_model(network: Network, made_by: str | None) -> list[str]:
    """What --made-by takes of a network that a user's function makes; empty for blocks of a space."""
    from hwbench.specs.kinds.by_hand import is_by_hand, model_of
    from hwbench.specs.model_name import ModelName, named_models

    labels = [model_of(block) for block in network.blocks if is_by_hand(block)]
    if not labels:
        return []
    named = [ModelName.parse(text) for text in made_by.split(",")] if made_by else []
    names = [name for name, _ in named_models(labels)] + [str(name) for name in named if name.label in labels]
    # Of one function with several clips, the name with the clip that the network has.
    names.sort(key=lambda name: ModelName.parse(name).input not in (None, network.input))
    return [*names, "package.module:function"][:1]  # a stored result is given back also where no name was given


def _recipe(request: TrainRequest, tuning: FineTuning | None) -> Recipe:
    """The recipe; the seed of fine-tuning is that which split the data before, so that no validation video becomes a
    training video. Test views are those of before unless others are asked for.
    """
    if tuning is None:
        return request.make_recipe()
    before, start = tuning.checkpoint.data_seed, tuning.checkpoint.recipe
    recipe = request.make_recipe(before, (start.test_clips, start.test_crops))
    if recipe.seed != before:
        raise InvalidValue(
            f"--seed: {tuning.checkpoint.path} was trained on data that seed {before} splits into training and "
            "validation videos; leave --seed out"
        )
    return recipe


def _before_its_data(workspace: Workspace, text: str) -> Network | None:
    """The network that ``text`` names, with whatever number of classes; None: a function that the user wrote makes it.

    Raises:
        UnknownName, InvalidValue: There is none, or no such function.
    """
    from hwbench.spaces import load_named

    if is_own_function(text):
        load_named(text)
        return None
    return resolve_model(workspace, text, 1)


def _with_classes_of(splits: Splits, network: Network, workspace: Workspace, text: str) -> Network:
    """The network that ``text`` names, with as many classes as the data has."""
    classes = len(splits.train.classes)
    return network if network.num_classes == classes else resolve_model(workspace, text, classes)


def _open_splits(data: str, workspace: Workspace, seed: int, listener: Listener, trained_on: str = "") -> Splits:
    """The videos of the data, as they were split for a checkpoint; ``listener`` hears what the data lacks."""
    from hwbench.data import open_splits

    splits = open_splits(workspace, data, seed=seed, trained_on=trained_on)
    for note in splits.notes:
        listener.say(note)
    return splits


def asked_clip(network: Network, span: str | None, stride: int | None) -> ClipSpec | None:
    """How clips of a network are cut: as asked for, or as its space chose; None leaves that to the data."""
    from hwbench.data import ClipSpec

    asked = clip_of(network.input.t, span, stride)
    if asked is not None or network.span_s is None:
        return asked
    return ClipSpec(network.input.t, span_s=network.span_s)


def _told(listener: Listener, name: str, decoder: Decoder) -> Callable[[TrainingProgress], None]:
    """Passes each step of a training on, with the rate since the first one; says once where no more videos are kept."""
    from hwbench.data.decoded_cache import saying_refusal

    stage = f"train {_short(name)}"
    listener.progress(StageProgress(stage, 0, None))
    say_refusal = saying_refusal(decoder, listener.say)
    began, first = 0.0, 0

    def tell(at: TrainingProgress) -> None:
        nonlocal began, first
        listener.trained(at)
        say_refusal()
        if not began:
            began, first = time.monotonic(), at.step
        steps, seconds = at.step - first, time.monotonic() - began
        rate = f"{steps / seconds:.1f} steps/s" if steps and seconds else ""
        top1 = "" if at.top1 is None else f"  top-1 {at.top1:.3f}"
        note = f"epoch {at.epoch}/{at.epochs}  loss {at.loss:.3f}{top1}"
        listener.progress(StageProgress(stage, at.step, at.steps, rate, note))

    return tell


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{re.split('[:,]', name)[0]}:…"
