"""Models from elsewhere as something to export: torchvision's video models, and what a function of the user's makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from hwbench.blocks.graph import deploy_graph
from hwbench.blocks.lazy import uninitialised
from hwbench.data import ClipSpec, Normalisation, PictureSpec, Resize
from hwbench.data.transforms import PICTURE
from hwbench.deploy.manifest_records import WeightsOrigin
from hwbench.deploy.source import ExportSource, calibrate_batch_norm
from hwbench.errors import InvalidFile, InvalidValue, UnknownName
from hwbench.measure.cache import file_sha256
from hwbench.models import by_hand
from hwbench.models.answers import initialised, lasting_answer
from hwbench.models.files import keys_of, listed, named_as, read_tensors
from hwbench.models.published import Difference, described, diff
from hwbench.registry import suggest
from hwbench.specs import AUTO, BlockSpec, ModelName, Precision, TensorSpec, Workload

TORCHVISION = "torchvision"
# What torchvision's reference training cuts from a video.
_FRAMES = 16
_SETTLING_CLIPS = 2
# What nothing may tell of the clips that weights were trained on.
MEAN_AND_STD, CUTTING, SPACING = "mean and std", "how frames are cut", "how far apart frames are"
# What a file of weights should hold.
STATE_DICT = "the state dict of this model, as written by torch.save(model.state_dict(), FILE)"


@dataclass(frozen=True)
class ForeignNetwork:
    """A network that is not made of our blocks: a name, its input, and the width of its logits."""

    name: str
    input: TensorSpec
    num_classes: int

    @property
    def blocks(self) -> tuple[BlockSpec, ...]:
        """None are known."""
        return ()

    def workload(self, precision: Precision, variant: str = AUTO) -> Workload:
        """What stands for the network where a workload is asked for: one block of a kind that nobody can build."""
        block = BlockSpec("foreign", self.input.c, self.num_classes)
        return Workload((block,), self.input, precision, variant)

    def deployed(self, module: nn.Module, variant: str = AUTO) -> nn.Module:
        """The deploy form, through the graph."""
        dtype = next((parameter.dtype for parameter in module.parameters()), torch.float32)
        example = torch.zeros(self.input.shape, dtype=dtype)
        return deploy_graph(module, example, variant=variant)


@dataclass(frozen=True)
class ForeignModel:
    """A module with what is known of its clips.

    Attributes:
        name: As the user gave it.
        module: The network with its weights.
        input: One clip; None: not known.
        normalisation: Mean and std of pixels; None: not known.
        picture: How frames are scaled and cut; None: not known.
        scaled_to: Height and width in pixels that every frame is scaled to before it is cut, whatever its shape;
            ``picture`` has the shorter side alone. None: the shape of a frame is kept.
        clip: How clips are cut from a video; None: not known.
        function: The user's function that made the module; None: there is none.
    """

    name: str
    module: nn.Module
    input: TensorSpec | None = None
    normalisation: Normalisation | None = None
    picture: PictureSpec | None = None
    scaled_to: tuple[int, int] | None = None
    clip: ClipSpec | None = None
    function: object = None

    @property
    def assumed(self) -> tuple[str, ...]:
        """What of its clips nothing tells, or ``picture`` does not say."""
        pixels, spacing = () if self.normalisation else (MEAN_AND_STD,), () if self.clip else (SPACING,)
        if self.scaled_to is not None:
            height, width = self.scaled_to
            return *pixels, f"{CUTTING} (torchvision scales each to {height} x {width} pixels)", *spacing
        return *pixels, *(() if self.picture else (CUTTING,)), *spacing


def is_external(name: str) -> bool:
    """Whether a name means ``torchvision:MODEL`` or ``package.module:function``.

    ``zoo:NAME``, ``STUDY:best`` and printed architectures do not; a module counts where Python finds it.
    """
    head, colon, tail = name.strip().partition(":")
    if colon and head == TORCHVISION:
        return tail.isidentifier()
    own = ModelName.match(name)
    return own is not None and by_hand.is_importable(own)


def external_model(name: str, num_classes: int | None = None) -> ForeignModel:
    """The model that a name means, with the weights that it is made with.

    Args:
        name: ``torchvision:MODEL``, or ``package.module:function`` of a function that can be called without arguments,
            or with ``num_classes``, and returns a module (``hwbench.models.by_hand``); the working directory is looked
            into as well.
        num_classes: Width of the logits; None takes the model's own.

    Raises:
        UnknownName: torchvision has no such video model.
        InvalidValue: There is no such function, it takes no number of classes, it fails, or it returns no module.
    """
    head, _, tail = name.strip().partition(":")
    if head == TORCHVISION:
        return _torchvision(tail, num_classes)
    own = ModelName.parse(name)
    if num_classes is not None and not by_hand.takes_classes(by_hand.imported(own)):
        raise InvalidValue(f"--classes: {name} makes its own head; leave it out, or let it take {by_hand.CLASSES}")
    module, function = by_hand.made(own, num_classes), by_hand.imported(own)
    told = by_hand.normalisation_of(own, module)
    pixels = None if told is None else Normalisation(*told)
    return ForeignModel(name, module, by_hand.input_of(own, module), pixels, function=function)


def foreign_original(
    model: ForeignModel, clip: ClipSpec, input: TensorSpec, weights: Path | None, seed: int | None
) -> ExportSource:
    """A model from elsewhere as something to export.

    Args:
        model: The model; its module is changed.
        clip: How clips are cut from a video.
        input: One clip.
        weights: A file with its state dict; None keeps what it has.
        seed: Of the noise that batch norms take their statistics from, where the weights are random; else None.

    Raises:
        InvalidFile: The file is no state dict of this model.
        InvalidValue: The model does not take the input, or, with random weights, no batch of such; or no clip reaches
            one of its lazy layers.
        UnsupportedModule: It does not return logits (1, classes), or they depend on the clips before.
    """
    module, origin = model.module.eval(), WeightsOrigin("made")
    if weights is not None:
        _load(model.name, module, weights)
        origin = WeightsOrigin("file", sha256=file_sha256(weights))
    elif seed is not None:
        origin = WeightsOrigin("random", seed=seed)
    module = initialised(model.name, module, input, model.function)
    logits = lasting_answer(model.name, module, input, model.function)
    if weights is None and seed is not None:
        generator = torch.Generator().manual_seed(seed)
        clips = torch.randn(_SETTLING_CLIPS, *input.shape[1:], generator=generator)
        try:
            calibrate_batch_norm(module, clips)
        except Exception as error:  # the model's own code
            cause = (str(error).splitlines() or [type(error).__name__])[0][:160]
            raise InvalidValue(
                f"{model.name} takes one clip, but no batch of {_SETTLING_CLIPS}, of which random weights need the "
                f"statistics ({cause}); let it take batches, or leave out --weights random"
            ) from error
    network = ForeignNetwork(model.name, input, logits.shape[1])
    return ExportSource(
        network,
        module,
        clip,
        origin,
        normalisation=model.normalisation or Normalisation(),
        picture=model.picture or PICTURE,
        assumed=model.assumed if origin.trained else (),
    )


def _torchvision(name: str, num_classes: int | None) -> ForeignModel:
    from torchvision import models

    known = models.list_models(models.video)
    if name not in known:
        raise UnknownName(f"unknown video model of torchvision {name!r}; {suggest(name, known)}")
    preset = models.get_model_weights(name).DEFAULT.transforms()
    size, sides = int(preset.crop_size[0]), tuple(int(side) for side in preset.resize_size)
    mean, std = ((float(v[0]), float(v[1]), float(v[2])) for v in (preset.mean, preset.std))
    classes = {} if num_classes is None else {"num_classes": num_classes}
    module: nn.Module = models.get_model(name, **classes)
    return ForeignModel(
        f"{TORCHVISION}:{name}",
        module,
        TensorSpec(1, 3, _FRAMES, size, size),
        Normalisation(mean, std),
        PictureSpec(test_scale=min(sides) / size, resize=Resize.SHORT_SIDE),
        None if len(sides) == 1 else (sides[0], sides[1]),
    )


def _load(name: str, module: nn.Module, path: Path) -> None:
    _, values = read_tensors(path, STATE_DICT)
    names = module.state_dict().keys()
    weights = named_as(names, values)
    try:
        module.load_state_dict(weights)
    except Exception as error:  # torch raises half a dozen kinds, depending on what the file is instead
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = " ".join(lines[:3])[:300]
        if not weights.keys() & names:
            reason = f"it should have {listed(names)}; {keys_of(values)}"
        elif not uninitialised(module) and _are_tensors(own := module.state_dict(), weights):
            reason = _misfit(name, diff(described(own), described(weights))) or reason
        raise InvalidFile(f"{path}: not the state dict of this model: {reason}") from None


def _are_tensors(*states: Mapping[str, object]) -> bool:
    """Whether all values are tensors; what ``get_extra_state`` returns may be anything."""
    return all(torch.is_tensor(value) for state in states for value in state.values())


def _misfit(name: str, difference: Difference) -> str:
    """What differs, and the option that helps where the width of one layer does."""
    layers = {tensor.rpartition(".")[0] for tensor in difference.differ}
    if len(layers) == 1 and not (difference.missing or difference.unexpected):
        own = None if name.startswith(f"{TORCHVISION}:") else ModelName.match(name)
        if own is None or by_hand.takes_classes(by_hand.imported(own)):
            return f"{difference.brief}; where it has another number of classes, say how many: --classes N"
    return difference.brief
