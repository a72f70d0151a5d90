"""Top-1 in fp32, in int8 after training, and in int8 after quantisation-aware training. See README.md.

python experiments/003-int8-accuracy/run.py [--jobs winner/relu/0 ...] [--threads 1] [--points 0]
"""

import argparse
import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwbench.api.export import export_source
from hwbench.api.export_sources import source_of
from hwbench.api.train_request import QAT_EPOCHS, QAT_RATE
from hwbench.deploy import DeployedModel, Int8
from hwbench.spaces import resolve
from hwbench.specs import Network, Precision
from hwbench.training import FineTuning, Recipe, Resources, open_data, train
from hwbench.training.recipe_files import RecipeFile
from hwbench.workspace import Workspace

# The architecture of the quickstart's experiment, 001: depths 1, 3, 4; widths 32, 64, 96; separable blocks.
WINNER = (
    "x3d-tiny:frames=8,resolution=64,s1.depth=1,s1.width=32,s1.expansion=4,s1.kernel=1x3x3+3x1x1,s1.se=0,s1.act=relu,"
    "s2.depth=3,s2.width=64,s2.expansion=4,s2.kernel=1x3x3+3x1x1,s2.se=0,s2.act=relu,"
    "s3.depth=4,s3.width=96,s3.expansion=3,s3.kernel=1x3x3+3x1x1,s3.se=0,s3.act=relu"
)
# What was the default when the networks were trained.
DROPOUT = 0.2
# The default when these networks were trained.
SGD = RecipeFile.of({"optimizer": "sgd"}).recipe()
CLASSES = 8
JOBS = (
    "winner/relu/0", "winner/relu/1", "winner/relu/2", "x3d-xs/swish/0", "winner/swish/0", "winner/hswish/0",
)  # fmt: skip
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Job:
    """A network to train: ``winner`` or ``x3d-xs``, the activation inside its blocks, a seed."""

    model: str
    activation: str
    seed: int

    @classmethod
    def parse(cls, text: str) -> "Job":
        model, activation, seed = text.split("/")
        return cls(model, activation, int(seed))

    @property
    def name(self) -> str:
        return f"{self.model}-{self.activation}-{self.seed}"

    def network(self, workspace: Workspace) -> Network:
        if self.model == "x3d-xs":
            found = resolve(workspace, "zoo:x3d-xs", CLASSES)
            return replace(found, name="zoo:x3d-xs@4x96x96", input=found.input.with_(h=96, w=96))
        found = resolve(workspace, WINNER, CLASSES)
        if self.activation == "relu":
            return found
        blocks = [replace(b, activation=self.activation) if b.kind == "x3d" else b for b in found.blocks]
        name = found.name.replace("act=relu", f"act={self.activation}")
        return replace(found, name=name, blocks=tuple(blocks))

    def recipe(self) -> Recipe:
        if self.model == "x3d-xs":
            return replace(SGD, epochs=64, seed=self.seed, eval_every=8, dropout=DROPOUT)
        return replace(SGD, epochs=14, seed=self.seed, eval_every=14, dropout=DROPOUT)

    def tuning_epochs(self) -> int:
        return 1 if self.model == "x3d-xs" else QAT_EPOCHS


@dataclass(frozen=True)
class Bench:
    """Where runs and files lie, and what they may use."""

    workspace: Workspace
    folder: Path
    threads: int

    def train(self, job: Job, recipe: Recipe, out: str, start: FineTuning | None = None) -> Path:
        network = job.network(self.workspace)
        size = (network.input.t, network.input.h, network.input.w)
        data = open_data(self.workspace, "synthetic", size, recipe)
        resources = Resources("cpu", self.threads, 0)
        return train(recipe, network, data, self.folder / out, start=start, resources=resources).checkpoint.path

    def export(self, checkpoint: Path, out: str, int8: Int8 | None = None) -> DeployedModel:
        precision = Precision.INT8
        return export_source(self.workspace, source_of(checkpoint), self.folder / out, precision, int8=int8)

    def run(self, job: Job, points: float | None) -> dict[str, Any]:
        """One row: top-1 on the 128 validation videos, all of files that were run."""
        trained = self.train(job, job.recipe(), job.name)
        # Each block alone is one pass of everything for each of them: hours for the 26 of X3D-XS.
        after = self.export(trained, f"{job.name}/ptq", Int8(inspect=job.model == "winner")).manifest
        recipe = replace(SGD, epochs=job.tuning_epochs(), learning_rate=QAT_RATE, seed=job.seed, dropout=DROPOUT)
        tuned = self.train(job, recipe, f"{job.name}-qat", FineTuning.of(trained))
        aware = self.export(tuned, f"{job.name}/qat").manifest
        assert after.quantization is not None
        row = {
            "job": job.name,
            "top1_fp32": after.accuracy.top1_before,
            "top1_ptq": after.accuracy.top1_after,
            "top1_qat": aware.accuracy.top1_after,
            "sqnr_ptq_db": round(after.parity.sqnr_db, 1),
            "sqnr_qat_db": round(aware.parity.sqnr_db, 1),
            "same_top1_ptq": after.parity.same_top1,
            "fp64_error": after.parity.fp64_error,
            "alone_db": {block.name: round(block.alone_db, 1) for block in after.quantization.blocks},
        }
        if points is not None:
            kept = self.export(trained, f"{job.name}/kept", Int8(max_loss=points / 100)).manifest
            assert kept.quantization is not None
            cost = kept.quantization.cost
            row["kept"] = {
                "points": points,
                "fp32_blocks": kept.quantization.fp32_blocks,
                "top1": kept.accuracy.top1_after,
                "int8_ms": cost and cost.int8_ms,
                "mixed_ms": cost and cost.mixed_ms,
            }
        return row


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--jobs", nargs="+", default=JOBS)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--points", type=float, help="also export with --keep-accuracy POINTS")
    given = options.parse_args()
    workspace = Workspace.find()
    bench = Bench(workspace, workspace.root / "runs" / "003", given.threads)
    for text in given.jobs:
        row = bench.run(Job.parse(text), given.points)
        print(json.dumps(row, indent=1), flush=True)
        (HERE / f"{row['job']}.json").write_text(json.dumps(row, indent=1) + "\n")
    rows = [json.loads(path.read_text()) for path in sorted(HERE.glob("winner-relu-*.json"))]
    for key in ("top1_ptq", "top1_qat"):
        lost = [100 * (row["top1_fp32"] - row[key]) for row in rows]
        print(f"{key}: {len(lost)} seeds lose {statistics.mean(lost):.2f} points on average, {max(lost):.2f} at most")


if __name__ == "__main__":
    main()
