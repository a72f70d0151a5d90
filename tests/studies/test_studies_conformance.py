import pytest

from hwbench.studies.evaluators import MODULES, Context, get
from hwbench.studies.sampler import samplers
from hwbench.testing.evaluators import EvaluatorConformance, members
from hwbench.testing.samplers import SamplerConformance, tiny_feasible

__all__ = ["tiny_feasible"]


class TestShippedEvaluators(EvaluatorConformance):
    @pytest.fixture(params=sorted(MODULES))
    def evaluator(self, request):
        return get(request.param)

    @pytest.fixture
    def context(self, space):
        """With a trainer whose top-1 follows from the network."""

        def trainer(network, seed):
            return (hash((len(network.blocks), network.blocks[1].out_channels, network.input.t)) + seed) % 997 / 997

        return Context(3, lambda count: members(space, min(count, 4), seed=1), trainer)


class TestShippedSamplers(SamplerConformance):
    @pytest.fixture(params=samplers.names())
    def base(self, request):
        return samplers.get(request.param)
