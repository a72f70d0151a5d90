"""Efficient blocks: an original form to train and a deploy form to run."""

from hwbench.blocks.base import EfficientBlock, FixedSize, tensor_spec
from hwbench.blocks.kinds import build
from hwbench.blocks.layout import batch_to_frames, frames_to_batch
from hwbench.blocks.mobile_cpu.layouts import variants

__all__ = ["EfficientBlock", "FixedSize", "build", "frames_to_batch", "tensor_spec", "batch_to_frames", "variants"]
