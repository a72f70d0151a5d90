import pytest
import torch

from hwbench.studies.evaluators import MODULES, Context, get
from hwbench.studies.sampler import samplers
from hwbench.testing.evaluators import EvaluatorConformance, members, random_clips
from hwbench.testing.samplers import SamplerConformance, tiny_feasible

__all__ = ["tiny_feasible"]


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small are slower with several, by far where others use the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class TestShippedEvaluators(EvaluatorConformance):
    @pytest.fixture(params=sorted(MODULES))
    def evaluator(self, request):
        return get(request.param)

    @pytest.fixture
    def context(self, space):
        """With trainings whose top-1 and losses follow from the network."""

        def trainer(network, seed):
            return (hash((len(network.blocks), network.blocks[1].out_channels, network.input.t)) + seed) % 997 / 997

        def losses(network, seed, report):
            for epoch in range(3):
                report(epoch, 2 - trainer(network, seed) * (epoch + 1) / 4)

        def inherited(network):
            return trainer(network, 1)

        def reference(count):
            return members(space, min(count, 4), seed=1)

        return Context(3, reference, trainer, losses, random_clips, inherited)


class TestShippedSamplers(SamplerConformance):
    @pytest.fixture(params=samplers.names())
    def base(self, request):
        return samplers.get(request.param)
