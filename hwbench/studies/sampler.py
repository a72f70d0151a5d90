"""Samples networks within the budget: by Thompson sampling, or by any Optuna sampler whose proposals are repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, NSGAIISampler, TPESampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from hwbench.registry import Registry
from hwbench.spaces.protocols import NetworkSet
from hwbench.spaces.repair import noisy_nearness
from hwbench.specs import Architecture
from hwbench.studies.fidelities import FULL, ScoreObservation, doublings
from hwbench.studies.journal import finished_trials
from hwbench.studies.pruning import rungs
from hwbench.studies.thompson import Thompson

# Makes the wrapped sampler from a seed; None means that every trial is an exact uniform draw.
Base = Callable[[int], BaseSampler] | type[Thompson] | None

# Proposals that are tried before a network already seen is replaced by a fresh draw.
_PROPOSALS = 4
# Noise by which the first neighbour of a proposal is found, where a change of one choice counts 1; then twice as much.
_NOISE = 0.25
_DRAWS = 400

samplers: Registry[Base] = Registry("sampler", entry_points="hwbench.samplers")


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

    The first ``startup`` trials are exact uniform draws. After them ``Thompson`` proposes a network of the feasible
    set, or a wrapped Optuna sampler proposes one that is repaired into the nearest network within the budget; the
    repaired network is what is evaluated and what the sampler learns from. In place of a network that the study has
    seen ``Thompson`` proposes another; of a wrapped sampler one near to its proposal is taken, for it may propose the
    same again and again (the optimum of an acquisition function that knows no budget). In the end one is drawn.

    The sampler is made afresh for every trial, seeded by how many are finished or under way: a study with one worker
    that was interrupted goes on exactly as it would have, and trials that run at the same time have seeds of their own
    and networks of their own.

    Draws are from ``band``, shares of the budget as ``FeasibleSet.draw`` takes them, while new networks come up there.
    ``Thompson`` learns from ``known`` observations as well, which are no trials of the study. Where ``turns`` budgets
    take turns, this is the sampler of one of them.
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
    ) -> None:
        self._feasible = feasible
        self._space = feasible.space
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(values) for name, values in feasible.space.values.items()
        }
        self._thompson: Thompson | None = base(feasible) if isinstance(base, type) else None
        self._make_base = None if isinstance(base, type) else base
        self._seed = seed
        self._startup = startup
        self._band = band
        self._known = tuple(known)
        self._turns = turns
        self._base: BaseSampler | None = None

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        if self._make_base is not None:
            position = len(finished_trials(study)) + len(_others_running(study, trial))
            words = np.random.SeedSequence([self._seed, position]).generate_state(1)
            self._base = self._make_base(int(words[0]))
            self._base.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        if self._base is not None:
            self._base.after_trial(study, trial, state, values)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        taken = [*finished_trials(study), *_others_running(study, trial)]
        rng = np.random.default_rng([self._seed, len(taken), 1])
        seen = {self._space.of_params(t.params).key for t in taken if t.params.keys() == self._distributions.keys()}
        starting = len(taken) < self._startup
        if starting and self._base is not None:
            self._propose(study, trial, self._base)  # unused, but by that NSGA-II counts the trial among its parents
        for found in () if starting else self._proposals(study, trial, rng):
            if found.key not in seen:
                return self._space.params(found)
        return self._space.params(self._fresh(rng, seen))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise AssertionError(f"{param_name}: all choices are sampled together")

    def _proposals(self, study: Study, trial: FrozenTrial, rng: np.random.Generator) -> Iterator[Architecture]:
        """Networks within the budget, each in place of the one before; none where every trial is a draw, or nothing is
        there to learn from.
        """
        if self._base is not None:
            proposed = self._propose(study, trial, self._base)
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
        trials = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
        sign = -1.0 if study.directions[0] is StudyDirection.MINIMIZE else 1.0
        epochs = rungs(trials)
        whole = max((t.last_step or 0 for t in trials), default=0)
        found = []
        for trial in trials:
            architecture = self._space.of_params(trial.params)
            if trial.state is TrialState.COMPLETE:
                found.append(ScoreObservation(architecture, sign * trial.values[0], FULL, trial.number))
            for step in epochs:
                if step in trial.intermediate_values:
                    score, apart = sign * trial.intermediate_values[step], (doublings(step, whole),)
                    found.append(ScoreObservation(architecture, score, apart, trial.number))
        return found

    def _propose(self, study: Study, trial: FrozenTrial, base: BaseSampler) -> Architecture:
        params = base.sample_relative(study, trial, base.infer_relative_search_space(study, trial))
        for name, distribution in self._distributions.items():
            if name not in params:
                params[name] = base.sample_independent(study, trial, name, distribution)
        return self._space.of_params(params)

    def _fresh(self, rng: np.random.Generator, seen: set[str]) -> Architecture:
        """A draw that the study has not seen, where one comes up soon."""
        for attempt in range(_DRAWS):
            drawn = self._feasible.draw(rng, self._band if attempt < _DRAWS // 2 else (0.0, 1.0))
            if drawn.key not in seen:
                return drawn
        return self._feasible.draw(rng)


def _others_running(study: Study, trial: FrozenTrial) -> list[FrozenTrial]:
    """The trials under way besides the one that is being made."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return [other for other in running if other.number != trial.number]
