"""``hwbench train`` and ``hwbench test``: trained weights, and what they are worth."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hwbench.cli.main import app
from hwbench.cli.output import Json, emit, progress, say
from hwbench.errors import InvalidValue, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hwbench.data import ClipSpec, FailurePolicy
    from hwbench.specs import Network
    from hwbench.train import FineTuning, Progress, Recipe, Resources, Start, Trained
    from hwbench.workspace import Workspace

# Fine-tuning moves weights by steps of int8 and no further: a tenth of the rate that networks are trained with.
QAT_EPOCHS, QAT_RATE = 2, 0.01
OnError = Annotated[str, typer.Option(help="Unreadable videos: raise, skip or replace.")]
Device = Annotated[str, typer.Option(help="Where to compute: cpu, cuda, or auto.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of torch; default: all cores.")]
Workers = Annotated[int | None, typer.Option(min=0, help="Processes that read videos; default: by data and cores.")]
Clips = Annotated[int, typer.Option(min=1, help="Test clips per video.")]
Crops = Annotated[int, typer.Option(min=1, max=3, help="Test crops per clip: 1 or 3.")]


@app.command()
def train(
    architecture: Annotated[
        str, typer.Argument(help="A printed key, STUDY:best, or zoo:NAME; with --qat a checkpoint.")
    ],
    data: Annotated[
        str | None,
        typer.Option("--data", help="synthetic (default), a folder of class folders, or a list; with --qat as before."),
    ] = None,
    qat: Annotated[
        bool,
        typer.Option("--qat", help="Fine-tune a checkpoint with the rounding of int8 in it, then export it."),
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Passes over the training videos; default: 16, with --qat 2.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Clips per step.")] = 16,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate; default: 0.1, with --qat 0.01.")] = None,
    optimizer: Annotated[str, typer.Option(help="sgd or adamw.")] = "sgd",
    precision: Annotated[str, typer.Option(help="Arithmetic of training: fp32 or bf16.")] = "fp32",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of weights, order, clips, dropout; default: 0, with --qat as before.")
    ] = None,
    clips: Clips = 1,
    crops: Crops = 1,
    variant: Annotated[str, typer.Option(help="With --qat: layout of convolutions over time.")] = "auto",
    span: Annotated[str | None, typer.Option(help='Length of a clip, such as "2 s".')] = None,
    stride: Annotated[int | None, typer.Option(min=1, help="Frames from one of a clip to the next.")] = None,
    on_error: OnError = "raise",
    device: Device = "auto",
    threads: Threads = None,
    workers: Workers = None,
    weights: Annotated[Path | None, typer.Option(help="A file of published weights to begin with.")] = None,
    new_head: Annotated[
        bool, typer.Option("--new-head", help="Leave out the last layer of --weights, which has other classes.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; default: one below runs/.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh/--resume", help="Start over, or go on where a run stopped.")] = False,
    as_json: Json = False,
) -> None:
    """Train a network and write a checkpoint.

    With --qat a trained network goes on for a few epochs with the rounding of int8 in it, in the form that is deployed:
    normalisation is folded first, so its statistics stay. Export the result with --precision int8. Interrupted at any
    moment, the same command goes on where it stopped; after the end it gives the stored result.
    """
    from hwbench.data import SYNTHETIC, FailurePolicy
    from hwbench.train import FineTuning, Recipe
    from hwbench.workspace import Workspace

    if new_head and weights is None:
        raise UsageError("--new-head leaves out the last layer of given weights; add --weights FILE")
    workspace = Workspace.find()
    tuning = None
    if qat:
        tuning = FineTuning.of(checkpoint_file(architecture), variant)
        seed, data = _as_before(tuning, seed, span, stride), data or tuning.checkpoint.source
    elif variant != "auto":
        raise UsageError("--variant goes with --qat; without it the original form is trained, which has no variants")
    recipe = Recipe(
        epochs=epochs or (QAT_EPOCHS if qat else Recipe.epochs),
        batch_size=batch_size,
        learning_rate=lr if lr is not None else (QAT_RATE if qat else Recipe.learning_rate),
        optimizer=optimizer,
        precision=precision,
        seed=seed or 0,
        test_clips=clips,
        test_crops=crops,
    )
    data = data or SYNTHETIC
    result = train_network(
        workspace,
        architecture,
        recipe,
        data=data,
        tuning=tuning,
        span=span,
        stride=stride,
        policy=FailurePolicy.parse(on_error),
        resources=_resources(device, threads, workers, data),
        weights=weights,
        new_head=new_head,
        out=out,
        fresh=fresh,
    )
    if result.finished_before:
        say(f"{result.checkpoint.path}: was finished before; this is the stored result (start over with --fresh)")
    _say_failures(result.checkpoint.unreadable)
    metrics = result.checkpoint.metrics
    values: dict[str, Any] = {
        "checkpoint": str(result.checkpoint.path),
        "architecture": result.checkpoint.network.name,
        "top1": metrics["top1"],
        "top5": metrics["top5"],
        "chance": 1 / len(result.checkpoint.classes),
        "epochs": int(metrics["epochs"]),
        "steps": int(metrics["steps"]),
        "seconds": round(metrics["seconds"], 1),
        "unreadable": sorted(result.checkpoint.unreadable),
    }
    if tuning is not None:
        values["top1_start"] = tuning.checkpoint.metrics["top1"]
    emit(values, as_json=as_json)


def checkpoint_file(text: str) -> Path:
    """The checkpoint that is meant; a folder means the one of the run in it."""
    path = Path(text)
    return path / "checkpoint.pt" if path.is_dir() else path


def _as_before(tuning: FineTuning, seed: int | None, span: str | None, stride: int | None) -> int:
    """The seed of fine-tuning: that of the training before, so that no validation video becomes a training video."""
    before = tuning.checkpoint.recipe.seed
    if seed not in (None, before):
        raise InvalidValue(
            f"--seed: {tuning.checkpoint.path} was trained with seed {before}, which also split its data into training "
            "and validation videos; leave --seed out"
        )
    if span is not None or stride is not None:
        raise UsageError("--qat cuts clips as the checkpoint did; leave out --span and --stride")
    return before


def train_network(
    workspace: Workspace,
    architecture: str,
    recipe: Recipe,
    *,
    data: str = "synthetic",
    tuning: FineTuning | None = None,
    span: str | None = None,
    stride: int | None = None,
    policy: FailurePolicy | None = None,
    resources: Resources | None = None,
    weights: Path | None = None,
    new_head: bool = False,
    out: Path | None = None,
    fresh: bool = False,
) -> Trained:
    """Trains a network by name on data by name, or goes on where that stopped; a bar goes to stderr.

    Args:
        workspace: Holds studies, spaces, the synthetic set and runs.
        architecture: A printed key, ``STUDY:best`` or ``zoo:NAME``; its head gets as many classes as the data has.
        recipe: How.
        data: ``synthetic``, a folder of class folders, or a list file.
        tuning: What goes on with the rounding of int8 in it; its network is trained, and ``architecture`` not read.
        span: Length of a clip, with a unit.
        stride: Frames from one of a clip to the next.
        policy: What happens with unreadable videos; default: raise.
        resources: Device, threads and reader processes; default: all cores.
        weights: Published weights to begin with.
        new_head: Leave out their last layer.
        out: Folder of the run; default: one below ``runs/``.
        fresh: Start over.

    Raises:
        UnknownName: No such architecture, study or data.
        VideoError: A video cannot be read, or no class is left.
        InvalidFile: The folder holds another run, or the weights are those of another network.
        InvalidValue: The weights have another number of classes than the data.
    """
    from hwbench.data import FailurePolicy
    from hwbench.train import open_data, run_folder, start_over
    from hwbench.train import train as run

    start: Start | FineTuning | None = tuning
    if tuning is None:
        network = _network(workspace, architecture, data, recipe.seed)
        clip = _clip(network, span, stride)
        start = None if weights is None else _start(weights, network, data, new_head)
    else:
        network, clip = tuning.checkpoint.network, tuning.checkpoint.clip
    size = (network.input.t, network.input.h, network.input.w)
    opened = open_data(workspace, data, size, recipe, clip=clip, policy=policy or FailurePolicy.RAISE)
    folder = out or run_folder(workspace, recipe, network, opened, start)
    if fresh:
        start_over(folder)
    resources = resources or _resources("auto", None, None, data)
    with _step_bar(network.name) as step:
        return run(recipe, network, opened, folder, start=start, resources=resources, progress=step)


@app.command("test")
def evaluate(
    checkpoint: Annotated[Path, typer.Argument(help="A file that hwbench train wrote.")],
    data: Annotated[str | None, typer.Option(help="As for train; default: what it was trained on.")] = None,
    clips: Clips = 10,
    crops: Crops = 3,
    on_error: OnError = "raise",
    device: Device = "auto",
    threads: Threads = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Test a checkpoint on the validation videos, averaging scores over clips and crops of each video."""
    from hwbench.data import FailurePolicy
    from hwbench.train import load_checkpoint, score
    from hwbench.workspace import Workspace

    workspace = Workspace.find()
    policy = FailurePolicy.parse(on_error)
    source = data or load_checkpoint(checkpoint)[0].source
    resources = _resources(device, threads, workers, source)
    with _batch_bar("test") as step:
        stored, scores = score(
            checkpoint,
            workspace,
            source=source,
            views=(clips, crops),
            policy=policy,
            resources=resources,
            progress=step,
        )
    _say_failures(scores.failures.causes)
    values: dict[str, Any] = {
        "checkpoint": str(checkpoint),
        "architecture": stored.network.name,
        "data": source,
        "top1": scores.top1,
        "top5": scores.top5,
        "chance": 1 / len(stored.classes),
        "videos": scores.videos,
        "views": clips * crops,
        "unreadable": sorted(scores.failures.causes),
    }
    emit(values, as_json=as_json)


