"""Samples networks within the budget: by Thompson sampling, or by any Optuna sampler whose proposals are repaired."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from optuna import TrialPruned
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, BruteForceSampler, GridSampler, NSGAIISampler, TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from hwbench.errors import InvalidValue
from hwbench.printable import shown
from hwbench.registry import Registry, a_callable
from hwbench.spaces.protocols import NetworkSet
from hwbench.spaces.repair import noisy_nearness
from hwbench.specs import Architecture
from hwbench.studies.fidelities import FULL, ScoreObservation, doublings
from hwbench.studies.journal import DRAW, FIXED_PARAMS, runs_again
from hwbench.studies.pruning import rungs
from hwbench.studies.stored_settings import SETTINGS
from hwbench.studies.thompson import Thompson

# Makes the wrapped sampler from a seed; None means that every trial is an exact uniform draw.
Base = Callable[[int], BaseSampler] | type[Thompson] | None

# Proposals that are tried before a network already seen is replaced by a fresh draw.
_PROPOSALS = 4
# Completions of a trial that is queued with some choices that are tried before one already seen is evaluated again.
_COMPLETIONS = 20
# Noise by which the first neighbour of a proposal is found, where a change of one choice counts 1; then twice as much.
_NOISE = 0.25
_DRAWS = 400
_MOST_DRAWS = 10_000
# Epochs at which trainings that were given up are compared; each takes part in the matrix of all observations.
_RUNGS = 4
# Attribute of a trial: what was proposed for the choices that it did not ask for, as texts by name.
_LEFT_OUT = "hwbench:left_out"

samplers: Registry[Base] = Registry("sampler", entry_points="hwbench.samplers", expects=a_callable)


@samplers.register("tpe")
def tpe(seed: int) -> BaseSampler:
    """Tree-structured Parzen estimator over all choices together (Bergstra et al. 2011; Falkner et al. 2018)."""
    return TPESampler(seed=seed, n_startup_trials=0, multivariate=True)


@samplers.register("nsga2")
def nsga2(seed: int) -> BaseSampler:
    """NSGA-II (Deb et al. 2002); generations of 20 suit studies of tens to hundreds of trials."""
    return NSGAIISampler(seed=seed, population_size=20)


samplers.register("random")(None)
samplers.register("thompson")(Thompson)


class FeasibleSampler(BaseSampler):
    """Samples whole networks, each within the budget and, as long as there are any, each a new one.

    The first ``startup`` trials are exact uniform draws, but for those that were queued, which count among them. After
    them ``Thompson`` proposes a network of the feasible set, or a wrapped Optuna sampler proposes one that is repaired
    into the nearest network within the budget; the repaired network is what is evaluated and what the sampler learns
    from. In place of a network that the study has
    seen ``Thompson`` proposes another; of a wrapped sampler one near to its proposal is taken, for it may propose the
    same again and again (the optimum of an acquisition function that knows no budget). In the end one is drawn.

    The sampler is made afresh for every trial, seeded by how many before it are finished or under way: a study with one
    worker that was interrupted goes on exactly as it would have, and trials that run at the same time have seeds of
    their own and networks of their own. A trial that failed counts, and its network is not proposed again, unless it is
    queued to run again.

    A choice that depends on others may be left out by a trial: its proposal is kept with the trial, completes the
    network, and counts in the budget. Where a value was queued for it, that one does.

    Other parameters of an objective, beside the choices, are sampled by a TPE that knows nothing of them. Where a trial
    is queued with some of the choices, the others are drawn such that all are within the budget, if they can be, and
    the network is a new one, where one comes up.

    Draws are from ``band``, shares of the budget as ``FeasibleSet.draw`` takes them, and none is one of the ``faster``
    networks, while new networks come up there.
    ``Thompson`` learns from the first objective of a study, and from ``known`` observations, which are no trials of it.
    Where ``turns`` budgets take turns, this is the sampler of one of them.

    Beside Optuna's ``HyperbandPruner`` a wrapped sampler learns from the trials of its trial's bracket, as it would
    without this one; ``Thompson``, which tells lengths of training apart, from those of all brackets.
    """

    def __init__(
        self,
        feasible: NetworkSet,
        base: Base,
        *,
        seed: int,
        startup: int,
        band: tuple[float, float] = (0.0, 1.0),
        known: Sequence[ScoreObservation] = (),
        turns: int = 1,
        faster: NetworkSet | None = None,
    ) -> None:
        if base is not None and not callable(base):
            raise InvalidValue(
                f"FeasibleSampler: expected a function from a seed to a sampler, as in lambda seed: "
                f"{type(base).__name__}(seed=seed), got {shown(base, 80)}"
            )
        if startup < 0:
            raise InvalidValue(f"FeasibleSampler: startup: expected 0 or more trials, got {startup}")
        self._feasible = feasible
        self._space = feasible.space
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in feasible.space.values.items()
        }
        self._thompson: Thompson | None = None
        self._make_base: Callable[[int], BaseSampler] | None = None
        if isinstance(base, type) and issubclass(base, Thompson):
            self._thompson = base(feasible)
        else:
            self._make_base = base  # type: ignore[assignment]
        self._seed = seed
        self._startup = startup
        self._band = band
        self._faster = faster
        self._known = tuple(known)
        self._turns = turns
        # By the number of a trial under way in this process: its sampler, and what was proposed for it.
        self._bases: dict[int, BaseSampler] = {}
        self._proposed: dict[int, Architecture] = {}
        # By the values of all choices as texts: trials are read again for every proposal, of whatever study.
        self._networks: dict[tuple[str, ...], Architecture] = {}
        self._one_at_a_time = threading.Lock()
        self._warned_of: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_networks", "_one_at_a_time")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _networks={}, _one_at_a_time=threading.Lock())

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        if self._thompson is not None and len(study.directions) > 1 and "objectives" not in self._warned_of:
            self._warned_of.add("objectives")
            if not _is_search(study):  # the second one of a search is the latency, which is known
                warnings.warn(
                    f"FeasibleSampler: thompson learns from the first of {len(study.directions)} objectives alone; "
                    "nsga2 and tpe learn from all of them",
                    stacklevel=2,
                )
        if self._make_base is not None:
            self._bases[trial.number] = base = self._made(self._make_base, study, trial)
            with self._blaming():
                base.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._keep_left_out(study, trial, state, self._proposed.pop(trial.number, None))
        # A trial that failed or was pruned may have ended before it asked for all.
        if state is TrialState.COMPLETE and "names" not in self._warned_of:
            self._check_names(study, trial)
        if self._make_base is not None:  # where another process asked for the trial, no sampler was made for it here
            base = self._bases.pop(trial.number, None) or self._made(self._make_base, study, trial)
            with self._blaming():
                base.after_trial(study, trial, state, values)

    def _made(self, make: Callable[[int], BaseSampler], study: Study, trial: FrozenTrial) -> BaseSampler:
        """The wrapped sampler of a trial."""
        words = np.random.SeedSequence([self._seed, _before(self._taken(study, trial), trial)]).generate_state(1)
        with samplers.blaming(make):
            base = make(int(words[0]))
        if not isinstance(base, BaseSampler):
            raise _no_sampler(make, base)
        if isinstance(base, GridSampler | BruteForceSampler):
            raise InvalidValue(
                f"FeasibleSampler: {type(base).__name__} goes through a list of its own, which repairs would spoil; to "
                "try each combination once, queue all: for one in feasible.space.architectures(): if one in feasible: "
                "study.enqueue_trial(feasible.space.params(one))"
            )
        return base

    def _keep_left_out(
        self, study: Study, trial: FrozenTrial, state: TrialState, proposed: Architecture | None
    ) -> None:
        """Keeps what was proposed for the choices that a trial did not ask for: with them it is of a network.

        A trial of a search that failed among its choices is repeated as if it had made none.
        """
        left_out = self._distributions.keys() - trial.params.keys()
        if proposed is None or not 0 < len(left_out) < len(self._distributions):
            return
        if state is TrialState.FAIL and _is_search(study):
            return
        values = self._space.params(proposed)
        texts = {name: str(values[name]) for name in self._distributions if name in left_out}
        study._storage.set_trial_system_attr(trial._trial_id, _LEFT_OUT, texts)

    def _check_names(self, study: Study, trial: FrozenTrial) -> None:
        """Warns, once, of a choice that was perhaps asked for by another name, by which it costs nothing.

        A choice that depends on others may be left out, and what it costs counts all the same. So the warning is of
        choices that no trial has asked for, beside a parameter of the same values that is not of the set.
        """
        others = {name: one for name, one in trial.distributions.items() if name not in self._distributions}
        for name, distribution in self._distributions.items():
            misnamed = next((other for other, one in others.items() if one == distribution), None)
            if misnamed is None or any(name in one.params for one in (trial, *_all_trials(study))):
                continue
            self._warned_of.add("names")
            warnings.warn(
                f"FeasibleSampler: the objective asked for {misnamed!r} and not for {name!r} of the set, which has the "
                "same values; if they are the same choice, give them one name: what is not of the set costs nothing",
                stacklevel=2,
            )
            return

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return dict(self._distributions)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if fixed := self._distributions.keys() - search_space.keys():
            raise InvalidValue(
                f"FeasibleSampler: {', '.join(sorted(fixed))}: all choices of the set are sampled together; to fix "
                "one, rule out its other values: FeasibleSet.of_costs with infinite costs"
            )
        with self._one_at_a_time:
            found = self._sample(study, trial)
            self._proposed[trial.number] = self._network(trial) or found  # with all choices queued it is that network
        return self._space.params(found)

    def _sample(self, study: Study, trial: FrozenTrial) -> Architecture:
        # Before the trials are read: what is proposed for a trial stands in one of both.
        proposed = {one.key for number, one in self._proposed.copy().items() if number != trial.number}
        taken = self._taken(study, trial)
        before = _before(taken, trial)
        rng = np.random.default_rng([self._seed, before, 1])
        seen = proposed | {one.key for other in taken if (one := self._network(other))}
        fixed = trial.system_attrs.get(FIXED_PARAMS, {})
        if 0 < len(self._distributions.keys() & fixed.keys()) < len(self._distributions):
            return self._completed({name: fixed[name] for name in self._distributions if name in fixed}, rng, seen)
        starting, base = before < self._startup, self._bases.get(trial.number)
        if starting and base is not None:
            self._propose(study, trial, base)  # unused, but by that NSGA-II counts the trial among its parents
        for found in () if starting else self._proposals(study, trial, rng):
            if found.key not in seen:
                return found
        if starting or (self._make_base is None and self._thompson is None):
            self._mark_draw(study, trial)
        return self._fresh(rng, seen)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        words = np.random.SeedSequence([self._seed, trial.number, 2]).generate_state(1)
        other = TPESampler(seed=int(words[0]))
        return other.sample_independent(study, trial, param_name, param_distribution)

    def _taken(self, study: Study, trial: FrozenTrial) -> list[FrozenTrial]:
        """The other trials that are finished, under way, or failed and will not run again.

        What failed in a search without a result runs again, or is beyond the budget by now: it leaves no trace.
        Beside threads a trial that began later may be finished before this one has its network.
        """
        trials = [other for other in _all_trials(study) if other.number != trial.number]
        taken = [other for other in trials if other.state is not TrialState.WAITING]
        if not any(map(runs_again, taken)):
            return taken
        if _is_search(study):
            return [other for other in taken if not runs_again(other)]
        again = {None, *(self._network(other) for other in trials if not runs_again(other))}
        return [other for other in taken if not (runs_again(other) and self._network(other) in again)]

    def _network(self, trial: FrozenTrial) -> Architecture | None:
        """The network of a trial, which may have more parameters; None where what it did not ask for is not known.

        A value that was queued for a choice is that of the network, whether the trial asked for it or not.
        """
        params = trial.params
        if self._distributions.keys() - params.keys():
            fixed, values = trial.system_attrs.get(FIXED_PARAMS, {}), self._space.values
            queued = {name: fixed[name] for name in values if name in fixed and fixed[name] in values[name]}
            params = trial.system_attrs.get(_LEFT_OUT, {}) | queued | params
        if self._distributions.keys() - params.keys():
            return None
        texts = tuple(str(params[name]) for name in self._distributions)
        if texts not in self._networks:
            self._networks[texts] = self._space.of_params({name: params[name] for name in self._distributions})
        return self._networks[texts]

    def _completed(self, fixed: dict[str, Any], rng: np.random.Generator, seen: set[str]) -> Architecture:
        """A random completion of fixed values that the study has not seen, where one comes up."""
        for _ in range(_COMPLETIONS):
            found = self._completion(fixed, rng)
            if self._space.of_params(self._space.params(found) | fixed).key not in seen:
                return found
        return self._completion(fixed, rng)

    def _completion(self, fixed: dict[str, Any], rng: np.random.Generator) -> Architecture:
        """A random network within the budget that has as many of the fixed values as possible."""
        wanted = self._space.of_params(self._space.params(self._feasible.draw(rng)) | fixed)
        if all(part.space.name != wanted.space for part in self._feasible.parts):
            wanted = self._feasible.repair(wanted)
        part = next(part for part in self._feasible.parts if part.space.name == wanted.space)
        nearness = noisy_nearness(part.sums.of_space(wanted.space), wanted, rng, _NOISE, kept=fixed.keys())
        return part.best(nearness).architecture

    def _proposals(self, study: Study, trial: FrozenTrial, rng: np.random.Generator) -> Iterator[Architecture]:
        """Networks within the budget, each in place of the one before; none where every trial is a draw, or nothing is
        there to learn from.
        """
        base = self._bases.get(trial.number)
        if base is not None:
            proposed = self._propose(study, trial, base)
            nearest = self._feasible.repair(proposed)
            yield nearest
            for attempt in range(_PROPOSALS - 1):
                yield self._neighbour(proposed, nearest, rng, _NOISE * 2**attempt)
        elif self._thompson is not None and (scored := [*self._known, *self._scored(study)]):
            running, front = len(_others_running(study, trial)), len(study.directions) > 1
            for attempt in range(_PROPOSALS):
                yield self._thompson.propose(
                    scored, rng, attempt=attempt, running=running, front=front, turns=self._turns
                )

    def _neighbour(
        self, proposed: Architecture, nearest: Architecture, rng: np.random.Generator, noise: float
    ) -> Architecture:
        """One of the networks within the budget that are near to a proposal, in the space of the nearest one."""
        part = next(part for part in self._feasible.parts if part.space.name == nearest.space)
        centre = proposed if proposed.space == nearest.space else nearest
        return part.best(noisy_nearness(part.sums.of_space(nearest.space), centre, rng, noise)).architecture

    def _scored(self, study: Study) -> list[ScoreObservation]:
        """What the trials say: scores, and where networks were given up on the way, what all had at those epochs."""
        trials = _all_trials(study, TrialState.COMPLETE, TrialState.PRUNED)
        sign = -1.0 if study.directions[0] is StudyDirection.MINIMIZE else 1.0
        steps = [step for t in trials for step in t.intermediate_values]
        from_0 = int(min(steps, default=1) <= 0)  # where steps are counted from 0, so many were made by the first
        whole, epochs = max(steps, default=0) + from_0, _spread(rungs(trials), _RUNGS)
        finite = [sign * t.values[0] for t in trials if t.state is TrialState.COMPLETE and math.isfinite(t.values[0])]
        found = []
        for trial in trials:
            if (architecture := self._network(trial)) is None:
                continue
            if trial.state is TrialState.COMPLETE and finite:
                score = min(max(sign * trial.values[0], min(finite)), max(finite))
                found.append(ScoreObservation(architecture, score, FULL, trial.number))
            told = {step: sign * score for step, score in trial.intermediate_values.items() if math.isfinite(score)}
            for before, epoch in zip([-math.inf, *epochs], epochs):
                if (last := max((step for step in told if before < step <= epoch), default=None)) is not None:
                    apart = (doublings(epoch + from_0, whole),)
                    found.append(ScoreObservation(architecture, told[last], apart, trial.number))
        return found

    def _propose(self, study: Study, trial: FrozenTrial, base: BaseSampler) -> Architecture:
        with self._blaming():
            space = base.infer_relative_search_space(study, trial)  # of the objective: it may have more parameters
            choices = {name: distribution for name, distribution in space.items() if name in self._distributions}
            params = base.sample_relative(study, trial, choices)
            proposed = {
                name: params[name] if name in params else base.sample_independent(study, trial, name, distribution)
                for name, distribution in self._distributions.items()
            }
        return self._space.of_params(proposed)

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """Around a call of the wrapped sampler; that a trial is pruned is no failure of it."""
        pruned = None
        with samplers.blaming(self._make_base):
            try:
                yield
            except TrialPruned as error:
                pruned = error
        if pruned is not None:
            raise pruned

    def _mark_draw(self, study: Study, trial: FrozenTrial) -> None:
        """Marks a trial of a search as a draw, unless budgets take turns: theirs are from bands."""
        if self._turns == 1 and _is_search(study):
            study._storage.set_trial_system_attr(trial._trial_id, DRAW, True)

    def _fresh(self, rng: np.random.Generator, seen: set[str]) -> Architecture:
        """A draw that the study has not seen, where one comes up: the last one takes as many draws as the set has."""
        for attempt in range(max(_DRAWS, int(min(10 * self._feasible.count, _MOST_DRAWS)))):
            wide = attempt >= _DRAWS // 2
            drawn = self._feasible.draw(rng, (0.0, 1.0) if wide else self._band)
            if drawn.key not in seen and (wide or self._faster is None or drawn not in self._faster):
                return drawn
        return self._feasible.draw(rng)


def _no_sampler(make: Callable[[int], BaseSampler], made: object) -> InvalidValue:
    """What is said of a sampler that makes something else."""
    who = samplers.origin(make) or f"sampler {getattr(make, '__name__', '')}".strip()
    return InvalidValue(f"{who}: expected an optuna.samplers.BaseSampler, got {shown(made)}")


def _spread(rungs: Sequence[int], most: int) -> list[int]:
    """At most so many of some epochs, evenly over their doublings, the first and the last among them."""
    if len(rungs) <= most:
        return list(rungs)
    doubled = np.log2(np.array(rungs) - rungs[0] + 1)
    places = [int(np.abs(doubled - at).argmin()) for at in np.linspace(0, doubled[-1], most)]
    return [rungs[place] for place in dict.fromkeys(places)]


def _before(trials: Sequence[FrozenTrial], trial: FrozenTrial) -> int:
    """How many of some trials were begun before one."""
    return sum(other.number < trial.number for other in trials)


def _others_running(study: Study, trial: FrozenTrial) -> list[FrozenTrial]:
    """The trials under way besides the one that is being made."""
    return [other for other in _all_trials(study, TrialState.RUNNING) if other.number != trial.number]


def _is_search(study: Study) -> bool:
    """Whether a study is one of ``hwbench search``; what Optuna gives beside ``HyperbandPruner`` has no attributes."""
    return SETTINGS in study._storage.get_study_user_attrs(study._study_id)


def _all_trials(study: Study, *states: TrialState) -> list[FrozenTrial]:
    """The trials of a study in some states, or in any.

    Beside Optuna's ``HyperbandPruner`` a sampler is given a study whose own ``get_trials`` leaves out the trials of
    other brackets.
    """
    return Study.get_trials(study, deepcopy=False, states=states or None)
