"""The suite that every evaluator passes: a test class with a fixture ``evaluator`` inherits ``EvaluatorConformance``.

``evaluator`` is the registered class. A fixture ``context`` may be overridden for one that needs more than networks and
clips, such as a trainer.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from hwbench.spaces import StagedSpace, read_space
from hwbench.specs import Network, Precision, TensorSpec
from hwbench.studies.evaluators import (
    AdditiveEvaluator,
    Context,
    Evaluator,
    ReportingEvaluator,
    describe,
    get,
    scoring_of,
)
from hwbench.workspace import shipped

CLASSES = 8
# Shipped spaces with blocks that have no weights: pools over frames, and what splits a clip into pathways.
WEIGHTLESS = ("i3d-mobile", "slowfast-mobile")


class EvaluatorConformance:
    """Inherit, and give a fixture ``evaluator``."""

    @pytest.fixture
    def space(self) -> StagedSpace:
        return read_space(shipped() / "search_spaces" / "x3d-tiny.toml")

    @pytest.fixture
    def context(self, space: StagedSpace) -> Context:
        return Context(3, lambda count: members(space, min(count, 4), seed=1), clips=random_clips)

    def test_it_is_found_by_its_name_and_says_its_unit(self, evaluator: type[Evaluator]) -> None:
        assert get(evaluator.name) is evaluator
        assert evaluator.unit.strip()
        assert evaluator.unit in describe(evaluator)
        assert scoring_of(evaluator) >= 1
        assert inspect.getdoc(evaluator)

    def test_scores_are_numbers_and_repeatable(
        self, evaluator: type[Evaluator], context: Context, space: StagedSpace
    ) -> None:
        networks = members(space, 3)
        made = evaluator(context)
        scores = [made.score(network) for network in networks]
        assert all(isinstance(score, float) for score in scores)
        again = evaluator(context)
        assert [again.score(network) for network in reversed(networks)] == pytest.approx(scores[::-1])
        assert len({round(score, 9) for score in scores if math.isfinite(score)}) > 1

    def test_the_network_is_all_that_counts(
        self, evaluator: type[Evaluator], context: Context, space: StagedSpace
    ) -> None:
        """Neither the object's identity nor what was scored before."""
        first, second = members(space, 2)
        made = evaluator(context)
        alone = made.score(second)
        made.score(first)
        assert made.score(copy.deepcopy(second)) == pytest.approx(alone)

    def test_an_additive_score_is_the_sum_over_blocks(
        self, evaluator: type[Evaluator], context: Context, space: StagedSpace
    ) -> None:
        if not hasattr(evaluator, "block_score"):
            return
        made = evaluator(context)
        assert isinstance(made, AdditiveEvaluator)
        for network in members(space, 3):
            x, total = network.input, 0.0
            for block in network.blocks:
                total += made.block_score(block, x)
                x = block.output(x)
            assert made.score(network) == pytest.approx(total)

    @pytest.mark.parametrize("name", WEIGHTLESS)
    def test_an_additive_score_has_a_number_for_blocks_without_weights(
        self, evaluator: type[Evaluator], context: Context, name: str
    ) -> None:
        if not hasattr(evaluator, "block_score"):
            return
        made = evaluator(context)
        assert isinstance(made, AdditiveEvaluator)
        networks = members(read_space(shipped() / "search_spaces" / f"{name}.toml"), 20)
        parts = [part for network in networks for part in network.workload(Precision.FP32).parts()]
        blocks = [(part.blocks[0], part.input) for part in parts]
        weightless = [(block, x) for block, x in blocks if not sum(one.num_weights for one in block.operations(x))]
        assert weightless
        assert all(math.isfinite(made.block_score(block, x)) for block, x in weightless)

    def test_a_score_that_is_reported_ends_as_the_score_and_can_be_given_up(
        self, evaluator: type[Evaluator], context: Context, space: StagedSpace
    ) -> None:
        if not hasattr(evaluator, "score_reporting"):
            return
        made = evaluator(context)
        assert isinstance(made, ReportingEvaluator)
        (network,), reported = members(space, 1), list[tuple[int, float]]()
        score = made.score_reporting(network, lambda epoch, value: reported.append((epoch, value)))
        assert made.score(network) == pytest.approx(score)
        assert [epoch for epoch, _ in reported] == list(range(len(reported)))
        assert reported[-1][1] == pytest.approx(score)
        with pytest.raises(_GivenUp):
            made.score_reporting(network, _give_up)


class _GivenUp(Exception):
    pass


def _give_up(epoch: int, value: float) -> None:
    raise _GivenUp


def random_clips(input: TensorSpec, count: int, seed: int, network: Network | None = None) -> torch.Tensor:
    """What stands for clips of data, float32 (count, 3, T, H, W): blurred noise, the same for every ``network``."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, 3, *(max(1, extent // 4) for extent in input.shape[2:]), generator=generator)
    return torch.nn.functional.interpolate(noise, input.shape[2:], mode="trilinear")


def members(space: StagedSpace, count: int, seed: int = 0) -> Sequence[Network]:
    """Different members of a space, drawn with a seed."""
    rng = np.random.default_rng(seed)
    drawn = {space.random(rng): None for _ in range(20 * count)}
    return [space.network(architecture, CLASSES) for architecture in list(drawn)[:count]]
