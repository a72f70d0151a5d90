"""``hwbench.quickstart``: the whole loop, from the latency table to a measured int8 file.

Every step is a request of its own and is stored where that stores it, so that the loop goes on where it was interrupted
and the commands find what it left.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.bench import bench
from hwbench.api.bench_request import BenchRequest
from hwbench.api.export import ExportRequest, export
from hwbench.api.export_sources import source_of
from hwbench.api.learning import coming_with, learn_from
from hwbench.api.listener import SILENT, Listener
from hwbench.api.models import checkpoint_file
from hwbench.api.prediction import installed_target, measuring, table_predictor
from hwbench.api.profile import ProfileRequest, profile
from hwbench.api.report import ReportRequest, report
from hwbench.api.requests import option, request
from hwbench.api.search import search
from hwbench.api.search_request import SearchRequest
from hwbench.api.train import TrainRequest, TrainResult, train
from hwbench.errors import CheckFailed, InvalidFile, InvalidValue, NotMeasured, OverBudget
from hwbench.interpreter import python_command, python_environment
from hwbench.specs import LatencyStats, Precision
from hwbench.units import format_duration, milliseconds, parse_duration

if TYPE_CHECKING:
    from hwbench.deploy import DeployedModel
    from hwbench.latency import AdditivePredictor
    from hwbench.measure.builder import Builder
    from hwbench.specs import Target
    from hwbench.studies.search_result import SearchResult
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
# On a crowded machine whole networks may be too noisy to calibrate with; they are measured again, so many times.
RETRIES = 2
TRIALS = 128
CANDIDATES = 2
EPOCHS = 11
STEPS = 7
INT8, FP32 = Precision.INT8, Precision.FP32


@request
class QuickstartRequest:
    """The whole loop on a small space and synthetic videos: profile, search, train, export int8, measure, report.

    Each step says how it is typed as a command of its own. Interrupted at any moment, the same command goes on.
    """

    budget: str | None = option(
        default=None, blank=True, help='Latency budget, such as "4 ms"; default: 1.8 times the fastest network.'
    )
    device: str = option(default="local", help="Device: a folder of profiles/.")
    seed: int = option(default=0, min=0, help="Of search, training and calibration.")

    def validate(self) -> None:
        """Raises InvalidValue where the budget is no duration."""
        _ = self.budget_s

    @property
    def budget_s(self) -> float | None:
        """Upper limit of the latency, in seconds."""
        return None if self.budget is None else parse_duration(self.budget, name="--budget")


@dataclass(frozen=True)
class QuickstartResult:
    """What came of the loop; paths are relative to the current folder.

    Attributes:
        architecture: The network that was found, trained and exported.
        device: What it was measured on.
        budget_ms: Upper limit of the latency of the int8 file.
        predicted_ms: Latency of the network by the table.
        measured_ms: Median latency of the int8 file; may be above the budget where the machine slowed down.
        fp32_ms: Median latency of the network in fp32.
        top1_fp32: Of the fp32 file on the validation videos.
        top1_int8: Of the int8 file on the same videos.
        chance: Top-1 of guessing.
        model: The int8 file.
        report: The page about the study.
        seconds: Wall time of the loop.
    """

    architecture: str
    device: str
    budget_ms: float
    predicted_ms: float
    measured_ms: float
    fp32_ms: float
    top1_fp32: float | None
    top1_int8: float | None
    chance: float
    model: Path
    report: Path
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The keys that ``hwbench quickstart --json`` prints."""
        return asdict(self) | {"model": str(self.model), "report": str(self.report)}

    def check_budget(self) -> None:
        """Raises OverBudget where the int8 file takes longer than the budget."""
        if self.measured_ms > self.budget_ms:
            raise OverBudget(
                f"{self.model} takes {self.measured_ms:.4g} ms, the budget is {self.budget_ms:g} ms; the search "
                "measured its network well within, so the machine is slower now than it was then. Run the command "
                "again when it is quiet, or with a larger --budget"
            )


