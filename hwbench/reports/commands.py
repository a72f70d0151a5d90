"""The command lines that make the numbers of a study, every option written out so that no default is relied on."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from hwbench.reports.exported import ExportedModel
from hwbench.reports.result import StoredResult
from hwbench.runtimes import DEFAULT, exporting, names, usable
from hwbench.spaces.begun import SHARES, asked_ms
from hwbench.specs import Precision, Target
from hwbench.studies.evaluators import TRAINING
from hwbench.studies.settings import INTERPOLATED, LEFT_OUT, RAISE, transferred_from
from hwbench.training.recipe_files import setting_texts
from hwbench.workspace import NO_TRAININGS

_SYNTHETIC = "synthetic"
# Begins from the trainings that come with a space where it is told of no others.
_BEGINS = "short-train"
# Networks that are to race where none did, of as many trials or more.
_FINALISTS = 8
# Trials at least of a study that goes on because too few networks for a race were tried.
_MORE_TRIALS = 16


def profile(result: StoredResult, precision: Precision, target: Target | None = None) -> str:
    """Measures the latency table, of a further target where one is named."""
    return f"hwbench profile {_place(result, precision, target)} --space {_space(result)}{_form(result)}"


def validate(result: StoredResult, networks: int = 12) -> tuple[str, ...]:
    """Measures networks that no calibration has seen, and compares; none: a model of one's own is the one network."""
    if result.own_model is not None:
        return ()
    place, space = _place(result, result.precision), shlex.quote(result.space)
    filling = _filling(result.settings.missing_rows)
    return (f"hwbench validate {place} --space {space} --networks {networks} {filling}{_form(result)}",)


def search(result: StoredResult) -> str:
    """Repeats the study: what is stored is not computed or measured again."""
    return _search(result, _race(result))


def let_race(result: StoredResult) -> str:
    """Repeats the study, and lets the best of its networks race on its data."""
    return _let_race(result, result.trials, _trials(result))


def let_more_race(result: StoredResult) -> str:
    """Goes on with the study, for more trials, and lets the best of its networks race on its data."""
    trials = max(_MORE_TRIALS, 2 * _trials(result))
    return _let_race(result, trials, trials)


def _let_race(result: StoredResult, networks: int, trials: int) -> str:
    data = [] if result.settings.data else [f"--data {_data(result)}"]
    return _search(result, [*data, f"--finalists {max(2, min(_FINALISTS, networks))}"], trials)


def _search(result: StoredResult, race: list[str], trials: int | None = None) -> str:
    """Repeats the study with these options of the race; for so many trials, None: as many as were asked for."""
    s = result.settings
    limits = {s.device: s.front_ms} if s.smaller_budgets_ms else {name: (ms,) for name, ms in s.budgets_ms.items()}
    budgets = [asked_ms(limit, s.sustained.get(name, 1.0)) for name, several in limits.items() for limit in several]
    budget = ",".join(f"{limit:.12g}ms" for limit in budgets)
    words = [
        f"hwbench search --space {_space(result)} {_place(result, result.precision, several=s.budgets_ms)}",
        f"--budget {budget}",
        f"--trials {trials or _trials(result)}",
        f"--evaluator {shlex.quote(s.evaluator)} --sampler {shlex.quote(s.sampler)}",
        f"--objective {shlex.quote(s.objective)} --seed {s.seed}{_measure(result)}",
    ]
    if s.data:
        epochs = re.match(r"\d+", s.effort)
        words.append(f"--data {shlex.quote(s.data)}" + (f" --epochs {epochs[0]}" if epochs else ""))
        words += [f"--supernet-epochs {count}" for count in re.findall(r"^supernet of (\d+) epochs", s.effort)]
        words += [f"--{name} {share}" for name, share in SHARES.findall(s.effort)]
    words += _seen(result)
    if result.course is not None and result.course.startup is not None:
        words.append(f"--startup {result.course.startup}")
    if s.pruner:
        words.append(f"--pruner {shlex.quote(s.pruner)}")
    if result.storage is not None:
        words.append(f"--storage {shlex.quote(result.storage)}")
    words += [f"--learn-from {shlex.quote(source)}" for source in s.sources]
    if s.evaluator == _BEGINS and not s.sources:  # which would begin from those that come with a space
        words.append(f"--learn-from {NO_TRAININGS}")
    if s.sustained:
        words.append("--sustained")
    if s.streaming:
        words.append("--streaming")
    if s.max_file_bytes:
        words.append(f"--max-file-size {s.max_file_bytes}B")
    if s.max_activation_bytes:
        words.append(f"--max-activations {s.max_activation_bytes}B")
    if s.emulated:
        words.append("--allow-emulated")
    words.append(_filling(s.missing_rows))
    if s.missing_rows != LEFT_OUT:
        words.append(f"--measure-rows {result.most_rows}")
    if not s.by_prediction:
        words.append(f"--confidence {s.confidence}")
    return " ".join([*words, *race, f"--study {shlex.quote(result.study)}"])


def _trials(result: StoredResult) -> int:
    """How many trials were asked for: those that replace others come on top again where newer rows demand it."""
    asked = None if result.course is None else result.course.trials
    return max(1, result.trials - result.replaced) if asked is None else asked


def _measure(result: StoredResult) -> str:
    """The option that says how many of the best networks are measured for each budget.

    Versions up to 0.1 did not store it: the most networks that were measured within one budget and no smaller one come
    close, but where finalists raced, as many as began the race were measured besides.
    """
    if result.course is not None and result.course.measure is not None:
        return f" --measure {result.course.measure}"
    if result.races:
        return ""
    front = result.settings.front_ms
    places = Counter(next((b for b in front if 1e3 * c.predicted_s <= b), front[-1]) for c in result.measured)
    return f" --measure {max(places.values(), default=1)}"


