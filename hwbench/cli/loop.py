"""The loop of ``hwbench quickstart``. Every step is what a command of its own does, and is stored where that stores it,
so that the loop goes on where it was interrupted and the commands find what it left.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.cli.bench import artifact_of, session_timing, stats_of, undisturbed_before
from hwbench.cli.export import bars as export_bars
from hwbench.cli.export import export_original, original_of, torch_threads
from hwbench.cli.output import say
from hwbench.cli.profile import profile_space
from hwbench.cli.search import installed_target, measuring, search_space, table_predictor
from hwbench.cli.train import train_network
from hwbench.deploy import DeployedModel, Original
from hwbench.devices import load_device
from hwbench.errors import CheckFailed, InvalidFile, InvalidValue
from hwbench.interpreter import python_command, python_environment
from hwbench.measure.builder import Builder
from hwbench.measure.cache import engine_version
from hwbench.measure.on_device import measure_artifact
from hwbench.report import write
from hwbench.search.latencies import space_latencies
from hwbench.search.study import Result
from hwbench.spaces import load_space, resolve
from hwbench.specs import LatencyStats, Network, Outcome, Precision
from hwbench.train import CHECKPOINT, Checkpoint, Recipe
from hwbench.units import format_duration, milliseconds
from hwbench.workspace import Workspace

RUNTIME, THREADS = "executorch", 1
SPACE = "x3d-tiny"
DATA = "synthetic"
# Without a budget: so many times what the fastest network of the space is predicted to take.
ROOM = 1.8
# A machine is not as fast at the end as at the start (virtual ones drift by 15 % for minutes): so much of the budget is
# not given to the search, and a file that is over the budget is timed again after a pause, so many times in all.
RESERVE = 0.15
ATTEMPTS, PAUSE_S = 3, 20.0
TRIALS = 128
CANDIDATES = 2
EPOCHS = 11
STEPS = 7
INT8, FP32 = Precision.INT8, Precision.FP32


@dataclass(frozen=True)
class Loop:
    """The whole loop on one device; what is done already is not done again."""

    workspace: Workspace
    device: str = "local"
    seed: int = 0

    def run(self, budget_s: float | None = None) -> dict[str, Any]:
        """Runs all steps and returns what ``--json`` prints.

        Args:
            budget_s: Limit of the latency in seconds; default: ``ROOM`` times the fastest network.

        Raises:
            InfeasibleBudget: No network is that fast; the smallest reachable latency is named.
            HwbenchError: What the steps raise.
        """
        started = time.monotonic()
        # Build workers start once, and are gone before the training wants the memory.
        with Builder(RUNTIME, self.workspace.cache) as builder:
            if not self.workspace.store.is_file():  # the first time here: the runner is compiled meanwhile
                builder.warm_up()
            self.profile(builder)
            budget_s = budget_s or self.budget()
            found = self.search(budget_s, builder)
            network = self.network(found)
            fp32_s = self.compare(network, builder)
        folder = self.workspace.root / "runs" / found.study
        checkpoint = self.train(found, folder)
        models = self.export(folder)
        stats = self.bench(models[INT8], budget_s)
        page = self.report(found, models, folder)
        return {
            "architecture": checkpoint.network.name,
            "device": self.device,
            "budget_ms": milliseconds(budget_s),
            "predicted_ms": milliseconds(found.best.predicted_s),
            "measured_ms": milliseconds(stats.median_s),
            "fp32_ms": milliseconds(fp32_s),
            "top1_fp32": models[FP32].manifest.accuracy.top1_after,
            "top1_int8": models[INT8].manifest.accuracy.top1_after,
            "chance": 1 / len(checkpoint.classes),
            "model": shown(models[INT8].path),
            "report": shown(page),
            "seconds": round(time.monotonic() - started, 1),
        }

    def profile(self, builder: Builder) -> None:
        """The latency table of the space in int8."""
        _step(1, "time the blocks of the space", f"profile --device {self.device} --space {SPACE} --precision int8")
        profile_space(self.workspace, self.device, SPACE, [INT8], runtime=RUNTIME, builder=builder)

    def budget(self) -> float:
        """``ROOM`` times the predicted latency of the fastest network, rounded up to a tenth of a millisecond."""
        target = installed_target(self.device, RUNTIME, THREADS)
        predictor, classes = table_predictor(self.workspace, target, INT8, SPACE)
        smallest_s, _ = space_latencies(load_space(self.workspace, SPACE), predictor, INT8, classes).smallest()
        budget_ms = math.ceil(ROOM * smallest_s * 1e4) / 10
        say(f"the fastest network is predicted to take {format_duration(smallest_s)}: a budget of {budget_ms:g} ms")
        return budget_ms / 1e3

    def search(self, budget_s: float, builder: Builder) -> Result:
        """The best network within the budget, less what is kept in reserve; measured."""
        within_ms = float(f"{1e3 * budget_s * (1 - RESERVE):.4g}")
        study = f"quickstart-{within_ms:g}ms-{self.seed}"
        _step(
            2,
            f"search within {within_ms:g} ms, the budget less {RESERVE:.0%}, in case the machine slows down",
            f"search --device {self.device} --space {SPACE} --precision int8 --budget {within_ms:g}ms "
            f"--trials {TRIALS} --measure {CANDIDATES} --seed {self.seed} --study {study}",
        )
        return search_space(
            self.workspace,
            SPACE,
            self.device,
            within_ms / 1e3,
            precision=INT8,
            trials=TRIALS,
            measure=CANDIDATES,
            seed=self.seed,
            study=study,
            builder=builder,
        )

    def network(self, found: Result) -> Network:
        """The best network of a search."""
        return resolve(self.workspace, f"{found.study}:best", found.settings.num_classes)

    def compare(self, network: Network, builder: Builder) -> float:
        """Seconds that a network takes in fp32."""
        _step(3, "time the same network in fp32, to compare")
        target = installed_target(self.device, RUNTIME, THREADS)
        (measured,) = measuring(self.workspace, target, RUNTIME, builder)([network.workload(FP32)])
        if measured.outcome is not Outcome.OK:
            raise CheckFailed("the network could not be timed in fp32 (see above); run the command again")
        return measured.stats.median_s

    def train(self, found: Result, folder: Path) -> Checkpoint:
        """The best network, trained on the synthetic videos."""
        name = f"{found.study}:best"
        _step(
            4,
            "train it on synthetic videos",
            f"train {name} --data {DATA} --epochs {EPOCHS} --seed {self.seed} --out {shown(folder)}",
        )
        recipe = Recipe(epochs=EPOCHS, seed=self.seed)
        try:
            trained = train_network(self.workspace, name, recipe, data=DATA, out=folder)
        except InvalidValue:  # the best network of the study is another one now: the rows were measured again
            say(f"{shown(folder)} holds another network of an earlier loop; it is trained anew")
            trained = train_network(self.workspace, name, recipe, data=DATA, out=folder, fresh=True)
        metrics = trained.checkpoint.metrics
        say(f"top-1 {metrics['top1']:.1%} on {metrics['videos']:.0f} validation videos")
        return trained.checkpoint

    def export(self, folder: Path) -> dict[Precision, DeployedModel]:
        """The trained network as checked files in int8 and, by a process beside this one, in fp32."""
        checkpoint, out = folder / CHECKPOINT, {one: folder / one.value for one in (INT8, FP32)}
        words = {one: ["export", shown(checkpoint), "--precision", one, "--out", shown(out[one])] for one in out}
        _step(5, "export it in int8 and in fp32, checked against the original", *map(" ".join, words.values()))
        original = original_of(checkpoint)
        int8, fp32 = (_exported(out[one], original) for one in (INT8, FP32))
        if before := [shown(model.path.parent) for model in (int8, fp32) if model]:
            say(f"{', '.join(before)}: exported before")
        if not int8 and not fp32:
            with _running([*words[FP32], "--seed", str(self.seed), "--threads", "1"]):
                int8 = self._export(original, out[INT8], INT8)
            fp32 = _exported(out[FP32], original)  # None where the process beside failed: this one tells why
        return {
            INT8: int8 or self._export(original, out[INT8], INT8),
            FP32: fp32 or self._export(original, out[FP32], FP32),
        }

    def _export(self, original: Original, out: Path, precision: Precision) -> DeployedModel:
        with torch_threads(None) as threads, export_bars() as watch:
            return export_original(
                self.workspace, original, out, precision, seed=self.seed, threads=threads, watch=watch
            )

    def bench(self, model: DeployedModel, budget_s: float) -> LatencyStats:
        """The latency of an exported file; the last one counts where it is timed again."""
        _step(6, "time the int8 file", f"bench {shown(model.path)} --device {self.device} --threads 1")
        stats = self._time(model)
        for _ in range(ATTEMPTS - 1):
            if stats.median_s <= budget_s:
                break
            say(
                f"{format_duration(stats.median_s)} is over the budget, which the search measured it to be within: the "
                f"machine slowed down; again in {PAUSE_S:.0f} s"
            )
            time.sleep(PAUSE_S)
            stats = self._time(model)
        return stats

    def _time(self, model: DeployedModel) -> LatencyStats:
        artifact, _ = artifact_of(model.path, RUNTIME, None)
        measured = measure_artifact(
            artifact,
            load_device(self.workspace, self.device),
            cache_dir=self.workspace.cache,
            threads=THREADS,
            timing=session_timing(samples=50, seconds=1.5),
            undisturbed=undisturbed_before(self.workspace),
            report=say,
        )
        return stats_of(measured, artifact)

    def report(self, found: Result, models: dict[Precision, DeployedModel], folder: Path) -> Path:
        """The page about the study."""
        out = folder / "report.html"
        folders = [model.path.parent for model in models.values()]
        named = " ".join(f"--model {shown(path)}" for path in folders)
        _step(7, "write the report", f"report {found.study} {named} --out {shown(out)}")
        write(self.workspace, found.study, out, exported=[Path(shown(path)) for path in folders])
        return out


def _exported(folder: Path, original: Original) -> DeployedModel | None:
    """The file that was made of these weights with what is installed; None where there is none."""
    try:
        model = DeployedModel.open(folder)
    except InvalidFile:
        return None
    same = model.manifest.weights.sha256 == original.weights.sha256
    return model if same and model.manifest.runtime_version == engine_version(RUNTIME) else None


@contextlib.contextmanager
def _running(words: list[str]) -> Iterator[None]:
    """A command of hwbench beside what is done here; nothing of it is shown, and it ends with an error here."""
    silent = subprocess.DEVNULL
    with subprocess.Popen(
        python_command("hwbench", *words), env=python_environment(), stdout=silent, stderr=silent
    ) as process:
        try:
            yield
        except BaseException:
            process.kill()
            raise


def shown(path: Path) -> str:
    """A path as it is typed from here."""
    return os.path.relpath(path)


def _step(number: int, what: str, *commands: str) -> None:
    say("\n      ".join([f"\n[{number}/{STEPS}] {what}", *(f"hwbench {command}" for command in commands)]))