def quickstart(
    request: QuickstartRequest, listener: Listener = SILENT, *, workspace: Workspace | str | Path | None = None
) -> QuickstartResult:
    """Runs the whole loop; what is done already is not done again.

    Args:
        request: The budget, the device and the seed.
        listener: Hears each step with its commands, and what the steps tell.
        workspace: Holds everything; default: the one around the current folder.

    Returns:
        What came of it, also where the file is over the budget in the end: ``check_budget`` tells.

    Raises:
        InfeasibleBudget: No network is that fast; the smallest reachable latency is named.
        HwbenchError: What the steps raise.
    """
    from hwbench.measure.builder import Builder
    from hwbench.workspace import Workspace

    started = time.monotonic()
    workspace = Workspace.at(workspace)
    # Build workers start once, and are gone before the training wants the memory.
    with Builder(RUNTIME, workspace.cache) as builder:
        loop = _Finding(request, listener, workspace, builder)
        budget_s, found, fp32_s = loop.run()
    folder = workspace.root / "runs" / found.study
    made = _Making(request, listener, workspace, found.study, folder)
    trained = made.train()
    models = made.export()
    stats = made.bench(models[INT8], budget_s)
    page = made.report(models)
    return QuickstartResult(
        architecture=trained.architecture,
        device=request.device,
        budget_ms=milliseconds(budget_s),
        predicted_ms=milliseconds(found.best.predicted_s),
        measured_ms=milliseconds(stats.median_s),
        fp32_ms=milliseconds(fp32_s),
        top1_fp32=models[FP32].manifest.accuracy.top1_after,
        top1_int8=models[INT8].manifest.accuracy.top1_after,
        chance=trained.chance,
        model=Path(shown(models[INT8].path)),
        report=Path(shown(page)),
        seconds=round(time.monotonic() - started, 1),
    )


