"""Recipe, loop, metrics and checkpoint: from a network and data to trained weights."""

from hwbench.train.checkpoint import Checkpoint, build, build_start, load_checkpoint, save_checkpoint
from hwbench.train.loop import Fit, Progress, fit
from hwbench.train.metrics import Scores, evaluate
from hwbench.train.quantized import Quantization
from hwbench.train.recipe import Recipe
from hwbench.train.resources import Resources
from hwbench.train.run import (
    CHECKPOINT,
    Data,
    FineTuning,
    Start,
    Trained,
    initial,
    open_data,
    run_folder,
    score,
    start_over,
    train,
)

__all__ = [
    "CHECKPOINT",
    "Checkpoint",
    "Data",
    "Fit",
    "Progress",
    "Quantization",
    "Recipe",
    "Resources",
    "Scores",
    "FineTuning",
    "Start",
    "Trained",
    "build",
    "build_start",
    "evaluate",
    "fit",
    "initial",
    "load_checkpoint",
    "open_data",
    "run_folder",
    "save_checkpoint",
    "start_over",
    "score",
    "train",
]
