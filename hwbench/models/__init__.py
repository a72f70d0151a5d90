"""Video networks: X3D in vanilla and in efficient form, and the way from a workload to a module."""

from hwbench.blocks.layout import fold, unfold
from hwbench.models.efficient_x3d import EfficientX3d, x3d_blocks
from hwbench.models.published import Published, read_published
from hwbench.models.weights import Form, efficient_from_vanilla, form_of, translated, vanilla_from_efficient
from hwbench.models.workloads import Continued, Unfolded, deployed, eager_workload, efficient, network, workload_module
from hwbench.models.x3d import X3d, create_x3d

__all__ = [
    "Continued",
    "EfficientX3d",
    "Form",
    "Published",
    "Unfolded",
    "X3d",
    "create_x3d",
    "deployed",
    "eager_workload",
    "efficient",
    "efficient_from_vanilla",
    "fold",
    "form_of",
    "network",
    "read_published",
    "translated",
    "unfold",
    "vanilla_from_efficient",
    "workload_module",
    "x3d_blocks",
]
