"""What a search says of itself before its trials and while they run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hwbench.api.learning import of_streams
from hwbench.api.listener import Listener, StageProgress
from hwbench.api.prediction import tell_left_out
from hwbench.api.search_devices import SpaceListener
from hwbench.printable import counted
from hwbench.units import format_rate, format_share
from hwbench.workspace import NO_TRAININGS

if TYPE_CHECKING:
    from hwbench.api.search_devices import DevicePredictors
    from hwbench.api.training_forecast import TrainingForecast
    from hwbench.latency import AdditivePredictor
    from hwbench.spaces.protocols import NetworkSet
    from hwbench.spaces.sums import SpaceSums
    from hwbench.studies.candidates import Candidate
    from hwbench.studies.earlier import EarlierTrainings
    from hwbench.studies.settings import Settings
    from hwbench.studies.time_limit import TrialClock
    from hwbench.studies.trials import SearchWatch


def begun_from(earlier: EarlierTrainings, sets: Sequence[NetworkSet], trials: int) -> Iterator[str]:
    """What of the trainings of before a study uses, for people; ``trials``: those that are to come, if it begins."""
    if known := {one.architecture for one in earlier.here}:
        within, first = sum(one in sets[-1] for one in known), min(len(earlier.best(sets)), trials)
        text = f"{within} of {len(known)} networks trained before are within the budget"
        if first:
            text += "; the best is tried first" if first == 1 else f"; the best {first} are tried first"
        repeated = sum(one.key in earlier.scores for one in known if one in sets[-1])
        yield f"{text}; {repeated} were trained just as here, and are not trained again" if repeated else text
    if elsewhere := len({one.training for one in earlier.observations if one.elsewhere}):
        where = "on other data or of networks that look ahead" if of_streams(sets[-1].space) else "on other data"
        yield (
            f"{counted(elsewhere, 'training')} {where} count as far as trials agree with them; --learn-from "
            f"{NO_TRAININGS} begins without"
        )


def tell_predictions(known: DevicePredictors, settings: Settings, listener: Listener, *, of_device: bool) -> None:
    """Says of each space how it is predicted, and what room below the budget the confidence takes."""
    where = f" of {known.target.device}" if of_device else ""
    for name, predictor in known.by_space.items():
        speaking = SpaceListener(listener, name, len(known.by_space))
        if not settings.by_prediction:
            _tell_confidence(predictor, settings.confidence, speaking)
        speaking.say(f"calibration{where}: {predictor.calibration.describe()}")


def _tell_confidence(predictor: AdditivePredictor, confidence: float, listener: Listener) -> None:
    """Says what room below the budget the confidence takes, and what of it is for another occasion."""
    margin, within = predictor.margin(confidence), predictor.calibration.margin(confidence)
    day = f", of which {margin - within:.1%} are for another occasion" if margin - within > 0.001 else ""
    listener.say(f"within the budget with {confidence:.0%}: predictions are taken {margin - 1:.1%} longer{day}")


def tell_feasible(sets: Sequence[NetworkSet], settings: Settings, listener: Listener) -> None:
    """Says how large the feasible set of each budget is, which spaces have none of it, and what is missing from it."""
    from hwbench.spaces.union_set import UnionSet

    for feasible, limit_ms in zip(sets, settings.front_ms, strict=True):
        within = settings.limit_text(limit_ms) if len(sets) > 1 else settings.budgets_text()
        of = "space" if len(feasible.counts) == 1 else "spaces"
        networks = "1 network" if feasible.count == 1 else f"{_number(feasible.count)} networks"
        be = "is" if feasible.count == 1 else "are"
        listener.say(f"{networks} ({format_share(feasible.share())} of the {of}) {be} within {within}")
        if isinstance(feasible, UnionSet):
            shares = (
                f"{_number(n)} ({format_share(n / feasible.count)}) of {name}" for name, n in feasible.counts.items()
            )
            listener.say(f"of these {', '.join(shares)}")
            for name, reason in feasible.empty.items():
                listener.say(f"{reason}; the search goes on without {name}")
    for sums in sets[-1].sums.members:
        tell_left_out(sums, listener, _the(sums, sets[-1]))


def _the(sums: SpaceSums, feasible: NetworkSet) -> str:
    return "the space" if len(feasible.counts) == 1 else f"space {sums.space.name}"


def _number(count: float) -> str:
    return f"{count:.0f}" if count < 1e6 else f"{count:.2e}"


def search_watch(listener: Listener, forecast: TrainingForecast | None, settings: Settings, study: str) -> SearchWatch:
    """Tells a listener of trials, with the best score so far, and before the first of how long they will take.

    Args:
        listener: Hears it.
        forecast: Tells how long trainings take; None: networks are not trained on this machine.
        settings: Of the study.
        study: Its name.
    """
    from hwbench.studies.trials import SearchWatch

    class TrialProgress(SearchWatch):
        told, last = False, ("", "")
        mixed = False
        limited = False
        fit: int | None = None  # how many networks are foretold, where anything is

        def other_videos(self, trials: int) -> None:
            if not self.mixed:  # where rows were measured, the trials are looked at again
                listener.say(
                    f"study {study}: {settings.data} has other videos by now: {counted(trials, 'score')} of before "
                    f"cannot be compared with those to come; --study {study}-2 begins anew"
                )
            self.mixed = True

        def planned(self, networks: int, clock: TrialClock | None = None) -> None:
            told = None if forecast is None else forecast.tell(networks, listener, clock)
            self.limited, self.fit = clock is not None, told

        def started(self, trials: int, finished: int, best: float) -> None:
            self.total: int | None = max(trials, finished)
            if self.limited and finished < trials:
                self.total = None if self.fit is None else min(trials, finished + self.fit)
            self.first = self.done = finished
            self.since, self.best, self.given_up = time.monotonic(), best, 0
            if finished < trials or not self.told:  # where rows were measured, the trials are looked at again
                self._tell("", f"{finished} from before" if finished else "")

        def evaluated(self, candidate: Candidate) -> None:
            self.done += 1
            self.best = max(self.best, candidate.score)
            listener.evaluated(candidate)
            self._tell_one(f"best {settings.shown_score(self.best):.4g}")

        def gave_up(self, candidate: Candidate, epochs: int) -> None:
            self.done += 1
            self.given_up += 1
            self._tell_one(f"best {settings.shown_score(self.best):.4g}, {self.given_up} given up")

        def died(self, architecture: str, reason: str, again: bool) -> None:
            listener.say(f"{reason}; {architecture} {'runs again' if again else 'has no score'}")

        def unpredicted(self, networks: int) -> None:
            listener.say(
                f"{networks} scored {'network has' if networks == 1 else 'networks have'} a block that the table lacks "
                "by now, and cannot be predicted; left out"
            )

        def expected(self, trials: int) -> None:
            if trials != self.total:
                self.total = trials
                self._tell(*self.last)

        def exhausted(self, networks: int) -> None:
            self.total = self.done
            self._tell("", f"all {networks} networks within the budget seen")

        def _tell_one(self, note: str) -> None:
            if self.limited and self.total is not None and self.done >= self.total:
                self.total = self.done + 1  # until it is known whether another one fits
            self._tell(format_rate(self.done - self.first, time.monotonic() - self.since), note)

        def _tell(self, rate: str, note: str) -> None:
            self.told, self.last = True, (rate, note)
            listener.progress(StageProgress("trials", self.done, self.total, rate, note))

    return TrialProgress()
