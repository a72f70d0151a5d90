"""What ``hwbench.train`` is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hwbench.api.layouts import check_variant
from hwbench.api.reading import (
    DECODED_CACHE_HELP,
    DECODER_HELP,
    MODALITY_HELP,
    SPAN_HELP,
    STRIDE_HELP,
    check_clip,
    check_decoded_cache,
)
from hwbench.api.requests import option, request
from hwbench.errors import InvalidValue, UsageError
from hwbench.specs import AUTO
from hwbench.units import MOST_THREADS

if TYPE_CHECKING:
    from hwbench.training import Recipe

# Fine-tuning moves weights by steps of int8 and no further: a tenth of the rate that networks are trained with.
QAT_EPOCHS, QAT_RATE = 2, 0.01
RAISE = "raise"
ON_ERROR = (RAISE, "skip", "replace")
COMPUTE = ("auto", "cpu", "cuda")


@request
class TrainRequest:
    """Train a network and write a checkpoint.

    With --qat a trained network goes on for a few epochs with the rounding of int8 in it, in the form that is deployed:
    normalisation is folded first, so its statistics stay. Export the result with --precision int8. Interrupted at any
    moment, the same command goes on where it stopped; after the end it gives the stored result.
    """

    architecture: str = option(
        argument=True,
        help="A printed key, STUDY:best, zoo:NAME, or package.module:function of your own model; with --qat a "
        "checkpoint.",
    )
    data: str | None = option(
        default=None,
        help="synthetic (default), synthetic:NAME, class folders, a list, or READER:PATH; with --qat as before.",
    )
    causal: bool = option(
        default=False, help="No frame looks at a later one, so that export --streaming works; of X3D's blocks."
    )
    qat: bool = option(default=False, help="Fine-tune a checkpoint with the rounding of int8 in it, then export it.")
    recipe: str | None = option(
        default=None,
        metavar="NAME|FILE",
        help="x3d, slowfast, mvit, finetune, synthetic, or a TOML file; other options override it.",
    )
    settings: tuple[str, ...] = option(
        default=(),
        flags=("--set",),
        metavar="NAME=VALUE",
        help="Any field of a recipe, such as --set ema_decay=0.99; repeatable.",
    )
    epochs: int | None = option(default=None, min=1, help="Passes over the training videos; default: 16, with --qat 2.")
    batch_size: int | None = option(default=None, min=1, help="Clips per step, of all processes together; default: 16.")
    accumulate: int | None = option(
        default=None, min=1, help="Parts that a batch is computed in, for less memory; default: 1."
    )
    lr: float | None = option(
        default=None, help="Peak learning rate; default: by the optimizer (0.02 of muon, 0.1 of sgd), with --qat 0.01."
    )
    optimizer: str | None = option(
        default=None,
        choices=("adamw", "lamb", "lars", "muon", "sgd"),
        help="muon (default), adamw, lamb, lars or sgd (default with --qat).",
    )
    precision: str | None = option(
        default=None, choices=("bf16", "fp16", "fp32"), help="Arithmetic: fp32 (default), bf16 or fp16."
    )
    loss: str | None = option(
        default=None,
        choices=("auto", "bce", "cross-entropy"),
        help="auto (default: by the data), cross-entropy or bce.",
    )
    freeze: str | None = option(
        default=None, help="Blocks that stay: stem, all-but-head, or how many from the stem on."
    )
    teacher: Path | None = option(default=None, help="A checkpoint to learn from, too (distillation).")
    seed: int | None = option(
        default=None, min=0, help="Of weights, order, clips, dropout; default: 0, with --qat as before."
    )
    clips: int | None = option(default=None, min=1, help="Test clips per video; default: 1, with --qat as before.")
    crops: int | None = option(
        default=None, min=1, max=3, help="Test crops per clip: 1 (default) or 3; with --qat as before."
    )
    variant: str = option(default=AUTO, help="With --qat: layout of convolutions over time.")
    span: str | None = option(default=None, help=SPAN_HELP)
    stride: int | None = option(default=None, min=1, help=STRIDE_HELP)
    on_error: str = option(default="raise", choices=ON_ERROR, help="Unreadable videos: raise, skip or replace.")
    modality: str | None = option(default=None, help=MODALITY_HELP + " Default: rgb, with --qat as before.")
    decoder: str = option(default="pyav", help=DECODER_HELP)
    decoded_cache: str | None = option(default=None, metavar="SIZE", help=DECODED_CACHE_HELP)
    device: str = option(default="auto", choices=COMPUTE, help="Where to compute: cpu, cuda, or auto.")
    threads: int | None = option(default=None, min=1, max=MOST_THREADS, help="Threads of torch; default: all cores.")
    workers: int | None = option(default=None, min=0, help="Processes that read videos; default: by data and cores.")
    cuda_graphs: bool = option(
        default=False, help="Replay a network's passes on a GPU as CUDA graphs: faster where it is small."
    )
    weights: Path | None = option(
        default=None, help="Weights to begin with: published (of a network of the zoo: fetched), or a file of them."
    )
    new_head: bool = option(default=False, help="Leave out the last layer of --weights, which has other classes.")
    made_by: str | None = option(
        default=None,
        help="Of a checkpoint of your own model, also of the --teacher: package.module:function, which makes the "
        "model; several with commas.",
    )
    tensorboard: bool = option(default=False, help="Write the log for TensorBoard, too, in the folder of the run.")
    out: Path | None = option(default=None, help="Folder of the run; default: one below runs/.")
    fresh: bool = option(default=False, flags=("--fresh/--resume",), help="Start over, or go on where a run stopped.")

    def validate(self) -> None:
        """Raises InvalidValue or UsageError where the fields do not go together."""
        if self.lr is not None and self.lr <= 0:
            raise InvalidValue(f"--lr: learning_rate must be more than 0, got {self.lr}")
        if self.crops is not None:
            check_crops(self.crops)
        if self.new_head and self.weights is None:
            raise UsageError("--new-head leaves out the last layer of given weights; add --weights FILE")
        check_clip(self.span, self.stride)
        check_decoded_cache(self.decoded_cache)
        if self.qat and self.causal:
            raise UsageError("--qat goes on with the network of a checkpoint; leave out --causal")
        if self.qat and (self.weights is not None or self.new_head):
            raise UsageError("--qat goes on with the weights of a checkpoint; leave out --weights and --new-head")
        if self.qat and (self.span is not None or self.stride is not None):
            raise UsageError("--qat cuts clips as the checkpoint did; leave out --span and --stride")
        if self.variant != AUTO and not self.qat:
            raise UsageError(
                "--variant goes with --qat; without it the original form is trained, which has no variants"
            )
        check_variant(self.variant)

    def make_recipe(self, default_seed: int = 0, default_views: tuple[int, int] = (1, 1)) -> Recipe:
        """Hyper-parameters of the run; what was not given is that of the recipe, or of fine-tuning with --qat.

        Args:
            default_seed: Where neither the request nor its recipe names one.
            default_views: Test clips and crops, likewise.

        Raises:
            UnknownName: No such recipe or field.
            InvalidFile: A recipe in a file that does not validate.
            InvalidValue: Values out of range, or a dropout is set with --qat, whose network has none.
        """
        from hwbench.training.recipe_files import RecipeFile, parse_settings

        tuning = {"epochs": QAT_EPOCHS, "optimizer": "sgd", "learning_rate": QAT_RATE} if self.qat else {}
        file = RecipeFile.of({}) if self.recipe is None else RecipeFile.named(self.recipe)
        typed = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "accumulate": self.accumulate,
            "learning_rate": self.lr,
            "optimizer": self.optimizer,
            "precision": self.precision,
            "loss": self.loss,
            "freeze": self.freeze,
            "seed": self.seed,
            "test_clips": self.clips,
            "test_crops": self.crops,
        }
        given = {name: value for name, value in typed.items() if value is not None}
        views = dict(zip(("test_clips", "test_crops"), default_views, strict=True))
        file = file.with_default(seed=default_seed, **views, **tuning)
        settings = parse_settings(self.settings)
        if self.qat and settings.get("dropout"):
            raise InvalidValue("--set: dropout does not go with the rounding of int8; leave it out with --qat")
        return file.recipe({**settings, **given})


def check_crops(crops: int) -> None:
    """Raises InvalidValue for a number of test crops between the centre and the three along the longer side."""
    if crops not in (1, 3):
        raise InvalidValue(f"--crops: expected 1 or 3, got {crops}")
