"""``hwbench export``: from a checkpoint, or a network by name, to a checked file and its manifest."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from hwbench.cli.layouts import fastest_on
from hwbench.cli.main import app
from hwbench.cli.output import Json, emit, print_table, progress, say
from hwbench.cli.train import OnError, Threads
from hwbench.errors import InvalidValue, UsageError

if TYPE_CHECKING:
    from hwbench.deploy import DeployedModel, Int8, Original, Quantization, Watch
    from hwbench.runtimes import Runtime
    from hwbench.runtimes.executorch.fake import FakeQuantized
    from hwbench.specs import Precision
    from hwbench.workspace import Workspace

RANDOM = "random"
_STAGES = {
    "calibrate": "calibration clips",
    "blocks": "look at blocks",
    "observers": "compare observers",
    "build": "build",
    "check": "check against the original",
}


@app.command()
def export(
    model: Annotated[
        str,
        typer.Argument(
            help="A checkpoint, zoo:NAME, STUDY:best, a printed architecture, torchvision:MODEL, or "
            "package.module:function of a function that makes a torch module."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model and manifest.json; an export there is replaced.")],
    precision: Annotated[str, typer.Option(help="int8 or fp32.")] = "int8",
    runtime: Annotated[str, typer.Option(help="executorch (.pte), onnx (.onnx) or torchscript (.ts).")] = "executorch",
    calibrate: Annotated[
        str | None, typer.Option(help="Data to calibrate int8 with; of a checkpoint: its own training videos.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Data to validate on; default: what the checkpoint was trained on.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Of a network by name: a file of published weights (torchvision, own: a state dict), or random."
        ),
    ] = None,
    variant: Annotated[str, typer.Option(help="Layout of convolutions over time.")] = "auto",
    device: Annotated[
        str | None, typer.Option(help="Take the layout that is fastest on this device, by the rows of its table.")
    ] = None,
    classes: Annotated[int | None, typer.Option(min=1, help="Classes of the head of a network by name.")] = None,
    input: Annotated[
        str | None, typer.Option(help="Clip of a torchvision or own model: NxCxTxHxW such as 1x3x8x112x112.")
    ] = None,
    calibration_clips: Annotated[int, typer.Option(min=1, help="Training videos to calibrate with, a clip each.")] = 32,
    observer: Annotated[
        str | None,
        typer.Option(
            help="How ranges are found after training: histogram, minmax or moving-average; default: histogram, or the "
            "best of the three where its parity does not do."
        ),
    ] = None,
    keep_accuracy: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=100.0,
            metavar="POINTS",
            help="Leave blocks in fp32, as few as it takes to lose no more top-1.",
        ),
    ] = None,
    fp32_block: Annotated[
        list[str] | None, typer.Option(help="Leave this block in fp32 (repeatable); --blocks prints the names.")
    ] = None,
    blocks: Annotated[
        bool,
        typer.Option("--blocks", help="Look at each block: what int8 does to it, and it to the logits."),
    ] = False,
    videos: Annotated[int | None, typer.Option(min=1, help="Validate on so many videos; default: all.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the calibration videos and of random weights.")] = 0,
    on_error: OnError = "raise",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Convert, quantise and check a model; write model.pte (.onnx, .ts), manifest.json, and how to run it in RUN.md.

    The file is run in a process of its own beside the original in fp32: it is written only if both agree. With trained
    weights top-1 is measured before and after.

    --keep-accuracy 1 allows the int8 file to lose one point of top-1 on the validation videos: the most sensitive
    blocks stay in fp32 until it loses no more, and what they cost in milliseconds is measured on this machine.
    """
    from hwbench.data import FailurePolicy
    from hwbench.deploy import is_foreign
    from hwbench.runtimes import get
    from hwbench.specs import Network, Precision
    from hwbench.workspace import Workspace

    start = time.monotonic()
    workspace = Workspace.find()
    wanted, policy, engine = Precision.parse(precision), FailurePolicy.parse(on_error), get(runtime)
    int8 = _int8(wanted, observer, keep_accuracy, fp32_block, blocks)
    checkpoint = _checkpoint(model)
    if checkpoint is not None and checkpoint.is_file() and (weights is not None or classes is not None):
        raise InvalidValue(
            f"{model} is a checkpoint and has its weights and classes; leave out --weights and --classes"
        )
    if input is not None and not (checkpoint is None and is_foreign(model)):
        raise InvalidValue(f"--input: {model} has an input of its own; leave it out")
    with torch_threads(threads) as count, bars() as watch:
        if checkpoint is None and is_foreign(model):
            original = _foreign(model, weights, classes, input, calibrate or data, seed)
        elif checkpoint is not None:
            original = original_of(checkpoint)
        else:
            original = _named(workspace, model, weights, classes, calibrate or data, seed)
        if device is not None:
            if not isinstance(original.network, Network):
                raise InvalidValue(f"--device: {model} has no blocks that a table could have rows of; give --variant")
            variant = fastest_on(workspace, device, original.network, wanted, variant)
        deployed = export_original(
            workspace,
            original,
            out,
            wanted,
            calibrate=calibrate,
            data=data,
            variant=variant,
            calibration_clips=calibration_clips,
            videos=videos,
            seed=seed,
            policy=policy,
            threads=count,
            watch=watch,
            runtime=engine,
            int8=int8,
        )
    if not as_json:
        _print_blocks(deployed)
    _say_observer(deployed)
    values = {**summary(deployed), "seconds": round(time.monotonic() - start, 1)}
    emit(values, as_json=as_json)
    say(f"next: hwbench bench {deployed.path} --device local")


