"""Recipe, loop, metrics and checkpoint: from a network and data to trained weights."""

from hwbench.training.checkpoint import Checkpoint, build, build_start, load_checkpoint, save_checkpoint
from hwbench.training.loop import Fit, TrainingProgress, fit
from hwbench.training.metrics import Scores, evaluate
from hwbench.training.quantized import Quantization
from hwbench.training.recipe import Recipe
from hwbench.training.resources import Resources
from hwbench.training.run import (
    CHECKPOINT,
    Data,
    FineTuning,
    StartingWeights,
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
    "TrainingProgress",
    "Quantization",
    "Recipe",
    "Resources",
    "Scores",
    "FineTuning",
    "StartingWeights",
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
