"""Efficient blocks: an original form to train and a deploy form to run."""

from hwbench.blocks.base import EfficientBlock, FixedSize, Residual, tensor_spec, zero_final_norms
from hwbench.blocks.kinds import build
from hwbench.blocks.layout import batch_to_frames, frames_to_batch
from hwbench.blocks.mobile_cpu.layouts import variants

__all__ = [
    "EfficientBlock",
    "FixedSize",
    "Residual",
    "batch_to_frames",
    "build",
    "frames_to_batch",
    "tensor_spec",
    "variants",
    "zero_final_norms",
]
