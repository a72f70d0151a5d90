"""What an export starts from: the network that a MODEL argument means, with the weights that are asked for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hwbench import lookup
from hwbench.api.listener import SILENT, Listener
from hwbench.api.models import ModelArgument, card_name, checkpoint_file, resolve_model
from hwbench.api.reading import clip_of
from hwbench.api.zoo import PUBLISHED, published_weights
from hwbench.errors import InvalidValue, UsageError

if TYPE_CHECKING:
    from hwbench.deploy import ExportSource
    from hwbench.runtimes.executorch.fake import FakeQuantized
    from hwbench.specs import TensorSpec
    from hwbench.workspace import Workspace

RANDOM = "random"


@dataclass(frozen=True)
class SourceArguments:
    """What is said of the network to export, beside its name.

    Attributes:
        weights: A file of published weights, of a model from elsewhere of its state dict; ``published``: the file
            that the card of a zoo network names; ``random``; None: none.
        classes: Width of the logits; None: that of the weights, of the model or of its family.
        input: One clip of a model from elsewhere.
        data: Name of the data whose clips it will see; None: the synthetic set.
        seed: Of random weights.
        causal: A network by name is made causal.
        span: Length of a clip of a model from elsewhere, with a unit.
        stride: Frames from one of such a clip to the next.
    """

    weights: str | None = None
    classes: int | None = None
    input: TensorSpec | None = None
    data: str | None = None
    seed: int = 0
    causal: bool = False
    span: str | None = None
    stride: int | None = None

    @property
    def of_clips(self) -> tuple[str, ...]:
        """The options that say what clips a model from elsewhere takes, of those that are given."""
        options = {"--input": self.input, "--span": self.span, "--stride": self.stride}
        return tuple(name for name, value in options.items() if value is not None)

    @property
    def file(self) -> Path | None:
        """The file of weights, where one is asked for."""
        return None if self.weights in (None, RANDOM) else Path(str(self.weights))


def open_source(workspace: Workspace, model: str, given: SourceArguments, listener: Listener = SILENT) -> ExportSource:
    """The network that is to be exported, with its weights.

    Args:
        workspace: Holds spaces, cards and studies.
        model: A checkpoint or the folder of its run, a network by name, or a model from elsewhere.
        given: What else is said of it.
        listener: Hears what is doubtful about the weights, and that mean and std were assumed.

    Raises:
        UsageError: A network without weights, or arguments that are for another kind of model.
        UnknownName: No such space, study, card or model.
        InvalidFile: The checkpoint or the file of weights is damaged, or of another network.
    """
    form = ModelArgument.of(model)
    if form is ModelArgument.CHECKPOINT:
        path = checkpoint_file(model)
        if lookup.is_file(path) and (given.weights is not None or given.classes is not None):
            raise InvalidValue(
                f"{model} is a checkpoint and has its weights and classes; leave out --weights and --classes"
            )
    if form is not ModelArgument.EXTERNAL and given.of_clips:
        if form is ModelArgument.NETWORK:  # a module that Python does not find has no name that is known
            resolve_model(workspace, model, given.classes or 1)
        raise InvalidValue(f"{given.of_clips[0]}: {model} has an input of its own; leave it out")
    if form is ModelArgument.CHECKPOINT:
        return source_of(checkpoint_file(model))
    if form is ModelArgument.EXTERNAL:
        return _external(model, given, listener)
    return _named(workspace, model, given, listener)


def source_of(path: Path) -> ExportSource:
    """The network in a checkpoint as something to export.

    Raises:
        InvalidFile: No checkpoint there, or a damaged one.
    """
    from hwbench.deploy import FineTuned, trained
    from hwbench.training import build, build_start, load_checkpoint

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
        picture=checkpoint.picture,
        data=checkpoint.source,
        data_seed=checkpoint.data_seed,
        views=(recipe.test_clips, recipe.test_crops),
        sha256=checkpoint.sha256,
        recipe=recipe.to_plain(),
        fine_tuned=tuned,
        flow=checkpoint.flow,
        trained_on=checkpoint.trained_on,
    )


def _named(workspace: Workspace, model: str, given: SourceArguments, listener: Listener) -> ExportSource:
    """A network by name with the weights that are asked for."""
    from hwbench.data import SYNTHETIC, default_clip
    from hwbench.deploy import randomly_weighted
    from hwbench.specs.network import DEFAULT_CLASSES

    if given.weights == PUBLISHED:
        given = replace(given, weights=str(published_weights(workspace, model, listener)))
    if given.file is not None and not lookup.is_file(given.file):
        raise InvalidValue(
            f"--weights: expected the file of published weights, published or random; got {given.weights!r}, which is "
            "no file. Trained weights come as a checkpoint"
        )
    if given.file is not None:
        if given.causal:
            raise InvalidValue(
                f"--streaming: published weights of {model} were trained to look at frames to come; train a causal "
                f"network and export its checkpoint: hwbench train {model} --causal --data DATA"
            )
        return _published(workspace, model, given.file, given, listener)
    classes = given.classes if card_name(model) else given.classes or DEFAULT_CLASSES
    network = resolve_model(workspace, model, classes)
    network = network.causal() if given.causal else network
    if given.weights is None:
        raise UsageError(
            f"{model} is a network without weights. {_where(workspace, model)}Train it: hwbench train {model} --data "
            "DATA, and export the checkpoint; or export it with --weights random, which is as fast and knows nothing"
        )
    return randomly_weighted(network, default_clip(given.data or SYNTHETIC, network.input.t), seed=given.seed)


def _external(model: str, given: SourceArguments, listener: Listener) -> ExportSource:
    """A model of torchvision, or one that a function of the user's makes, with the weights that are asked for."""
    import torch

    from hwbench.data import SYNTHETIC, default_clip
    from hwbench.deploy import external_model, foreign_original
    from hwbench.deploy.external import MEAN_AND_STD, STATE_DICT
    from hwbench.models.by_hand import assumed_pixels
    from hwbench.training.checkpoint import find_checkpoint

    if given.file is not None and not lookup.is_file(given.file):
        raise InvalidValue(
            f"--weights: expected the file of a state dict, or random; got {given.weights!r}, which is no file"
        )
    if given.file is not None and find_checkpoint(given.file, STATE_DICT) is not None:
        raise InvalidValue(
            f"--weights: {given.file} is a checkpoint of hwbench, with classes, clip and normalisation of its own; "
            f"export it: hwbench export {shlex.quote(str(given.file))} --made-by {shlex.quote(model)}"
        )
    if given.weights is None and model.strip().startswith("torchvision:"):
        raise UsageError(
            f"{model} is a network without weights; add --weights FILE with its state dict, or --weights random, which "
            "is as fast and knows nothing"
        )
    with torch.random.fork_rng():
        torch.manual_seed(given.seed)
        made = external_model(model, given.classes)
        clip = given.input or made.input
        if clip is None:
            raise UsageError(f"{model}: say what clip it takes: --input NxCxTxHxW such as 1x3x8x112x112")
        made = replace(made, clip=clip_of(clip.t, given.span, given.stride))
        frames = made.clip or default_clip(given.data or SYNTHETIC, clip.t)
        # The first clip draws the weights of lazy layers.
        source = foreign_original(made, frames, clip, given.file, given.seed if given.weights == RANDOM else None)
    if MEAN_AND_STD in source.assumed:
        assumed = source.normalisation
        listener.say(assumed_pixels(model, assumed.mean[0], assumed.std[0]))
    return source


def _published(
    workspace: Workspace, model: str, path: Path, given: SourceArguments, listener: Listener
) -> ExportSource:
    """A network by name with published weights; clips are cut as its card says."""
    from hwbench.data import SYNTHETIC, default_clip
    from hwbench.deploy import published
    from hwbench.models import read_published
    from hwbench.spaces import load_card

    weights = read_published(path)
    for doubt in weights.doubts:
        listener.say(f"{path}: {doubt}")
    if given.classes not in (None, weights.num_classes):
        raise InvalidValue(f"--classes: {path} has {weights.num_classes} classes, got {given.classes}; leave it out")
    network = resolve_model(workspace, model, weights.num_classes)
    card, frames = card_name(model), network.input.t
    if card is None:
        return published(network, weights, default_clip(given.data or SYNTHETIC, frames))
    sheet = load_card(workspace, card)
    return published(network, weights, sheet.clip(frames), sheet.picture(), sheet.normalisation())


def _where(workspace: Workspace, model: str) -> str:
    """Where published weights of a network lie, as a sentence."""
    from hwbench.spaces import load_card

    card = card_name(model)
    weights = None if card is None else load_card(workspace, card).weights
    return "" if weights is None else f"Add --weights published (they are fetched from {weights.url}). "
