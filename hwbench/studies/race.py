"""Finalists of a search race: trained in rounds, each twice as long as the one before, and compared on the same videos.

After a round a network is out where the evidence says so: the interval of what the leader is better by, over
validation videos, lies above zero; it holds for all pairs of the round together (``hwbench.studies.paired``). If more
than half are left, the halving demands the rest (successive halving, Jamieson and Talwalkar, AISTATS 2016; elimination
by tests is that of Hoeffding races, Maron and Moore, NIPS 1993). A round begins with the weights of the last one and a
fresh cycle of the learning rate, which doubles in length: the warm restarts of Loshchilov and Hutter, SGDR, ICLR 2017,
with ``T_mult = 2``. Loads no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hwbench.errors import CheckFailed
from hwbench.studies.paired import VideoResults, on_shared_videos, paired_differences
from hwbench.studies.ranking import Interval

# What becomes of a finalist in a round.
WINS, GOES_ON, BEATEN, HALVED, FAILED = "wins", "goes on", "beaten", "halved", "failed"
OUTCOMES = (WINS, GOES_ON, BEATEN, HALVED, FAILED)


@dataclass(frozen=True)
class FinalistRun:
    """One training of a finalist: what came of it, and its wall time in seconds. ``checkpoint`` is the file."""

    results: VideoResults
    seconds: float
    checkpoint: str = ""


class FinalistTrainer(Protocol):
    """Trains finalists; all of them alike."""

    @property
    def description(self) -> Mapping[str, str | int]:
        """``data``, ``score`` and ``epochs`` of the first round, as they are typed."""
        ...

    def __call__(self, architecture: str, number: int, /) -> FinalistRun:
        """Trains a network in round ``number``, from 1, from where the round before left it.

        What was trained is not trained again.

        Raises:
            CheckFailed: It diverges, or its int8 file does not compute what it does.
        """
        ...

    def is_trained(self, architecture: str, number: int, /) -> bool:
        """Whether the training of that round is finished, so that a call reads it."""
        ...


class TrainedAhead(Protocol):
    """Trains the networks of a round before the process of the race asks for them, several at a time."""

    def __call__(self, architectures: Sequence[str], number: int, /) -> Iterable[tuple[str, str]]:
        """Each network when it is done, and why it cannot be trained; empty: the process of the race goes on with it.

        Raises:
            HwbenchError: Nothing can be trained so.
        """
        ...


class RaceWatch:
    """What a race tells while it runs; override what is of interest."""

    def began(self, number: int, finalists: int, of: int) -> None:
        """Round ``number`` of at most ``of`` trains so many networks."""

    def trained(self, number: int, finalist: RaceStanding) -> None:
        """A finalist has been trained; its outcome is not known yet."""

    def ended(self, one: RaceRound) -> None:
        """A round is over."""

    def alone(self) -> None:
        """There is no race: a single network is to choose from."""


@dataclass(frozen=True)
class RaceStanding:
    """A finalist at the end of a round.

    Attributes:
        architecture: Printed form.
        top1: On the validation videos that all networks of the round could read, a share; nan where it failed.
        loss: Mean negative log-likelihood there, in nats; nan where it failed.
        seconds: Wall time of its training, without that of an int8 file.
        outcome: One of ``OUTCOMES``.
        behind: Top-1 that the leader is better by, a share; None of the leader, and where it failed.
        loss_behind: The same of the loss, in nats.
        note: Why it failed.
        checkpoint: File of its weights, below the workspace.
    """

    architecture: str
    top1: float
    loss: float
    seconds: float
    outcome: str = GOES_ON
    behind: Interval | None = None
    loss_behind: Interval | None = None
    note: str = ""
    checkpoint: str = ""

    def to_json(self) -> dict[str, Any]:
        """One of ``finalists`` of a round; what is not known is null."""
        return {
            "architecture": self.architecture,
            "top1": _known(self.top1),
            "loss": _known(self.loss),
            "seconds": round(self.seconds, 1),
            "outcome": self.outcome,
            "behind": _bounds(self.behind),
            "loss_behind": _bounds(self.loss_behind),
            "note": self.note,
            "checkpoint": self.checkpoint,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RaceStanding:
        """What ``to_json`` wrote; raises KeyError, TypeError or ValueError where it is none."""
        top1, loss = (math.nan if values[key] is None else float(values[key]) for key in ("top1", "loss"))
        if values["outcome"] not in OUTCOMES:
            raise ValueError(f"outcome: expected one of {', '.join(OUTCOMES)}, got {str(values['outcome'])[:60]!r}")
        behind, loss_behind = (_interval(values[key]) for key in ("behind", "loss_behind"))
        seconds, note, checkpoint = float(values["seconds"]), str(values["note"]), str(values["checkpoint"])
        key, outcome = str(values["architecture"]), str(values["outcome"])
        return cls(key, top1, loss, seconds, outcome, behind, loss_behind, note, checkpoint)


@dataclass(frozen=True)
class RaceRound:
    """One round: how many epochs it trained, and the finalists, best first, failed ones last."""

    epochs: int
    standings: tuple[RaceStanding, ...]

    @property
    def going_on(self) -> tuple[str, ...]:
        """The networks that the next round trains, the leader first, or the winner."""
        return tuple(one.architecture for one in self.standings if one.outcome in (GOES_ON, WINS))

    def to_json(self) -> dict[str, Any]:
        """One of ``rounds``."""
        return {"epochs": self.epochs, "finalists": [one.to_json() for one in self.standings]}


@dataclass(frozen=True)
class RaceResult:
    """How a race went.

    Attributes:
        data: What was trained on.
        score: ``fp32`` or ``int8``: whose accuracy decided.
        videos: Validation videos that a round was judged by; where rounds differ, the most.
        rounds: In order; none where there was a single network to choose from.
        winner: Printed form. Where the last round failed for all it is the leader of the last round in which a network
            was trained; None where none was in any.
    """

    data: str
    score: str
    videos: int
    rounds: tuple[RaceRound, ...]
    winner: str | None

    @property
    def asked(self) -> dict[str, str]:
        """Options of a search that races so, by name, as they are typed; without rounds its epochs are not known."""
        epochs = {"finalist-epochs": str(self.rounds[0].epochs)} if self.rounds else {}
        return {**epochs, "finalist-score": self.score, "data": self.data}

    @property
    def margin(self) -> Interval | None:
        """Top-1 that the winner is better by than the next one of its last round with others; None: none is known."""
        if not self.rounds:
            return None
        return next((one.behind for one in self.rounds[-1].standings if one.behind is not None), None)

    @property
    def told_apart(self) -> bool:
        """Whether the evidence alone puts the winner above the next one."""
        return self.margin is not None and self.margin.low > 0

    @property
    def fallback(self) -> str:
        """What chose the winner where no network of the last round could be trained, for people; else empty."""
        if not self.rounds or any(one.outcome != FAILED for one in self.rounds[-1].standings):
            return ""
        number = len(self.rounds)
        where = f" in round {number}" if number > 1 else ""
        chosen = "is whom the score liked best" if self.winner is None else f"led round {number - 1}"
        return f"no finalist could be trained{where}; the winner {chosen}"

    @property
    def seconds(self) -> float:
        """Worker time: the sum of the wall times of all trainings, several of which may run at a time."""
        return math.fsum(one.seconds for round in self.rounds for one in round.standings)

    def top1(self, architecture: str) -> float | None:
        """Top-1 of a network in the last round that it was trained in, a share; None: it was in none, or failed."""
        known = (one for round in reversed(self.rounds) for one in round.standings if one.architecture == architecture)
        return next((one.top1 for one in known if not math.isnan(one.top1)), None)

    def to_json(self) -> dict[str, Any]:
        """``race`` of ``hwbench search --json``."""
        return {
            "data": self.data,
            "score": self.score,
            "videos": self.videos,
            "winner": self.winner,
            "told_apart": self.told_apart,
            "seconds": round(self.seconds, 1),
            "rounds": [one.to_json() for one in self.rounds],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RaceResult:
        """What ``to_json`` wrote; raises KeyError, TypeError or ValueError where it is none."""
        rounds = tuple(
            RaceRound(int(one["epochs"]), tuple(RaceStanding.from_json(each) for each in one["finalists"]))
            for one in values["rounds"]
        )
        winner = None if values["winner"] is None else str(values["winner"])
        return cls(str(values["data"]), str(values["score"]), int(values["videos"]), rounds, winner)


@dataclass(frozen=True)
class Race:
    """A race of the best networks of a study.

    Args:
        finalists: How many begin.
        train: Trains one of them for a round.
        seed: Of the bootstrap.
        watch: Hears of every training.
        ahead: Trains the networks of a round first; None: ``train`` does, one after the other.
    """

    finalists: int
    train: FinalistTrainer
    seed: int = 0
    watch: RaceWatch = field(default_factory=RaceWatch)
    ahead: TrainedAhead | None = None

    def run(self, architectures: Sequence[str]) -> RaceResult:
        """Trains networks until one is left; a single one is not trained.

        Raises:
            CheckFailed: No validation video could be read by all networks of a round.
        """
        going_on, rounds, videos = tuple(architectures), list[RaceRound](), 0
        if len(going_on) == 1:
            self.watch.alone()
        while len(going_on) > 1:
            number, of = len(rounds) + 1, len(rounds) + math.ceil(math.log2(len(going_on)))
            self.watch.began(number, len(going_on), of)
            runs, failed = self._trained(going_on, number)
            runs = comparable(runs)
            videos = max([videos, *(len(one.results.hits) for one in runs.values())])
            epochs = round_epochs(int(self.train.description["epochs"]), number)
            rounds.append(RaceRound(epochs, (*judged(runs, len(going_on), self.seed), *failed)))
            going_on = rounds[-1].going_on
            self.watch.ended(rounds[-1])
        about = self.train.description
        leaders = [*going_on, *(one.going_on[0] for one in reversed(rounds) if one.going_on)]
        return RaceResult(str(about["data"]), str(about["score"]), videos, tuple(rounds), next(iter(leaders), None))

    def _trained(
        self, architectures: Sequence[str], number: int
    ) -> tuple[dict[str, FinalistRun], tuple[RaceStanding, ...]]:
        runs, failed = dict[str, FinalistRun](), list[RaceStanding]()
        for architecture, reason in self._ahead(architectures, number):
            try:
                if reason:
                    raise CheckFailed(reason)
                runs[architecture] = self.train(architecture, number)
                told = _standing(architecture, runs[architecture])
            except CheckFailed as error:
                told = RaceStanding(architecture, math.nan, math.nan, 0.0, FAILED, note=str(error))
                failed.append(told)
            self.watch.trained(number, told)
        return runs, tuple(sorted(failed, key=lambda one: one.architecture))

    def _ahead(self, architectures: Sequence[str], number: int) -> Iterable[tuple[str, str]]:
        return ((one, "") for one in architectures) if self.ahead is None else self.ahead(architectures, number)


def round_epochs(first: int, number: int) -> int:
    """Epochs of a round, counted from 1: twice those of the round before."""
    return first << (number - 1)


def comparable(runs: Mapping[str, FinalistRun]) -> dict[str, FinalistRun]:
    """The runs with what the videos say that all networks could read.

    Networks with clips of different lengths read different frames, so that a video that is damaged in places is left
    out (``--on-error skip``) by some of them alone.

    Raises:
        CheckFailed: There is no such video.
    """
    shared = on_shared_videos([one.results for one in runs.values()])
    if any(not len(one.hits) for one in shared):
        read = ", ".join(str(len(one.results.hits)) for one in runs.values())
        raise CheckFailed(
            f"the {len(runs)} networks of the round cannot be compared: no validation video can be read at the clip "
            f"lengths of all of them ({read} by each); hwbench data check --decode says what is wrong with the videos"
        )
    return {key: replace(run, results=results) for (key, run), results in zip(runs.items(), shared, strict=True)}


def judged(runs: Mapping[str, FinalistRun], began: int, seed: int = 0) -> tuple[RaceStanding, ...]:
    """The finalists of a round, best first, each with its outcome; equal top-1 is decided by the loss.

    All of it is by the videos that every network could read (``comparable``).

    Args:
        runs: What came of each network that could be trained.
        began: How many networks began the round: at most half of them, rounded up, go on.
        seed: Of the bootstrap.

    Raises:
        CheckFailed: No video could be read by all of them.
    """
    runs = comparable(runs)
    ranked = sorted(runs, key=lambda key: (-runs[key].results.top1, runs[key].results.loss, key))
    if not ranked:
        return ()
    leader, *others = ranked
    behind = paired_differences(runs[leader].results, [runs[key].results for key in others], seed=seed)
    rest, room = list[RaceStanding](), math.ceil(began / 2) - 1
    for key, difference in zip(others, behind, strict=True):
        outcome = BEATEN if difference.top1.low > 0 else GOES_ON if room > 0 else HALVED
        room -= outcome == GOES_ON
        rest.append(_standing(key, runs[key], outcome, difference.top1, difference.loss))
    alone = all(one.outcome != GOES_ON for one in rest)
    return (_standing(leader, runs[leader], WINS if alone else GOES_ON), *rest)


def _standing(
    architecture: str,
    run: FinalistRun,
    outcome: str = GOES_ON,
    behind: Interval | None = None,
    loss_behind: Interval | None = None,
) -> RaceStanding:
    results = run.results
    return RaceStanding(
        architecture, results.top1, results.loss, run.seconds, outcome, behind, loss_behind, "", run.checkpoint
    )


def _known(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [round(x, 5) for x in (interval.value, interval.low, interval.high)]


def _interval(values: Any) -> Interval | None:
    if values is None:
        return None
    value, low, high = (float(one) for one in values)
    return Interval(value, low, high)
