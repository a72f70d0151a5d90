"""What is exported: a module in its original form in eager fp32, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from hwbench.blocks.copies import copied
from hwbench.data import ClipSpec, Normalisation, PictureSpec
from hwbench.data.flow_stream import FlowStream
from hwbench.data.transforms import NORMALISATION, PICTURE
from hwbench.deploy.manifest_records import WeightsOrigin
from hwbench.specs import AUTO, Network

if TYPE_CHECKING:
    from hwbench.deploy.external import ForeignNetwork
    from hwbench.models import PublishedWeights

# Draws of a clip batch from which the batch norms of random weights get their statistics.
_SETTLING_CLIPS = 2


@dataclass(frozen=True)
class ExportSource:
    """A network as a module, with the way its input is made.

    Attributes:
        network: Name, blocks and input; of a model from elsewhere no blocks.
        module: Normalised clips (N, 3, T, H, W) -> logits (N, classes), in eval mode, on the CPU; never changed.
        clip: How clips are cut from a video.
        weights: Where the weights come from.
        classes: Class names in the order of the logits; empty with random and with published weights.
        normalisation: What pixels go through before the network.
        data: Name of the data it was trained on; None with random and with published weights.
        data_seed: Seed by which that data was split into training and validation videos.
        trained_on: ``VideoList.identity`` of the videos to train on of that split; empty where nothing says it.
        views: Test views (clips, crops) of a video that its accuracy is measured with.
        picture: How frames are scaled and cut.
        fine_tuned: After quantisation-aware training, where ``module`` computes with the rounding of int8; else None.
        flow: Where the optical flow comes from that it sees; None: it sees pictures.
        assumed: What of its clips nothing tells, in words; the fields above hold what was taken in its place.
    """

    network: Network | ForeignNetwork
    module: nn.Module
    clip: ClipSpec
    weights: WeightsOrigin
    classes: tuple[str, ...] = ()
    normalisation: Normalisation = field(default_factory=Normalisation)
    data: str | None = None
    data_seed: int = 0
    views: tuple[int, int] = (1, 1)
    fine_tuned: FineTuned | None = None
    picture: PictureSpec = field(default_factory=PictureSpec)
    flow: FlowStream | None = None
    assumed: tuple[str, ...] = ()
    trained_on: str = ""

    def deployed(self, variant: str = AUTO) -> nn.Module:
        """The deploy form: frames as batch (T, 3, H, W) -> logits (1, classes)."""
        from hwbench import models

        if isinstance(self.network, Network):
            return models.deployed(self.module, self.network.input, variant)
        return self.network.deployed(self.module, variant)


@dataclass(frozen=True)
class FineTuned:
    """What came of quantisation-aware training.

    Attributes:
        start: The network in fp32 that it started from, as ``ExportSource.module``.
        converted: Gives the deploy form in int8, with the learned weights and ranges.
        variant: Layout of convolutions over time in it.
        fp32_blocks: Blocks that stayed in fp32.
    """

    start: nn.Module
    converted: Callable[[], nn.Module]
    variant: str
    fp32_blocks: tuple[str, ...] = ()


def trained(
    network: Network,
    module: nn.Module,
    *,
    classes: tuple[str, ...],
    clip: ClipSpec,
    normalisation: Normalisation,
    data: str,
    data_seed: int,
    views: tuple[int, int],
    sha256: str,
    recipe: Mapping[str, object],
    fine_tuned: FineTuned | None = None,
    picture: PictureSpec = PICTURE,
    flow: FlowStream | None = None,
    trained_on: str = "",
) -> ExportSource:
    """The original of a checkpoint: its fields, and the digest of its file."""
    weights = WeightsOrigin("checkpoint", sha256=sha256, recipe=recipe)
    return ExportSource(
        network,
        module.eval(),
        clip,
        weights,
        classes,
        normalisation,
        data,
        data_seed,
        views,
        fine_tuned,
        picture,
        flow,
        trained_on=trained_on,
    )


def published(
    network: Network,
    weights: PublishedWeights,
    clip: ClipSpec,
    picture: PictureSpec = PICTURE,
    normalisation: Normalisation = NORMALISATION,
) -> ExportSource:
    """A network with weights from elsewhere: no class names, no data; pixels are normalised as X3D's are by default.

    Raises:
        InvalidFile: They are not the weights of this network.
    """
    from hwbench import models

    module: nn.Module = models.network(network)
    module.load_state_dict(weights.of(network))
    origin = WeightsOrigin(f"published:{weights.form}", sha256=weights.sha256)
    return ExportSource(network, module.eval(), clip, origin, normalisation=normalisation, picture=picture)


def randomly_weighted(network: Network, clip: ClipSpec, *, seed: int = 0) -> ExportSource:
    """A network with random weights that follow from the seed: as fast as a trained one, and worth nothing else.

    Batch norms take mean and variance of two clips of seeded normal noise instead of 0 and 1, so that activations keep
    an ordinary size through all layers, as in a trained network; else int8 would be judged on overflow or on nothing.
    """
    from hwbench import models

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module: nn.Module = models.network(network)
        calibrate_batch_norm(module, torch.randn(_SETTLING_CLIPS, *network.input.shape[1:]))
    return ExportSource(network, module.eval(), clip, WeightsOrigin("random", seed=seed))


def with_statistics_of(source: ExportSource, clips: torch.Tensor) -> ExportSource:
    """A source whose batch norms have the statistics of some clips (N, 3, T, H, W); the given source is left as it is.

    Random weights whose statistics are those of noise meet real clips with activations far from what they were
    normalised for; int8 would be judged on that.

    Raises:
        UnsupportedModule: The module holds something that cannot be copied.
    """
    module = copied(source.module)
    calibrate_batch_norm(module, clips)
    return replace(source, module=module.eval())


def calibrate_batch_norm(module: nn.Module, clips: torch.Tensor) -> None:
    """Gives every batch norm the statistics of its input for these clips, layer after layer in one pass."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    module.eval()
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    with torch.no_grad():
        module(clips)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    module.eval()
