"""Recipe, loop, metrics and checkpoint: from a network and data to trained weights."""

from hwbench.data.video_scores import VideoScores, load_scores, save_scores
from hwbench.training.checkpoint import Checkpoint, build, build_start, load_checkpoint, save_checkpoint
from hwbench.training.loop import Fit, TrainingProgress, fit
from hwbench.training.metrics import Scores, evaluate
from hwbench.training.processes import World, joined
from hwbench.training.quantized import Quantization
from hwbench.training.recipe import Recipe
from hwbench.training.recipe_files import RecipeFile
from hwbench.training.resources import Resources
from hwbench.training.run import (
    Data,
    FineTuning,
    StartingWeights,
    Trained,
    initial,
    open_data,
    run_folder,
    train,
)
from hwbench.training.run_files import CHECKPOINT, check_folder, start_over
from hwbench.training.scoring import score
from hwbench.training.teacher import Teacher

__all__ = [
    "CHECKPOINT",
    "Checkpoint",
    "Data",
    "Fit",
    "TrainingProgress",
    "Quantization",
    "Recipe",
    "RecipeFile",
    "Resources",
    "Scores",
    "FineTuning",
    "StartingWeights",
    "Teacher",
    "Trained",
    "VideoScores",
    "World",
    "build",
    "build_start",
    "check_folder",
    "evaluate",
    "fit",
    "initial",
    "joined",
    "load_checkpoint",
    "load_scores",
    "open_data",
    "run_folder",
    "save_checkpoint",
    "save_scores",
    "start_over",
    "score",
    "train",
]