def _seen(result: StoredResult) -> list[str]:
    """The options that say what networks see, where these are no pictures, and what happens with unreadable videos."""
    modality = result.settings.modality
    return ([f"--modality {shlex.quote(modality)}"] if modality else []) + _on_error(result)


def _on_error(result: StoredResult) -> list[str]:
    """The option that says what happens with unreadable videos, where they are no error."""
    policy = result.settings.on_error
    return [] if policy == RAISE else [f"--on-error {shlex.quote(policy)}"]


def _filling(missing_rows: str) -> str:
    """The option that says what becomes of rows that were not measured."""
    source = transferred_from(missing_rows)
    if source is not None:
        return f"--transfer-from {shlex.quote(source)}"
    return "--interpolate" if missing_rows == INTERPOLATED else "--no-interpolate"


def _race(result: StoredResult) -> list[str]:
    """The options of the race of the finalists, where one was run."""
    race = next((one for one in result.races.values() if one.rounds), None)
    if race is None:  # where networks are trained, a race is the default
        return ["--finalists 0"] if result.settings.evaluator in TRAINING else []
    finalists = max(len(one.rounds[0].standings) for one in result.races.values() if one.rounds)
    words = [f"--finalists {finalists} --finalist-epochs {race.rounds[0].epochs} --finalist-score {race.score}"]
    return words if result.settings.data else [f"--data {shlex.quote(race.data)}", *words]


def bench(result: StoredResult, precision: Precision, target: Target | None = None) -> str:
    """Measures the winner as a whole network, now; on a further target where one is named."""
    return f"hwbench bench {_best(result)} {_place(result, precision, target)}{_form(result)}"


def _form(result: StoredResult) -> str:
    """The option of commands about single frames."""
    return " --streaming" if result.settings.streaming else ""


# Options of ``hwbench train`` and what they are called in a recipe.
_RECIPE = {
    "epochs": "epochs",
    "batch-size": "batch_size",
    "lr": "learning_rate",
    "optimizer": "optimizer",
    "precision": "precision",
    "seed": "seed",
}


def train(result: StoredResult, model: ExportedModel | None = None) -> str:
    """Trains the winner; as an exported model of it was trained, where there is one."""
    recipe = {} if model is None else model.recipe
    causal = _seen(result) + (["--causal"] if result.settings.streaming else [])
    options = [f"--{option} {shlex.quote(str(recipe[key]))}" for option, key in _RECIPE.items() if key in recipe]
    others = {name: value for name, value in recipe.items() if name not in _RECIPE.values()}
    options += [f"--set {shlex.quote(text)}" for text in setting_texts(others, str(recipe.get("optimizer", "")))]
    return " ".join(
        [f"hwbench train {_best(result)} --data {_data(result, model)}", *causal, *options, f"--out {_run(result)}"]
    )


def export(result: StoredResult, precision: Precision) -> str:
    """Writes the trained winner as a file, and tests it."""
    runtime = _exporting(result.target.runtime, precision)
    made_by = "" if result.own_model is None else f" --made-by {shlex.quote(result.own_model)}"
    return " ".join(
        [
            f"hwbench export {_run(result)}/checkpoint.pt --precision {precision} --runtime {shlex.quote(runtime)} "
            f"--out {exported(result, precision)}{made_by}{_form(result)}",
            *_on_error(result),
        ]
    )


def _exporting(measured: str, precision: Precision) -> str:
    """The runtime that a study measured with, or one that exports: a runtime whose files hold no weights does not.

    One of a package that is not installed here may do.
    """
    if measured not in names() or measured in exporting():
        return measured
    able = [name for name in exporting() if precision in usable()[name].precisions]
    return DEFAULT if DEFAULT in able or not able else able[0]


def exported(result: StoredResult, precision: Precision) -> str:
    """The folder that ``export`` writes, as a word of a command line."""
    return f"{_run(result)}/{precision}"


def bench_file(result: StoredResult, path: Path) -> str:
    """Measures an exported file, now; its ending says the runtime, which need not be that of the study."""
    target = result.target
    return f"hwbench bench {shlex.quote(str(path))} --device {shlex.quote(target.device)} --threads {target.threads}"


def report(result: StoredResult, models: tuple[Path, ...] = (), truth: str | None = None) -> str:
    """Writes the page, of exported models in these folders and beside ground truth in that one."""
    words = [f"--model {shlex.quote(str(path))}" for path in models]
    words += [] if truth is None else [f"--truth {shlex.quote(truth)}"]
    return " ".join([f"hwbench report {shlex.quote(result.study)}", *words, "--out report.html"])


def _place(
    result: StoredResult, precision: Precision, target: Target | None = None, *, several: Iterable[str] = ()
) -> str:
    """The options that say where and how is measured: on the target of the study, another one, or several devices."""
    target = target or result.target
    device = ",".join(several) or target.device
    return (
        f"--device {shlex.quote(device)} --precision {precision} --threads {target.threads} "
        f"--runtime {shlex.quote(target.runtime)} --classes {result.settings.num_classes}"
    )


def _space(result: StoredResult) -> str:
    return shlex.quote(",".join(result.named.get(name, name) for name in result.settings.space.split(",")))


def _best(result: StoredResult) -> str:
    return shlex.quote(result.own_model or f"{result.study}:best")


def _run(result: StoredResult) -> str:
    return shlex.quote(f"runs/{result.study}")


def _data(result: StoredResult, model: ExportedModel | None = None) -> str:
    """What the winner was trained on, where that is known, or what the study trained on or learned from."""
    raced = [race.data for race in result.races.values()]
    known = [model.source if model else "", result.settings.data, *raced, result.learned_data, _SYNTHETIC]
    return shlex.quote(next(filter(None, known)))