@dataclass(frozen=True)
class _Finding:
    """The steps that need build workers: from the space to a network within the budget."""

    request: QuickstartRequest
    listener: Listener
    workspace: Workspace
    builder: Builder

    def run(self) -> tuple[float, SearchResult, float]:
        """The budget in seconds, the search within it, and the seconds of its best network in fp32."""
        if not self.workspace.store.is_file():  # the first time here: the runner is compiled meanwhile
            self.builder.warm_up()
        self.profile()
        budget_s = self.request.budget_s or self.budget()
        found = self.search(budget_s)
        return budget_s, found, self.compare(found)

    def profile(self) -> None:
        """The latency table of the space in int8."""
        device = self.request.device
        words = f"profile --device {device} --space {SPACE} --precision int8"
        _tell_step(self.listener, 1, "time the blocks of the space", words)
        wanted = ProfileRequest(device=device, space=SPACE, precision=INT8.value, runtime=RUNTIME)
        profile(wanted, self.listener, workspace=self.workspace, builder=self.builder)
        for _ in range(RETRIES):
            try:
                self.predictor()
            except NotMeasured as error:
                self.listener.say(f"{error}; what failed is measured again")
                again = replace(wanted, retry=True)
                profile(again, self.listener, workspace=self.workspace, builder=self.builder)
            else:
                return

    def predictor(self) -> tuple[AdditivePredictor, int]:
        """What the table says, and the number of classes."""
        return table_predictor(self.workspace, self.target(), INT8, SPACE)

    def target(self) -> Target:
        """What is measured."""
        from hwbench.devices import load_device

        return installed_target(load_device(self.workspace, self.request.device), RUNTIME, THREADS)

    def budget(self) -> float:
        """``ROOM`` times the predicted latency of the fastest network, rounded up to a tenth of a millisecond."""
        from hwbench.spaces import load_space
        from hwbench.studies.latencies import space_latencies

        predictor, classes = self.predictor()
        smallest_s, _ = space_latencies(load_space(self.workspace, SPACE), predictor, INT8, classes).smallest()
        budget_ms = math.ceil(ROOM * smallest_s * 1e4) / 10
        fastest = f"the fastest network is predicted to take {format_duration(smallest_s)}"
        self.listener.say(f"{fastest}: a budget of {budget_ms:g} ms")
        return budget_ms / 1e3

    def search(self, budget_s: float) -> SearchResult:
        """The best network within the budget, less what is kept in reserve; measured."""
        within_ms = float(f"{1e3 * budget_s * (1 - RESERVE):.4g}")
        device, seed = self.request.device, self.request.seed
        trainings = self.trainings()
        study = self.study(within_ms, trainings)
        learning = "".join(f"--learn-from {shlex.quote(one)} " for one in trainings)
        _tell_step(
            self.listener,
            2,
            f"search within {within_ms:g} ms, the budget less {RESERVE:.0%}, in case the machine slows down",
            f"search --device {device} --space {SPACE} --precision int8 --budget {within_ms:g}ms {learning}"
            f"--trials {TRIALS} --measure {CANDIDATES} --seed {seed} --study {study}",
        )
        wanted = SearchRequest(
            budget=f"{within_ms:g}ms",
            device=device,
            space=SPACE,
            precision=INT8.value,
            learn_from=trainings,
            trials=TRIALS,
            measure=CANDIDATES,
            seed=seed,
            study=study,
        )
        return search(wanted, self.listener, workspace=self.workspace, builder=self.builder)

    def trainings(self) -> tuple[str, ...]:
        """The table of trainings of the space that comes with hwbench; none of a space that was changed since."""
        from hwbench.spaces import load_space

        space = load_space(self.workspace, SPACE)
        sources = coming_with(self.workspace, (SPACE,))
        if not sources:
            return ()
        try:
            learn_from(self.workspace, space, sources)
        except InvalidValue as error:
            self.listener.say(f"{error}; so the search scores networks without trainings")
            return ()
        return sources

    def study(self, within_ms: float, trainings: tuple[str, ...]) -> str:
        """Name of the study; a study is of one device, one version of the engine and one kind of score."""
        target = self.target()
        name = f"quickstart-{within_ms:g}ms-{self.request.seed}-{target.device}-{target.version}"
        return re.sub(r"[^A-Za-z0-9._-]", "-", name) + ("-learned" if trainings else "")

    def compare(self, found: SearchResult) -> float:
        """Seconds that the network found takes in fp32."""
        from hwbench.spaces import resolve
        from hwbench.specs import Outcome

        _tell_step(self.listener, 3, "time the same network in fp32, to compare")
        network = resolve(self.workspace, f"{found.study}:best", found.settings.num_classes)
        measure = measuring(self.workspace, self.target(), RUNTIME, self.builder, listener=self.listener)
        (measured,) = measure([network.workload(FP32)])
        if measured.outcome is not Outcome.OK:
            raise CheckFailed("the network could not be timed in fp32 (see above); run the command again")
        return measured.stats.median_s