def original_of(path: Path) -> Original:
    """The network in a checkpoint as something to export.

    Raises:
        InvalidFile: No checkpoint there, or a damaged one.
    """
    from hwbench.deploy import FineTuned, trained
    from hwbench.train import build, build_start, load_checkpoint

    checkpoint, weights = load_checkpoint(path)
    recipe, module = checkpoint.recipe, build(checkpoint, weights)
    tuned = None
    if checkpoint.quantization is not None:
        how = checkpoint.quantization
        start, rounding = build_start(checkpoint, weights), cast("FakeQuantized", module)
        tuned = FineTuned(start, rounding.converted, how.variant, how.fp32_blocks)
    return trained(
        checkpoint.network,
        module,
        classes=checkpoint.classes,
        clip=checkpoint.clip,
        normalisation=checkpoint.normalisation,
        data=checkpoint.source,
        data_seed=recipe.seed,
        views=(recipe.test_clips, recipe.test_crops),
        sha256=checkpoint.sha256,
        recipe=asdict(recipe),
        fine_tuned=tuned,
    )


def export_original(
    workspace: Workspace,
    original: Original,
    out: Path,
    precision: Precision,
    *,
    calibrate: str | None = None,
    data: str | None = None,
    variant: str = "auto",
    calibration_clips: int = 32,
    videos: int | None = None,
    seed: int = 0,
    policy: Any = None,
    threads: int = 1,
    watch: Watch | None = None,
    runtime: Runtime | None = None,
    int8: Int8 | None = None,
) -> DeployedModel:
    """Exports with data by name: calibrates on ``calibrate``, validates on ``data``, each by default what the original
    was trained on; with random weights both are by default nothing.

    Raises:
        What ``hwbench.deploy.export``, ``open_calibration`` and ``open_validation`` raise.
    """
    from hwbench.data import FailurePolicy
    from hwbench.deploy import export as run
    from hwbench.deploy import meter, open_calibration, open_validation
    from hwbench.specs import Precision

    policy = policy or FailurePolicy.RAISE
    calibrate, data = calibrate or data or original.data, data or original.data or calibrate
    calibration = validation = None
    if calibrate is not None and precision is Precision.INT8:
        calibration = open_calibration(
            workspace, calibrate, original, count=calibration_clips, seed=seed, policy=policy
        )
    if data is not None:
        # without labels that mean something a few clips show the parity as well
        count = videos if original.weights.trained else videos or _UNTRAINED_VIDEOS
        validation = open_validation(workspace, data, original, count=count, policy=policy)
    return run(
        original,
        out,
        precision=precision,
        calibration=calibration,
        validation=validation,
        variant=variant,
        threads=threads,
        progress=watch,
        runtime=runtime,
        int8=int8,
        meter=meter(workspace),
    )


_UNTRAINED_VIDEOS = 16


