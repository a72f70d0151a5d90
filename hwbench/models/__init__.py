"""Video networks: X3D in vanilla and in efficient form, ResNets, and the way from a workload to a module."""

from hwbench.blocks.layout import batch_to_frames, frames_to_batch
from hwbench.models.efficient_x3d import EfficientX3d, x3d_blocks
from hwbench.models.mvit_weights import MvitForm, mvit_from_pyslowfast, pyslowfast_from_mvit
from hwbench.models.published import PublishedWeights, read_published
from hwbench.models.resnet_weights import ResnetForm, pyslowfast_from_resnet, resnet_from_pyslowfast
from hwbench.models.squeezetime_weights import (
    SqueezeTimeForm,
    mmaction2_from_squeezetime,
    squeezetime_from_mmaction2,
)
from hwbench.models.weights import WeightsForm, efficient_from_vanilla, form_of, translated, vanilla_from_efficient
from hwbench.models.workloads import (
    Continued,
    Unfolded,
    deployed,
    eager_workload,
    efficient,
    keeps_blocks,
    network,
    streamed,
    workload_module,
)
from hwbench.models.x3d import VanillaX3d, create_x3d

__all__ = [
    "Continued",
    "EfficientX3d",
    "MvitForm",
    "WeightsForm",
    "PublishedWeights",
    "ResnetForm",
    "SqueezeTimeForm",
    "Unfolded",
    "VanillaX3d",
    "create_x3d",
    "deployed",
    "eager_workload",
    "efficient",
    "efficient_from_vanilla",
    "frames_to_batch",
    "form_of",
    "keeps_blocks",
    "mmaction2_from_squeezetime",
    "mvit_from_pyslowfast",
    "network",
    "pyslowfast_from_mvit",
    "pyslowfast_from_resnet",
    "read_published",
    "resnet_from_pyslowfast",
    "squeezetime_from_mmaction2",
    "translated",
    "batch_to_frames",
    "vanilla_from_efficient",
    "streamed",
    "workload_module",
    "x3d_blocks",
]