@dataclass(frozen=True)
class _Making:
    """The steps from a network to measured files and a page. ``folder``: of the run, with all that comes of it."""

    request: QuickstartRequest
    listener: Listener
    workspace: Workspace
    study: str
    folder: Path

    @property
    def checkpoint(self) -> Path:
        """The file of the trained weights."""
        return checkpoint_file(str(self.folder))

    def train(self) -> TrainResult:
        """The best network, trained on the synthetic videos."""
        name, out, seed = f"{self.study}:best", shown(self.folder), self.request.seed
        words = f"train {name} --data {DATA} --epochs {EPOCHS} --seed {seed} --out {out}"
        _tell_step(self.listener, 4, "train it on synthetic videos", words)
        wanted = TrainRequest(architecture=name, data=DATA, epochs=EPOCHS, seed=seed, out=self.folder)
        try:
            trained = train(wanted, self.listener, workspace=self.workspace)
        except InvalidValue:  # the best network is another one now, or an earlier version trained it otherwise
            self.listener.say(f"{out} holds what an earlier loop trained; it is trained anew")
            wanted = TrainRequest(architecture=name, data=DATA, epochs=EPOCHS, seed=seed, out=self.folder, fresh=True)
            trained = train(wanted, self.listener, workspace=self.workspace)
        self.listener.say(f"top-1 {trained.top1:.1%} on the validation videos")
        return trained

    def export(self) -> dict[Precision, DeployedModel]:
        """The trained network as checked files in int8 and, by a process beside this one, in fp32."""
        requests = {precision: self._export_request(precision) for precision in (INT8, FP32)}
        what = "export it in int8 and in fp32, checked against the original"
        _tell_step(self.listener, 5, what, *(" ".join(_words(one, shown)) for one in requests.values()))
        models = {precision: self._exported(wanted.out) for precision, wanted in requests.items()}
        if before := [shown(model.path.parent) for model in models.values() if model]:
            self.listener.say(f"{', '.join(before)}: exported before")
        if not any(models.values()):
            words = [*_words(requests[FP32], os.path.abspath), "--threads", "1"]
            with _running(words, self.workspace.root):
                models[INT8] = self._export(requests[INT8])
            models[FP32] = self._exported(requests[FP32].out)  # None where the process failed: this one tells why
        return {precision: model or self._export(requests[precision]) for precision, model in models.items()}

    def bench(self, model: DeployedModel, budget_s: float) -> LatencyStats:
        """The latency of an exported file; the last one counts where it is timed again."""
        path, device = shown(model.path), self.request.device
        _tell_step(self.listener, 6, "time the int8 file", f"bench {path} --device {device} --threads {THREADS}")
        wanted = BenchRequest(model=str(model.path), device=device, threads=THREADS)
        stats = bench(wanted, self.listener, workspace=self.workspace).stats
        for _ in range(ATTEMPTS - 1):
            if stats.median_s <= budget_s:
                break
            self.listener.say(
                f"{format_duration(stats.median_s)} is over the budget, which the search measured it to be within: the "
                f"machine slowed down; again in {PAUSE_S:.0f} s"
            )
            time.sleep(PAUSE_S)
            stats = bench(wanted, self.listener, workspace=self.workspace).stats
        return stats

    def report(self, models: dict[Precision, DeployedModel]) -> Path:
        """The page about the study. What is not in it is not told: the loop measured no more."""
        out = self.folder / "report.html"
        folders = tuple(Path(shown(model.path.parent)) for model in models.values())
        named = " ".join(f"--model {path}" for path in folders)
        _tell_step(self.listener, 7, "write the report", f"report {self.study} {named} --out {shown(out)}")
        report(ReportRequest(study=self.study, out=out, model=folders), workspace=self.workspace)
        return out

    def _export_request(self, precision: Precision) -> ExportRequest:
        return ExportRequest(
            model=str(self.checkpoint),
            precision=precision.value,
            out=self.folder / precision.value,
            seed=self.request.seed,
        )

    def _export(self, wanted: ExportRequest) -> DeployedModel:
        return export(wanted, self.listener, workspace=self.workspace).model

    def _exported(self, folder: Path) -> DeployedModel | None:
        """The file that was made of these weights with what is installed; None where there is none."""
        from hwbench.deploy import DeployedModel
        from hwbench.measure.cache import engine_version

        try:
            model = DeployedModel.open(folder)
        except InvalidFile:
            return None
        same = model.manifest.weights.sha256 == source_of(self.checkpoint).weights.sha256
        return model if same and model.manifest.runtime_version == engine_version(RUNTIME) else None


def _words(wanted: ExportRequest, path: Callable[[Path], str]) -> list[str]:
    """An export as a command; ``path`` writes a path."""
    files = (path(Path(wanted.model)), path(wanted.out))
    return ["export", files[0], "--precision", wanted.precision, "--seed", str(wanted.seed), "--out", files[1]]


@contextlib.contextmanager
def _running(words: list[str], folder: Path) -> Iterator[None]:
    """A command of hwbench in a folder beside what is done here; nothing of it is shown, and an error here ends it."""
    silent, command = subprocess.DEVNULL, python_command("hwbench", *words)
    with subprocess.Popen(command, env=python_environment(), cwd=folder, stdout=silent, stderr=silent) as process:
        try:
            yield
        except BaseException:
            process.kill()
            raise


def shown(path: Path) -> str:
    """A path as it is typed from here."""
    return os.path.relpath(path)


def _tell_step(listener: Listener, number: int, what: str, *commands: str) -> None:
    listener.say("\n      ".join([f"\n[{number}/{STEPS}] {what}", *(f"hwbench {command}" for command in commands)]))