def _network(workspace: Workspace, text: str, data: str, seed: int) -> Network:
    """The network that was named, with as many classes as the data has."""
    from hwbench.data import open_splits
    from hwbench.spaces import resolve

    network = resolve(workspace, text, 1)  # an unknown name is better known before videos are made or listed
    return network.with_classes(len(open_splits(workspace, data, seed=seed).train.classes))


def _start(path: Path, network: Network, data: str, new_head: bool) -> Start:
    """Published weights as the beginning of a run."""
    from hwbench.models import read_published
    from hwbench.train import Start

    published = read_published(path)
    for doubt in published.doubts:
        say(f"{path}: {doubt}")
    if not new_head and published.num_classes != network.num_classes:
        raise InvalidValue(
            f"{path} has {published.num_classes} classes, {data} has {network.num_classes}; add --new-head to begin "
            "with all but its last layer"
        )
    without = " without the last layer" if new_head else ""
    return Start(published.of(network, head=not new_head), f"sha256 {published.sha256}{without}")


def _clip(network: Network, span: str | None, stride: int | None) -> ClipSpec | None:
    from hwbench.data import ClipSpec
    from hwbench.units import parse_duration

    if span is None and stride is None:
        return None
    span_s = None if span is None else parse_duration(span, name="--span")
    return ClipSpec(network.input.t, stride, span_s)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _resources(device: str, threads: int | None, workers: int | None, data: str) -> Any:
    from hwbench.data import SYNTHETIC
    from hwbench.train import Resources

    if workers is None:
        # The synthetic set stays in memory after the first pass; large sets keep other cores busy with decoding.
        workers = 0 if data == SYNTHETIC else min(8, max(1, cores() - 1))
    return Resources(device, threads or cores(), workers)


@contextmanager
def _step_bar(name: str) -> Iterator[Callable[[Progress], None]]:
    with progress() as bar:
        task = bar.add_task(f"train {_short(name)}", total=None, rate="", note="")

        def show(at: Progress) -> None:
            top1 = "" if at.top1 is None else f"  top-1 {at.top1:.3f}"
            note = f"epoch {at.epoch}/{at.epochs}  loss {at.loss:.3f}{top1}"
            speed = bar.tasks[task].speed
            rate = "" if speed is None else f"{speed:.1f} steps/s"
            bar.update(task, total=at.steps, completed=at.step, note=note, rate=rate)

        yield show


@contextmanager
def _batch_bar(name: str) -> Iterator[Callable[[int, int], None]]:
    with progress() as bar:
        task = bar.add_task(name, total=None, rate="", note="")
        yield lambda done, total: bar.update(task, total=total, completed=done)


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{re.split('[:,]', name)[0]}:…"


def _say_failures(causes: Mapping[str, str]) -> None:
    if causes:
        say("\n".join((f"{len(causes)} videos could not be read:", *(causes[path] for path in sorted(causes)))))
