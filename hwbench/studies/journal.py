"""The trials of a study: by default an Optuna journal file, which survives a kill and says so when it does not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from hwbench.errors import HwbenchError, InvalidFile, InvalidValue
from hwbench.locks import kept_from_children, try_flock, without_locks
from hwbench.printable import printable
from hwbench.studies.optuna_log import quiet_optuna
from hwbench.studies.settings import Settings
from hwbench.studies.storage import MARKER, StudyStorage, check_marker, marker_text
from hwbench.studies.stored_settings import JOURNAL, SETTINGS, SETTINGS_COPY, is_missing
from hwbench.workspace import write_text, writing

# Marks a closed trial whose network has no score; Optuna keeps such trials as failed.
UNSCORED = "unscored"
# Where Optuna keeps what a queued trial is to choose.
FIXED_PARAMS = "fixed_params"
# System attribute of a trial of a search that the sampler drew uniformly from the networks within the budget.
DRAW = "hwbench:draw"
# How attributes begin that Optuna gives a trial while its network is scored: rungs of a pruner, and constraints.
_OF_SCORES = ("completed_rung_", "constraints")


@contextmanager
def open_study(
    folder: Path,
    settings: Settings,
    sampler: optuna.samplers.BaseSampler | None,
    num_choices: int,
    storage: StudyStorage | None = None,
    fits: Callable[[dict[str, Any]], bool] | None = None,
    keep: Callable[[], None] | None = None,
) -> Iterator[Study]:
    """The study of a folder, made or continued; one process at a time. A trial makes ``num_choices`` choices.

    Trials that were under way when a process died are closed and their choices are queued to be tried first, as far as
    they fit. Optuna's own messages are off meanwhile.

    Args:
        folder: Of the study; its name is that of the study, but for a journal that was renamed or copied with it.
        settings: What is searched for.
        sampler: Proposes networks; None: nobody asks for any.
        num_choices: Of the space.
        storage: Keeps the trials; None: a journal in the folder.
        fits: Whether the network of some choices is still searched for; None: each is.
        keep: Writes what stands beside the settings in the folder; called before the study has them, so that no study
            is without, and after it is known to be one of theirs.

    Raises:
        InvalidValue: The study exists with other settings or in another storage, or another process is at work on it.
        InvalidFile: The journal is damaged, or the storage has lost the study, or has one that is none of a search.
        WorkspaceError: The folder cannot be written, or has no locks, or the storage not be reached.
    """

    def told() -> AbstractContextManager[None]:
        return nullcontext() if storage else damage_told(folder / JOURNAL)

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock, kept_from_children(lock), quiet_optuna():
            _take(lock.fileno(), folder)
            check_marker(folder, storage, folder / JOURNAL)
            with _opened(folder, storage) as opened:
                with told():
                    study = _load(opened, folder.name, settings, sampler)
                    _check_same(study, settings, folder.name)
                if keep is not None:
                    keep()
                with told():
                    _store(study, settings)
                if storage is not None:
                    write_text(folder / SETTINGS_COPY, json.dumps(settings.as_dict(), indent=2) + "\n")
                    write_text(folder / MARKER, marker_text(folder, storage) + "\n")
                with told():
                    _reclaim(study, num_choices, fits)
                yield study


def _opened(folder: Path, storage: StudyStorage | None) -> AbstractContextManager[BaseStorage]:
    if storage is None:
        return _journal(folder / JOURNAL)
    return opened_again(folder, storage) if (folder / MARKER).is_file() else storage.opened(folder.name)


@contextmanager
def opened_again(folder: Path, storage: StudyStorage, *, alone: bool = True) -> Iterator[BaseStorage]:
    """The storage that the folder of a study names, as ``StudyStorage.opened``.

    Raises:
        InvalidFile: The storage has lost the study.
    """
    if is_missing(storage):
        moved = ", name the one that it was moved to: --storage sqlite:///FILE"
        raise _lost(folder, storage, "that file is gone", moved)
    with storage.opened(folder.name, alone=alone) as opened:
        if not _holds(opened, folder.name):
            raise _lost(folder, storage, "it holds none of that name")
        yield opened


def _holds(storage: BaseStorage, name: str) -> bool:
    return name in [study.study_name for study in storage.get_all_studies()]


def _lost(folder: Path, storage: StudyStorage, how: str, mend: str = "") -> InvalidFile:
    name = folder.name
    return InvalidFile(
        f"study {name!r}: {folder / MARKER} says that the study was begun in {storage.shown}, but {how}; bring it back "
        f"and repeat the same command{mend}, remove {folder} to start the study again, or choose another name: "
        f"--study {name}-2"
    )


@contextmanager
def _journal(path: Path) -> Iterator[JournalStorage]:
    """The journal of a study, looked through before anything is appended."""
    _cut_torn_line(path)
    file = _Journal(path)
    try:
        with damage_told(path):
            _check_lines(path)
            storage = JournalStorage(file)
        yield storage
    except Exception:
        if file.failure is not None:  # Optuna goes on after it, and fails in other words
            raise file.failure from None
        raise


class _Journal(JournalFileBackend):
    """The file of a journal. A write that fails leaves whole lines, and is the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: OSError | None = None
        super().__init__(str(path), lock_obj=Unlocked())  # type: ignore[arg-type]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        if self.failure is not None:
            raise self.failure
        try:
            super().append_logs(logs)
        except OSError as error:
            self.failure = error
            _cut_torn_line(self.path)
            raise