def summary(deployed: DeployedModel) -> dict[str, Any]:
    """What ``--json`` prints of an export."""
    from hwbench.deploy import MANIFEST

    manifest = deployed.manifest
    accuracy, parity = manifest.accuracy, manifest.parity
    return {
        "model": str(deployed.path),
        "manifest": str(deployed.path.with_name(MANIFEST)),
        "architecture": manifest.architecture.name,
        "precision": manifest.precision.value,
        "runtime": manifest.runtime,
        "version": manifest.runtime_version,
        "variant": manifest.variant,
        "weights": manifest.weights.kind,
        "delegates": manifest.delegation.delegates,
        "undelegated": dict(manifest.delegation.undelegated),
        "sqnr_db": round(parity.sqnr_db, 2),
        "max_abs_error": parity.max_abs_error,
        "same_top1": parity.same_top1,
        "inputs": parity.inputs,
        "top1_before": accuracy.top1_before,
        "top1_after": accuracy.top1_after,
        "top1_reason": accuracy.reason,
        "videos": accuracy.videos,
        "calibrated_on": manifest.calibration and f"{manifest.calibration.source} ({manifest.calibration.split})",
        "calibration_clips": manifest.calibration and manifest.calibration.clips,
        "bytes": manifest.bytes,
        "sha256": manifest.sha256,
        **_quantized(manifest.quantization),
    }


def _quantized(how: Quantization | None) -> dict[str, Any]:
    """How a file became int8, as ``--json`` prints it; nothing for fp32."""
    if how is None:
        return {}
    cost = how.cost
    return {
        "method": how.method,
        "observer": how.observer,
        "observers": {name: round(found, 2) for name, found in how.observers.items()},
        "fp32_blocks": list(how.fp32_blocks),
        "top1_int8": how.top1_int8,
        "int8_ms": cost and cost.int8_ms,
        "mixed_ms": cost and cost.mixed_ms,
        "cost_ms": cost and cost.difference_ms,
        "cost_reason": cost and cost.reason,
        "blocks": [asdict(block) for block in how.blocks],
    }


def _int8(
    precision: Precision, observer: str | None, points: float | None, fp32_blocks: list[str] | None, inspect: bool
) -> Int8 | None:
    """What the options say about int8; None for fp32.

    Raises:
        UsageError: They say something about fp32.
    """
    from hwbench.runtimes.executorch.scheme import Scheme
    from hwbench.specs import Precision

    if precision is not Precision.INT8:
        if observer is not None or points is not None or fp32_blocks or inspect:
            raise UsageError("--observer, --keep-accuracy, --fp32-block and --blocks go with --precision int8")
        return None
    from hwbench.deploy import Int8

    named = tuple(fp32_blocks or ())
    if observer is not None:
        Scheme(observer, named)  # an unknown name is better told before anything is read
    return Int8(observer, named, None if points is None else points / 100, inspect)


def _print_blocks(deployed: DeployedModel) -> None:
    how = deployed.manifest.quantization
    if how is not None and how.blocks:
        stays = dict.fromkeys(how.fp32_blocks, "fp32")
        rows = [(b.name, f"{b.sqnr_db:.1f}", f"{b.alone_db:.1f}", stays.get(b.name, "")) for b in how.blocks]
        print_table(("block", "output, dB", "logits, it alone in int8, dB", ""), rows)


def _say_observer(deployed: DeployedModel) -> None:
    """Which observer was taken, and why not histograms, where there was a choice."""
    how = deployed.manifest.quantization
    if how is not None and how.observers:
        rest = ", ".join(f"{name} {found:.1f} dB" for name, found in how.observers.items() if name != how.observer)
        say(
            f"ranges by {how.observer}: {how.observers[how.observer or '']:.1f} dB where {rest} (--observer says which)"
        )


def _checkpoint(model: str) -> Path | None:
    """The file that is meant, or None where a name is; a folder means the checkpoint of the run in it."""
    path = Path(model)
    if path.is_dir():
        return path / "checkpoint.pt"
    # A name has a colon and no ending of its own; anything else can only be meant as a file.
    return path if path.is_file() or ":" not in model else None


