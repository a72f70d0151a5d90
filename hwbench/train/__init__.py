"""Recipe, loop, metrics and checkpoint: from a network and data to trained weights."""

from hwbench.train.checkpoint import Checkpoint, build, load_checkpoint, save_checkpoint
from hwbench.train.loop import Fit, Progress, fit
from hwbench.train.metrics import Scores, evaluate
from hwbench.train.recipe import Recipe
from hwbench.train.resources import Resources
from hwbench.train.run import CHECKPOINT, Data, Start, Trained, initial, open_data, run_folder, score, start_over, train

__all__ = [
    "CHECKPOINT",
    "Checkpoint",
    "Data",
    "Fit",
    "Progress",
    "Recipe",
    "Resources",
    "Scores",
    "Start",
    "Trained",
    "build",
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