def _load(storage: BaseStorage, name: str, settings: Settings, sampler: optuna.samplers.BaseSampler | None) -> Study:
    if (study := load_kept(storage, name, sampler)) is not None:  # else Optuna writes before it looks
        return study
    return optuna.create_study(study_name=name, storage=storage, sampler=sampler, directions=settings.directions)


def load_kept(storage: BaseStorage, name: str, sampler: optuna.samplers.BaseSampler | None = None) -> Study | None:
    """The study of a folder; None: the storage holds none.

    The one study of a journal is that of its folder, whatever both are called: who renames or copies a folder goes on
    with what it holds.

    Args:
        storage: Holds the trials.
        name: Of the folder.
        sampler: Proposes networks; None: nobody asks for any.

    Raises:
        InvalidFile: A journal holds several studies, and none of that name.
    """
    names = [study.study_name for study in storage.get_all_studies()]
    if name not in names and isinstance(storage, JournalStorage) and names:
        if len(names) > 1:
            raise InvalidFile(
                f"study {name!r}: the journal in its folder holds {' and '.join(map(repr, names))}, and none of that "
                "name; give the folder one of these names, or choose another name with --study"
            )
        name = names[0]
    return optuna.load_study(study_name=name, storage=storage, sampler=sampler) if name in names else None


@contextmanager
def damage_told(path: Path) -> Iterator[None]:
    """The journal is replayed without checks: what a damaged line raises, at once or later, can be anything."""
    try:
        yield
    except (OSError, HwbenchError):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {printable(str(error), 300)}"
        raise InvalidFile(
            f"{path}: damaged ({why}); remove the folder to start the study again, or choose another name with --study"
        ) from None


def _check_same(study: Study, settings: Settings, name: str) -> None:
    """Refuses a study of other settings, and one that another program made, before anything is written to it."""
    attributes, directions = study.user_attrs, [direction.name.lower() for direction in study.directions]
    stored = attributes.get(SETTINGS)
    if isinstance(stored, dict):
        settings.check_same(stored, name)
    elif attributes or study.get_trials(deepcopy=False):
        raise InvalidFile(
            f"study {name!r}: what is kept under its name is none of a search; choose another one with --study"
        )
    if directions != settings.directions:
        raise InvalidFile(
            f"study {name!r}: expected one to {' and '.join(settings.directions)}, what is kept under its name is to "
            f"{' and '.join(directions)}; choose another one with --study"
        )


def _store(study: Study, settings: Settings) -> None:
    """Gives a study its settings, and what one of before lacks of them: from now on, all of it is compared."""
    stored = study.user_attrs.get(SETTINGS)
    if stored is None or not stored.keys() >= settings.as_dict().keys():
        study.set_user_attr(SETTINGS, settings.as_dict() | (stored or {}))