def _named(
    workspace: Workspace, model: str, weights: str | None, classes: int | None, data: str | None, seed: int
) -> Original:
    """A network by name with the weights that are asked for."""
    from hwbench.data import SYNTHETIC, default_clip
    from hwbench.deploy import randomly_weighted
    from hwbench.spaces import resolve
    from hwbench.specs.network import DEFAULT_CLASSES

    if weights not in (None, RANDOM) and not Path(weights).is_file():
        raise InvalidValue(
            f"--weights: expected the file of published weights, or random; got {weights!r}, which is no file. Trained "
            "weights come as a checkpoint"
        )
    if weights not in (None, RANDOM):
        return _published(workspace, model, Path(weights), classes, data)
    network = resolve(workspace, model, classes if _card(model) else classes or DEFAULT_CLASSES)
    if weights is None:
        raise UsageError(
            f"{model} is a network without weights. {_where(workspace, model)}Train it: hwbench train {model} --data "
            "DATA, and export the checkpoint; or export it with --weights random, which is as fast and knows nothing"
        )
    return randomly_weighted(network, default_clip(data or SYNTHETIC, network.input.t), seed=seed)


def _foreign(
    model: str, weights: str | None, classes: int | None, input: str | None, data: str | None, seed: int
) -> Original:
    """A model of torchvision, or one that a function of the user's makes, with the weights that are asked for."""
    import torch

    from hwbench.data import SYNTHETIC, default_clip
    from hwbench.deploy import foreign_model, foreign_original
    from hwbench.specs import TensorSpec

    if weights not in (None, RANDOM) and not Path(weights).is_file():
        raise InvalidValue(
            f"--weights: expected the file of a state dict, or random; got {weights!r}, which is no file"
        )
    if weights is None and model.strip().startswith("torchvision:"):
        raise UsageError(
            f"{model} is a network without weights; add --weights FILE with its state dict, or --weights random, which "
            "is as fast and knows nothing"
        )
    given = None if input is None else TensorSpec.parse(input)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = foreign_model(model, classes)
    clip = given or made.input
    if clip is None:
        raise UsageError(f"{model}: say what clip it takes: --input NxCxTxHxW such as 1x3x8x112x112")
    if (clip.n, clip.c) != (1, 3):
        raise InvalidValue(f"--input: expected one clip of three colours, 1x3xTxHxW, got {clip.key}")
    path = Path(weights) if weights not in (None, RANDOM) else None
    frames = default_clip(data or SYNTHETIC, clip.t)
    return foreign_original(made, frames, clip, path, seed if weights == RANDOM else None)


def _published(workspace: Workspace, model: str, path: Path, classes: int | None, data: str | None) -> Original:
    """A network by name with published weights; clips are cut as its card says."""
    from hwbench.data import SYNTHETIC, ClipSpec, default_clip
    from hwbench.deploy import published
    from hwbench.models import read_published
    from hwbench.spaces import load_card, resolve

    weights = read_published(path)
    for doubt in weights.doubts:
        say(f"{path}: {doubt}")
    if classes not in (None, weights.num_classes):
        raise InvalidValue(f"--classes: {path} has {weights.num_classes} classes, got {classes}; leave it out")
    network = resolve(workspace, model, weights.num_classes)
    card = _card(model)
    frames = network.input.t
    if card is None:
        return published(network, weights, default_clip(data or SYNTHETIC, frames))
    return published(network, weights, ClipSpec(frames, stride=load_card(workspace, card).sample_rate))


def _card(model: str) -> str | None:
    """The name of the zoo card that is meant."""
    head, _, tail = model.strip().partition(":")
    return tail if head == "zoo" else None


def _where(workspace: Workspace, model: str) -> str:
    """Where published weights of a network lie, as a sentence."""
    from hwbench.spaces import load_card

    card = _card(model)
    weights = None if card is None else load_card(workspace, card).weights
    return "" if weights is None else f"Published weights: fetch {weights.url} and add --weights FILE. "


@contextmanager
def torch_threads(threads: int | None) -> Iterator[int]:
    """Sets torch's threads for a while."""
    from hwbench.cli.train import _resources

    resources = _resources("cpu", threads, 0, "")
    with resources.applied():
        yield resources.threads


@contextmanager
def bars() -> Iterator[Watch]:
    """A bar on stderr for each stage."""
    with progress() as display:
        tasks: dict[str, Any] = {}

        def show(at: Any) -> None:
            if at.stage not in tasks:
                tasks[at.stage] = display.add_task(_STAGES[at.stage], total=at.total, rate="", note="")
            display.update(tasks[at.stage], completed=at.done, total=at.total)

        yield show
