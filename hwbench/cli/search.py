"""``hwbench search``: find the best network within a latency budget, and measure it before it is called that."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hwbench.cli.main import app
from hwbench.cli.output import Json, emit, print_table, progress, say
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue
from hwbench.units import format_duration, milliseconds, parse_duration

if TYPE_CHECKING:
    from hwbench.latency import AdditivePredictor, LatencyTable
    from hwbench.measure.builder import Builder
    from hwbench.search.candidates import MeasureNetworks
    from hwbench.search.evaluators import Trainer
    from hwbench.search.study import Result, Watch
    from hwbench.specs import Measurement, Network, Precision, Target, Workload
    from hwbench.workspace import Workspace

INTERPOLATE = "Fill in rows that were not measured from those that were (boosted trees); intervals widen."
TRANSFER = "Device whose table stands in for rows that were not measured here; intervals widen."


@app.command()
def search(
    budget: Annotated[str, typer.Option(help='Latency budget with a unit, such as "12 ms".')],
    device: Annotated[str, typer.Option(help="Device: a folder of profiles/.")] = "local",
    space: Annotated[str, typer.Option(help="Search space: a file of search_spaces/.")] = "x3d-tiny",
    precision: Annotated[str, typer.Option(help="fp32 or int8.")] = "int8",
    threads: Annotated[int, typer.Option(min=1, help="Threads of the measured process.")] = 1,
    trials: Annotated[int, typer.Option(min=1, help="Networks to evaluate in all.")] = 64,
    evaluator: Annotated[str, typer.Option(help="entropy, zero-cost or short-train.")] = "entropy",
    sampler: Annotated[str, typer.Option(help="tpe, nsga2 or random.")] = "tpe",
    objective: Annotated[str, typer.Option(help='score, or "score,latency" for the front of both.')] = "score",
    study: Annotated[str | None, typer.Option(help="Name of the study; a study of that name goes on.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.")] = 0,
    measure: Annotated[int, typer.Option(min=1, help="Best candidates to measure on the device.")] = 3,
    data: Annotated[str, typer.Option(help="For short-train: synthetic, or a path.")] = "synthetic",
    epochs: Annotated[int, typer.Option(min=1, help="For short-train: epochs of a training.")] = 2,
    classes: Annotated[int | None, typer.Option(min=1, help="Classes of the heads; default: those profiled.")] = None,
    runtime: Annotated[str, typer.Option(help="executorch, onnx, torch or torchscript.")] = "executorch",
    allow_emulated: Annotated[
        bool, typer.Option("--allow-emulated", help="Take timings made under emulation, which are no latencies.")
    ] = False,
    interpolate: Annotated[bool, typer.Option("--interpolate", help=INTERPOLATE)] = False,
    transfer_from: Annotated[str | None, typer.Option(help=TRANSFER)] = None,
    as_json: Json = False,
) -> None:
    """Search a space for the best network within a latency budget on a device.

    Every network that is tried is within the budget by prediction; the best ones are measured on the device before one
    is reported. The same command goes on with the study of its name.
    """
    budget_s = parse_duration(budget, name="--budget")
    from hwbench.specs import Precision
    from hwbench.workspace import Workspace

    result = search_space(
        Workspace.find(),
        space,
        device,
        budget_s,
        precision=Precision.parse(precision),
        threads=threads,
        trials=trials,
        evaluator=evaluator,
        sampler=sampler,
        objective=objective,
        study=study,
        seed=seed,
        measure=measure,
        data=data,
        epochs=epochs,
        classes=classes,
        runtime=runtime,
        allow_emulated=allow_emulated,
        interpolate=interpolate,
        transfer_from=transfer_from,
    )
    if result.emulated:
        say("every time here was taken under emulation: it says nothing about a device")
    if as_json:
        emit(result.as_json(), as_json=True)
    else:
        print_result(result)
    say(f"next: hwbench train {result.study}:best")


def search_space(
    workspace: Workspace,
    space: str,
    device: str,
    budget_s: float,
    *,
    precision: Precision,
    threads: int = 1,
    trials: int = 64,
    evaluator: str = "entropy",
    sampler: str = "tpe",
    objective: str = "score",
    study: str | None = None,
    seed: int = 0,
    measure: int = 3,
    data: str = "synthetic",
    epochs: int = 2,
    classes: int | None = None,
    runtime: str = "executorch",
    allow_emulated: bool = False,
    interpolate: bool = False,
    transfer_from: str | None = None,
    builder: Builder | None = None,
) -> Result:
    """Searches a space by its published table and measures the best networks; progress goes to stderr.

    Args:
        workspace: Holds space, device, table and studies.
        space: Name of the space.
        device: Name of the device.
        budget_s: Upper limit of the latency, in seconds.
        precision: Of the arithmetic.
        threads: Threads of the measured process.
        trials: Networks to evaluate in all.
        evaluator: Name of the evaluator.
        sampler: Name of the sampler.
        objective: ``score``, or ``score,latency``.
        study: Its name; default: made of the arguments.
        seed: Of everything random.
        measure: Best candidates to measure.
        data: What ``short-train`` trains on.
        epochs: How long ``short-train`` trains.
        classes: Of the heads; default: those of the table.
        runtime: Name of the runtime.
        allow_emulated: Search a table that was taken under emulation; the result is stamped.
        interpolate: Fill missing rows in from measured ones.
        transfer_from: Fill missing rows in from the table of this device.
        builder: Builds the best candidates, and goes on living; default: one of its own.

    Raises:
        InvalidValue: The table was taken under emulation.
        InfeasibleBudget: No network is within the budget; the smallest reachable latency is named.
        OverBudget: None of the measured candidates is.
        NotMeasured: There is no table, or too little of the space is in it.
        UnknownName: No such space, device, evaluator or sampler.
    """
    from hwbench.devices import load_device
    from hwbench.search.latencies import choices_digest, feasible_set
    from hwbench.spaces import load_space

    staged = load_space(workspace, space)
    load_device(workspace, device)
    target = installed_target(device, runtime, threads)
    filling = (interpolate, transfer_from)
    predictor, num_classes = table_predictor(workspace, target, precision, space, classes, allow_emulated, filling)
    feasible = feasible_set(staged, predictor, precision, num_classes, budget_s)
    say(f"calibration: {predictor.calibration.describe()}")
    tell_feasible(feasible.count, feasible.share(), feasible.sums.coverage, budget_s)

    from hwbench.search.settings import Settings
    from hwbench.search.study import Search

    trains = evaluator == "short-train"
    settings = Settings(
        space=space,
        choices=choices_digest(staged),
        target=target.key,
        precision=precision.value,
        budget_ms=milliseconds(budget_s),
        num_classes=num_classes,
        evaluator=evaluator,
        sampler=sampler,
        objective=objective,
        data=data if trains else "",
        effort=f"{epochs} epochs" if trains else "",
        seed=seed,
    )
    filled = "_interpolated" * interpolate + (f"_from-{transfer_from}" if transfer_from else "")
    name = study or f"{space}_{device}_{precision}_{milliseconds(budget_s):g}ms_{evaluator}{filled}"
    with bar() as watch:
        return Search(
            workspace=workspace,
            name=name,
            settings=settings,
            feasible=feasible,
            spread=predictor.spread,
            emulated=predictor.table.emulated,
            measure=measuring(workspace, target, runtime, builder),
            trainer=short_trainer(workspace, data, epochs) if trains else None,
            watch=watch,
        ).run(trials, measure)


def table_predictor(
    workspace: Workspace,
    target: Target,
    precision: Precision,
    space: str,
    classes: int | None = None,
    allow_emulated: bool = False,
    filling: tuple[bool, str | None] = (False, None),
) -> tuple[AdditivePredictor, int]:
    """What predicts from the published table of a target, and the number of classes that heads of the table have.

    Args:
        workspace: Holds tables, spaces and devices.
        target: What is predicted for.
        precision: Of the arithmetic.
        space: Name of the space.
        classes: Of the heads; default: those of the table.
        allow_emulated: Take a table that was taken under emulation.
        filling: Whether missing rows are interpolated, and the device whose rows are taken for them; what is filled in
            is said on stderr.

    Raises:
        NotMeasured: There is no table; the command that makes it is named.
        InvalidValue: It was taken under emulation.
        InvalidFile: It does not validate, or ``classes`` is None and its heads are for several numbers of classes.
    """
    from hwbench.latency import AdditivePredictor, interpolated, load_table, transferred
    from hwbench.spaces import load_space

    interpolate, other = filling
    if interpolate and other:
        raise InvalidValue("--interpolate and --transfer-from fill in the same rows; choose one")
    known = load_table(workspace, replace(target, device=other or target.device), precision, space)
    table = load_table(workspace, target, precision, space) if other else known
    num_classes = classes or profiled_classes(known, space)
    parts = list(load_space(workspace, space).parts(precision, num_classes=num_classes)) if interpolate or other else []
    if interpolate:
        table = interpolated(table, parts)
    elif other:
        table = transferred(known, table)
    if parts:
        lacking = [part for part in parts if not table.is_measured(part)]
        share = sum(part in table for part in lacking) / len(parts)
        say(f"{share:.1%} of {len(parts)} rows of the space were not measured: {table.how}")
    return AdditivePredictor.fit(table, space=space, emulated=allow_emulated), num_classes


def installed_target(device: str, runtime: str, threads: int) -> Target:
    """The target that this installation measures on; found without loading the engine.

    Raises:
        UnknownName: No such runtime.
        MissingDependency: The engine is not installed.
    """
    from hwbench.measure.cache import engine_version
    from hwbench.specs import Target

    return Target(device, runtime, engine_version(runtime), threads)


def profiled_classes(table: LatencyTable, space: str) -> int:
    """The number of classes that the heads of a table have.

    Raises:
        InvalidFile: There are none, or several: which are meant must be said.
    """
    from hwbench.latency import Role
    from hwbench.specs import BlockRole

    ends = [row.workload.blocks[-1] for row in table.rows(Role.BLOCK)]
    found = sorted({block.out_channels for block in ends if block.role is BlockRole.HEAD})
    if len(found) == 1:
        return found[0]
    counts = ", ".join(map(str, found)) or "none"
    raise InvalidFile(
        f"the table of {table.target} in {table.precision} has heads for these numbers of classes: {counts}; "
        f"choose one with --classes, or measure: {table.command(space)}"
    )


def measuring(
    workspace: Workspace,
    target: Target,
    runtime: str,
    builder: Builder | None = None,
    *,
    keep: Collection[Workload] | None = None,
) -> MeasureNetworks:
    """Measures whole networks on a device: built, timed, stored; what the store knows already is not repeated.

    Args:
        workspace: Holds device, store and build cache.
        target: What is measured on.
        runtime: Name of the runtime.
        builder: Builds, and goes on living; default: one of its own.
        keep: Measure all of it now, whatever is known, into a file of its own (``store_aside``), and then copy the rows
            of these into the store, where it has none. Default: what the store lacks is measured, and goes there.
    """

    def measure(workloads: Sequence[Workload]) -> Sequence[Measurement]:
        from hwbench.cli.campaigns import bars, place_campaign, say_failures, store_aside
        from hwbench.devices import load_device
        from hwbench.measure.store import MeasurementStore

        place = load_device(workspace, target.device)
        with (
            MeasurementStore(workspace.store) if keep is None else store_aside(workspace, target.device) as store,
            place_campaign(
                store, workspace, place, runtime=runtime, threads=target.threads, builder=builder
            ) as campaign,
        ):
            if campaign.target != target:
                raise HwbenchError(f"expected to measure on {target}, the device is {campaign.target}")
            with bars() as watch:
                result = campaign.run(workloads, watch)
            if keep is not None:
                with MeasurementStore(workspace.store) as known:
                    known.take_over(store, keep)
        say_failures(result.failed)
        return result.measurements

    return measure


def short_trainer(workspace: Workspace, data: str, epochs: int) -> Trainer:
    """Trains a network for a few epochs and returns its top-1 on the validation videos; everything follows the seed.

    Videos are decoded once and kept. A training that diverges has no score, which ends its trial and nothing else.
    """
    import functools

    from hwbench.errors import CheckFailed
    from hwbench.train.loop import fit
    from hwbench.train.recipe import Recipe
    from hwbench.train.run import Data, initial, open_data

    @functools.cache
    def opened(size: tuple[int, int, int], recipe: Recipe) -> Data:
        return open_data(workspace, data, size, recipe)

    def train(network: Network, seed: int) -> float:
        recipe = Recipe(epochs=epochs, seed=seed, eval_every=epochs)
        clips = opened((network.input.t, network.input.h, network.input.w), recipe)
        module = initial(network.with_classes(len(clips.training.classes)), recipe)
        try:
            scores = fit(module, clips.training, clips.validation, recipe).scores
        except CheckFailed:
            return float("nan")
        return float("nan") if scores is None else scores.top1

    return train


def tell_feasible(count: float, share: float, coverage: float, budget_s: float) -> None:
    """Says how large the feasible set is, and what is missing from it."""
    number = f"{count:.0f}" if count < 1e6 else f"{count:.2e}"
    say(f"{number} networks ({share:.1%} of the space) are within {format_duration(budget_s)}")
    if coverage < 1:
        say(f"only {coverage:.2%} of the space is measured; the rest is left out")


@contextmanager
def bar() -> Iterator[Watch]:
    """One bar over the trials, with the best score so far."""
    from hwbench.search.study import Watch

    with progress() as display:

        class Bar(Watch):
            def started(self, trials: int, finished: int) -> None:
                self.first, self.done, self.since = finished, finished, time.monotonic()
                self.best = float("-inf")
                note = f"{finished} from before" if finished else ""
                self.task = display.add_task("search", total=trials, completed=finished, rate="", note=note)

            def evaluated(self, candidate: object) -> None:
                from hwbench.search.candidates import Candidate

                assert isinstance(candidate, Candidate)
                self.done += 1
                self.best = max(self.best, candidate.score)
                rate = (self.done - self.first) / max(time.monotonic() - self.since, 1e-3)
                text = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.0f}/min"
                display.update(self.task, completed=self.done, rate=text, note=f"best {self.best:.4g}")

            def exhausted(self, networks: int) -> None:
                display.update(self.task, total=self.done, note=f"all {networks} networks within the budget seen")

        yield Bar()


def print_result(result: Result) -> None:
    """Prints the front with the best network, as a table."""
    rows = []
    shown = list(result.pareto)
    if result.best.architecture not in {c.architecture for c in shown}:
        shown.append(result.best)
    for candidate in sorted(shown, key=lambda c: c.predicted_s):
        measured = "-" if candidate.measured_s is None else format_duration(candidate.measured_s)
        mark = "best" if candidate.architecture == result.best.architecture else ""
        cells = (mark, f"{candidate.score:.4g}", format_duration(candidate.predicted_s), measured)
        rows.append((*cells, candidate.architecture))
    title = f"{result.study}: {result.trials} trials within {format_duration(result.settings.budget_s)}"
    print_table(("", "score", "predicted", "measured", "architecture"), rows, title=title)
