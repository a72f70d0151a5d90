"""``hwbench.search``: the best network of a space within a latency budget, measured before it is called that."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hwbench.api.begun_trainings import beginning, new_beginning
from hwbench.api.learned import seen
from hwbench.api.learning import coming_with, learn_from
from hwbench.api.listener import SILENT, Listener
from hwbench.api.prediction import measuring
from hwbench.api.score_plan import (
    LEARNED,
    NO_PRUNER,
    WITH_DATA,
    WITHOUT_DATA,
    going_on,
    racing_as_asked,
    racing_as_many,
)
from hwbench.api.search_checks import check_clips, check_modality, check_names, check_runtime, check_spelling
from hwbench.api.search_devices import device_budgets, front_within, predictors, with_rows_of_study
from hwbench.api.search_effects import check_effects
from hwbench.api.search_request import SUPERNET, SearchRequest
from hwbench.api.search_rows import RowCutting
from hwbench.api.search_sustained import begun_for_minutes, cooled, for_minutes
from hwbench.api.search_talk import begun_from, search_watch, tell_feasible, tell_predictions
from hwbench.api.study_data import StudyData, tell_unread
from hwbench.api.study_supernet import StudySupernet
from hwbench.api.training_forecast import TrainingForecast, time_limit
from hwbench.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hwbench.api.learned import Learned
    from hwbench.api.search_devices import DevicePredictors
    from hwbench.measure.builder import Builder
    from hwbench.spaces.protocols import NetworkSet, SearchedSpace
    from hwbench.studies.earlier import EarlierTrainings
    from hwbench.studies.evaluations import WorkerPlan
    from hwbench.studies.pruning import Pruning
    from hwbench.studies.race import Race
    from hwbench.studies.search_result import SearchResult
    from hwbench.studies.settings import Settings
    from hwbench.workspace import Workspace

# In the folder of a study: what its supernet was trained on.
_SUPERNET_NOTE = "supernet.txt"


def search(
    request: SearchRequest,
    listener: Listener = SILENT,
    *,
    workspace: Workspace | str | Path | None = None,
    builder: Builder | None = None,
) -> SearchResult:
    """Searches a space by its published table and measures the best networks.

    Args:
        request: What to search for.
        listener: Hears of every trial, and of every measurement.
        workspace: Holds space, device, table and studies; default: the one around the current folder.
        builder: Builds the best candidates, and goes on living; default: one of its own.

    Raises:
        InvalidValue: The table was taken under emulation, the study exists with other settings, tables of several
            devices have heads for different numbers of classes, the runtime is not carried to a device, or an option
            would change nothing.
        InfeasibleBudget: No network is within the budgets; the smallest reachable latency is named, or the nearest
            budgets.
        OverBudget: None of the measured candidates is within the (largest) budget.
        NotMeasured: There is no table, or too little of the space is in it; or no sustained latency was measured.
        UnknownName: No such space, device, evaluator, sampler or study to learn from.
        UnsupportedModule: The runtime does not build the precision, or streams.
    """
    from hwbench.spaces import open_spaces, spaces_with_classes
    from hwbench.spaces.begun import ASKED, BEGUN_FROM
    from hwbench.studies.stored_settings import stored_settings
    from hwbench.workspace import Workspace

    workspace = Workspace.at(workspace)
    check_spelling(request, workspace)
    ratios = for_minutes(request, workspace, listener)
    check_runtime(request)
    space = open_spaces(workspace, request.spaces, request.classes, request.variant)
    known, num_classes = predictors(request, workspace, space, listener)
    space = spaces_with_classes(space, num_classes)
    targets = [one.target for one in known]
    emulated = any(one.emulated for one in known)

    def settings_of(request: SearchRequest, learned: str, ratios: Mapping[str, float]) -> Settings:
        asked = cooled(request, ratios).settings(
            space, targets[0], num_classes, emulated=emulated, further=targets[1:], learned=learned
        )
        return with_rows_of_study(replace(asked, sustained=ratios), request, workspace, space, known)

    def default_study(request: SearchRequest) -> str:
        return settings_of(request, "", ratios).default_study

    asked, request = request, _learning(request, workspace, space, default_study, listener)
    begun_as, ratios = begun_for_minutes(request, ratios, partial(settings_of, request, ""), workspace, listener)
    asked, request = replace(asked, study=begun_as), replace(request, study=begun_as)
    request = _going_on(asked, request, workspace, settings_of(request, "", ratios), listener)
    check_effects(request)
    unlearned = settings_of(request, "", ratios)
    name = request.study or unlearned.default_study
    stored = stored_settings(workspace.studies / name, request.study_storage)
    unlearned.check_same_spaces(stored, name)
    begun_with = beginning(request, workspace, space, workspace.studies / name, stored, listener)
    learned = begun_with.learned if begun_with else None
    settings = settings_of(request, begun_with.label if begun_with else "", ratios)
    *smaller, feasible = front_within(space, known, settings)
    for one in known:
        tell_predictions(one, settings, listener, of_device=len(known) > 1)
    tell_feasible([*smaller, feasible], settings, listener)
    scoring, request = request, _racing_again(request, workspace, name if stored else None, learned, listener)
    kept = {BEGUN_FROM: begun_with.to_text() if begun_with else "", ASKED: json.dumps(request.asked, indent=1)}
    # Loads Optuna and torch, which an impossible budget does not wait for.
    check_names(workspace, request, feasible, listener)

    from hwbench.studies.evaluators import get as get_evaluator
    from hwbench.studies.evaluators import scoring_of
    from hwbench.studies.latencies import sizes
    from hwbench.studies.storage import check_marker
    from hwbench.studies.stored_settings import JOURNAL
    from hwbench.studies.study import Search

    check_marker(workspace.studies / name, request.study_storage, workspace.studies / name / JOURNAL)
    settings = replace(settings, scoring=scoring_of(get_evaluator(settings.evaluator)))
    if stored:
        settings.check_same(stored, name)  # before a supernet is trained for it
    data = _data(request, workspace, listener)
    check_modality(data, feasible, listener)
    check_clips(data, feasible)
    supernet = _supernet(request, workspace, data, feasible, workspace.studies / name if stored else None, listener)
    if supernet is not None:
        kept[_SUPERNET_NOTE] = supernet.networks + "\n"
    left_out = learned.left_out(feasible.sums) if learned else None
    if learned is not None:
        listener.say(learned.describe(left_out, beside=request.trains))
    earlier = _earlier(request, settings, learned)
    begun = bool(stored)
    if earlier is not None:
        for line in begun_from(earlier, [*smaller, feasible], 0 if begun else request.plan.trials):
            listener.say(line)

    race, data = _race(request, workspace, name, space, num_classes, data, listener), data.of(scoring.plan.data)
    forecast = TrainingForecast.of(request, data, feasible, num_classes, races=len(settings.front_ms))
    startup = _startup(request, workspace.studies / name if begun else None, forecast, earlier, listener)
    watch = search_watch(listener, forecast, settings, name)

    def ready(known: Sequence[DevicePredictors], smaller: Sequence[NetworkSet], feasible: NetworkSet) -> Search:
        first, *further = device_budgets(
            space, known, settings, feasible,
            lambda target: measuring(workspace, target, request.runtime, builder, listener=listener),
        )  # fmt: skip
        return Search(
            workspace=workspace,
            name=name,
            settings=settings,
            feasible=feasible,
            spread=first.spread,
            occasion=first.occasion,
            measure=first.measure,
            trainer=data.top1,
            losses=data.losses,
            clips=data.clips,
            inherited=supernet.top1 if supernet else None,
            tested=data.tested,
            fitted=learned.scores(feasible.sums) if learned and not request.trains else None,
            earlier=earlier,
            watch=watch,
            latencies=None if settings.by_prediction else first.latencies,
            further=further,
            sizes=sizes(feasible),
            workers=_workers(request),
            storage=request.study_storage,
            smaller=smaller,
            race=race,
            pruning=_pruning(request, settings),
            startup=startup,
            time_limit=time_limit(request, feasible, races=len(settings.front_ms)),
            channels=data.channels,
            named=request.named,
            learned=left_out,
            kept=kept,
            videos=partial(data.videos, request.seed) if settings.data else None,
        )

    def again(before: Search) -> tuple[Search, Sequence[DevicePredictors]]:
        known, _ = predictors(request, workspace, space, SILENT)
        *smaller, feasible = front_within(space, known, settings)
        remade = ready(known, smaller, feasible)
        return replace(remade, replaces=before.replaces), known

    study, cut = ready(known, smaller, feasible), None
    cutting = RowCutting.of(request, known, workspace, builder, listener)
    if cutting is not None:
        study, cut = cutting.run(study, known, again)
    result = study.run(request.plan.trials, request.measure, cut)
    if result.emulated:
        devices = [one.target.device for one in known if one.emulated]
        times = "every time here was" if len(devices) == len(known) else f"every time on {', '.join(devices)} was"
        listener.say(f"{times} taken under emulation: it says nothing about a device")
    return result


def _learning(
    request: SearchRequest,
    workspace: Workspace,
    space: SearchedSpace,
    default_study: Callable[[SearchRequest], str],
    listener: Listener,
) -> SearchRequest:
    """The request, which begins from the trainings that come with its spaces where it names no others.

    A study that goes on keeps what it began from, whatever comes with its spaces now.

    Args:
        request: What is asked for.
        workspace: Has the trainings, and the studies.
        space: Of the networks.
        default_study: Name of the study of a request that names none.
        listener: Hears why a study begins without trainings although there are some.

    Raises:
        InvalidValue: Networks are to be scored by trainings, and those that come with the space are of another one, or
            on several data of which none is named.
    """
    from hwbench.studies.stored_settings import stored_settings

    wanted = request.evaluator == LEARNED
    if request.learn_from or request.evaluator not in (None, LEARNED, WITH_DATA):
        return request
    trainings = coming_with(workspace, request.spaces)
    if not trainings:
        return request
    learning = replace(request, learn_from=trainings)
    stored = stored_settings(workspace.studies / (request.study or default_study(learning)), request.study_storage)
    if stored and request.evaluator in (None, stored.get("evaluator")):
        return learning
    try:
        new_beginning(learning, learn_from(workspace, space, trainings))
    except InvalidValue as error:  # the space was changed since, it was trained otherwise, or nothing names the data
        if wanted:
            raise
        listener.say(f"{error}; so the study begins without trainings")
        return request
    return learning


def _going_on(
    asked: SearchRequest, request: SearchRequest, workspace: Workspace, settings: Settings, listener: Listener
) -> SearchRequest:
    """The request, with what it leaves open as the study of its name has it; says where that is not the default.

    Args:
        asked: What is asked for.
        request: The same, with the trainings that come with the space where they are the default.
        workspace: Has the studies.
        settings: Of the request, which name the study where the request does not.
        listener: Hears which study there is besides.

    Raises:
        InvalidValue: The study cannot be called so, its evaluator does not go with the rest of the request, or there
            are no trainings to score by.
    """
    from hwbench.api.finalists import last_race
    from hwbench.specs.study_name import check_new_name
    from hwbench.studies.stored_settings import stored_settings

    name = request.study or settings.default_study
    check_new_name(name)
    stored, default = stored_settings(workspace.studies / name, request.study_storage), request.plan.evaluator
    if stored and asked.evaluator in (None, stored.get("evaluator")):
        request = asked
    going = going_on(request, stored)
    racing = racing_as_many(going, last_race(workspace, name) if stored and going.finalists is None else {})
    if racing.plan.finalists != going.plan.finalists:
        many = racing.plan.finalists
        listener.say(f"study {name} races as it did last, with --finalists {many}; --finalists 0 leaves the race out")
    going = racing
    if going.evaluator == LEARNED and not going.sources:
        raise InvalidValue(
            f"--evaluator {LEARNED} needs --learn-from: a study of curve or short-train, a table of trainings, or a "
            f"folder of ground truth; none comes with --space {request.space}"
        )
    data = f"--data {shlex.quote(going.plan.data)}" if going.plan.data != request.plan.data else ""
    if going.plan.evaluator != default:
        listener.say(
            f"study {name} goes on as it began, with --evaluator {going.plan.evaluator}{' and ' * bool(data)}{data}; "
            f"{default}, the default {'with' if request.data else 'without'} --data, takes another --study"
        )
    elif data:
        listener.say(f"study {name} goes on as it began, with {data}")
    begins = not (request.study or request.evaluator or stored)
    if begins and default != WITHOUT_DATA:
        other = replace(settings, evaluator=WITHOUT_DATA).default_study
        if stored_settings(workspace.studies / other, request.study_storage):
            how = "trained" if default == WITH_DATA else "scored by trainings"
            listener.say(f"networks are {how} from here on; study {other} goes on with --evaluator {WITHOUT_DATA}")
    return going


def _racing_on(request: SearchRequest, learned: Learned | None) -> SearchRequest:
    """The request, with the data that it learns from where networks race, no score rests on data, and none are named.

    Data of scores are settings of a study: those that were left open stay what they were.
    """
    from hwbench.studies.ground_truth import is_truth

    if learned is None or request.data is not None or request.reads or not request.plan.finalists:
        return request
    data = learned.videos[0] if len(learned.videos) == 1 else ""
    if not data or any(map(is_truth, request.sources)):  # the data of a ground truth may be nowhere else
        return request
    return replace(request, data=data, evaluator=request.plan.evaluator)


def _racing_again(
    request: SearchRequest, workspace: Workspace, study: str | None, learned: Learned | None, listener: Listener
) -> SearchRequest:
    """The request as of ``_racing_on``, where a study that goes on has raced with the data of its last race.

    Args:
        request: What is asked for.
        workspace: Has the studies.
        study: Name of the study that goes on; None: it begins.
        learned: What it begins from.
        listener: Hears of data that are not the default.
    """
    from hwbench.api.finalists import last_race

    if study is None:
        return _racing_on(request, learned)
    last = last_race(workspace, study)
    request = _as_asked(request, study, last, listener)
    racing = _racing_on(request, learned)
    data = last.get("data", "")
    scores_by_data = request.reads and not request.plan.of_others  # data of others' scores are in request.data by now
    if request.data is not None or scores_by_data or data in ("", racing.plan.data):
        return racing
    if request.plan.finalists:
        listener.say(f"study {study} races on the data of its last race, --data {shlex.quote(data)}")
    return replace(request, data=data, evaluator=request.plan.evaluator)  # without a race, too: its folder keeps them


def _as_asked(request: SearchRequest, study: str, last: Mapping[str, str], listener: Listener) -> SearchRequest:
    """The request, with the epochs and the score of the last race of a study; says where these are not the defaults."""
    asked = racing_as_asked(request, last)
    if asked.plan.finalists and asked.plan != request.plan:
        how = f"--finalist-epochs {asked.plan.finalist_epochs} --finalist-score {asked.plan.finalist_score}"
        listener.say(f"study {study} races as it was asked for last, with {how}")
    return asked


def _data(request: SearchRequest, workspace: Workspace, listener: Listener) -> StudyData:
    """What is trained on; a listener hears where videos may be left out."""
    source, on_error = request.plan.data, request.on_error
    if request.reads or request.plan.finalists:
        tell_unread(source, on_error, listener)
    return StudyData(workspace, source, request.fidelity, request.decoder, request.modality, on_error)


def _earlier(request: SearchRequest, settings: Settings, learned: Learned | None) -> EarlierTrainings | None:
    """What the study knows before its first trial; None: nothing."""
    from hwbench.studies.earlier import EarlierTrainings

    if learned is None:
        return None
    if not request.trains:
        return EarlierTrainings(learned.observations)
    data = seen(settings.data, settings.modality)
    return EarlierTrainings(learned.at(request.fidelity, data), learned.same_as(settings))


def _supernet(
    request: SearchRequest,
    workspace: Workspace,
    data: StudyData,
    feasible: NetworkSet,
    begun: Path | None,
    listener: Listener,
) -> StudySupernet | None:
    """The supernet of the study, trained; None where no score needs one. It is of one space.

    A study that goes on keeps the supernet that it began with, which its folder ``begun`` names. Where none is begun
    (None) the folder may be that of another command, which never came to its study.
    """
    from hwbench.spaces.feasible import FeasibleSet

    if request.plan.evaluator != SUPERNET:
        return None
    assert isinstance(feasible, FeasibleSet)  # a request refuses anything else
    note = begun / _SUPERNET_NOTE if begun else None
    networks = note.read_text().strip() if note and note.is_file() else ""
    supernet = StudySupernet(workspace, data, feasible, request.plan.supernet_epochs, request.seed, listener, networks)
    supernet.prepare()
    return supernet


def _race(
    request: SearchRequest,
    workspace: Workspace,
    study: str,
    space: SearchedSpace,
    num_classes: int,
    data: StudyData,
    listener: Listener,
) -> Race | None:
    """What trains the finalists and chooses among them; None: there are none."""
    from hwbench.api.finalists import StudyFinalists, race_watch
    from hwbench.studies.race import Race
    from hwbench.studies.race_workers import RaceWorkers

    if not request.plan.finalists:
        return None
    folder, watch = workspace.studies / study, race_watch(listener, data.source)
    train = StudyFinalists(
        workspace, folder, data, space, request.plan.finalist_epochs, request.plan.finalist_score, request.seed,
        request.runtime, num_classes, listener,
    )  # fmt: skip
    workers, ahead = _workers(request), None
    if workers is not None:
        ahead = RaceWorkers(workers, train, train.member, folder, listener.say)
    return Race(request.plan.finalists, train, request.seed, watch, ahead)


def _workers(request: SearchRequest) -> WorkerPlan | None:
    """Where networks are scored; None: in this process."""
    from hwbench.studies.ray_workers import RayWorkers
    from hwbench.studies.worker_pool import Workers

    if request.ray is not None:
        return RayWorkers(request.ray, request.workers, request.worker_gpus, request.worker_cpus)
    return Workers(request.workers) if request.workers > 1 else None


def _startup(
    request: SearchRequest,
    begun: Path | None,
    forecast: TrainingForecast | None,
    earlier: EarlierTrainings | None,
    listener: Listener,
) -> int | None:
    """Draws before the sampler takes over, where the number of trials does not say it.

    Where no training of the study (the folder ``begun``; None: it begins) has ended, it is told what fits into its
    time before anything is written.

    Raises:
        InvalidValue: Nothing fits.
    """
    from hwbench.studies.course import startup_draws
    from hwbench.studies.time_limit import is_timed

    if request.time_s is None:
        return request.startup
    if not request.trains and request.plan.finalists:
        listener.say(
            f"the race comes on top of --time: how long evaluator {request.plan.evaluator!r} trains is not known"
        )
    scores = earlier.scores if earlier is not None else {}
    if forecast is None or (begun is not None and is_timed(begun, request.study_storage, scores)):
        return request.startup
    known = len({one.architecture for one in earlier.observations}) if earlier is not None else 0
    fit = forecast.begin(request.time_s, known, listener)
    return startup_draws(fit, earlier) if request.startup is None else request.startup


def _pruning(request: SearchRequest, settings: Settings) -> Pruning | None:
    """How networks are given up; None: none is."""
    from hwbench.studies.pruning import Pruning

    plan, smaller_s = request.plan, tuple(limit / 1e3 for limit in settings.smaller_budgets_ms)
    return None if plan.pruner == NO_PRUNER else Pruning(plan.pruner, plan.epochs, smaller_s)