def finished_trials(study: Study) -> list[FrozenTrial]:
    """Trials that need no repeating, in order: those with a score, those that were given
    up on the way, and those whose network turned out to have no score.
    """
    closed = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL))
    return [trial for trial in closed if not runs_again(trial)]


def runs_again(trial: FrozenTrial) -> bool:
    """Whether a trial was closed without a result; its choices are queued again."""
    return trial.state is TrialState.FAIL and UNSCORED not in trial.user_attrs


def _reclaim(study: Study, num_choices: int, fits: Callable[[dict[str, Any]], bool] | None) -> None:
    """Closes trials that an ended process left open, and queues networks that were chosen but never scored.

    They go before what waits, which is queued again behind them: Optuna takes waiting trials by their numbers. A trial
    that was queued and ended among its choices is queued with all of them; the sampler repeats any other one. A network
    that is queued again is what it was to the sampler, a draw or one of a generation. What does not fit, as newer rows
    of a table may have put it beyond the budget, stays closed, or is closed.
    """
    close_open_trials(study)
    trials = study.get_trials(deepcopy=False)
    waiting = [t for t in trials if t.state is TrialState.WAITING and FIXED_PARAMS in t.system_attrs]
    queued = [_repeated(t, t.system_attrs[FIXED_PARAMS]) for t in waiting]
    # A trial that was queued with some choices has others beside them when it is finished.
    settled = [choices for t in finished_trials(study) for choices in (t.params, t.system_attrs.get(FIXED_PARAMS))]
    first: list[dict[str, Any]] = []
    for trial in trials:
        chosen = trial.params if len(trial.params) == num_choices else trial.system_attrs.get(FIXED_PARAMS)
        if trial.state is TrialState.FAIL and chosen is not None and chosen not in settled:
            settled.append(chosen)
            first.append(_repeated(trial, chosen))
    interrupted = [one[FIXED_PARAMS] for one in first]
    first += [one for one in queued if one[FIXED_PARAMS] not in interrupted]
    first = [one for one in first if fits is None or fits(one[FIXED_PARAMS])]
    if first == queued:
        return
    for trial in waiting:  # it begins before it is closed: a copy of the study (Optuna's) needs the time of that
        study._storage.set_trial_state_values(trial._trial_id, state=TrialState.RUNNING)
    close_open_trials(study)
    for attributes in first:
        study.add_trial(create_trial(state=TrialState.WAITING, system_attrs=attributes))


def _repeated(trial: FrozenTrial, choices: dict[str, Any]) -> dict[str, Any]:
    """System attributes of a trial that is to make these choices in place of another one.

    Optuna does not ask the sampler about it, so what that kept with the other one is kept with it.
    """
    kept = {name: value for name, value in trial.system_attrs.items() if not name.startswith(_OF_SCORES)}
    return {**kept, FIXED_PARAMS: choices}


def close_open_trials(study: Study) -> None:
    """Closes all trials under way as failed."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)


def _take(descriptor: int, folder: Path) -> None:
    """Locks the study for this process; the lock ends with the process, however it ends."""
    name, alone = folder.name, try_flock(descriptor)
    if alone is None:
        raise without_locks(folder, "writing one study", "search in a workspace on another disk")
    if not alone:
        raise InvalidValue(
            f"study {name!r} is in use by another process; wait for it, or choose another name: --study {name}-2"
        )


class Unlocked:
    """The study is locked as a whole; a lock file of Optuna's would outlive a kill and hold up the next run."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _check_lines(path: Path) -> None:
    """Refuses a file that is no journal before anything is appended to it."""
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        entry = json.loads(line)
        if not isinstance(entry, dict) or entry.get("op_code") not in range(11) or "worker_id" not in entry:
            raise ValueError(f"line {number} is no journal entry")


def _cut_torn_line(path: Path) -> None:
    """Removes a last line without its end: what a process wrote when it was killed."""
    if not path.is_file():
        return
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) != len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))
