import pytest
import torch

from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.evaluators import MODULES, Context, get
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.fitted_scores import FittedScores
from hwbench.studies.sampler import samplers
from hwbench.testing.evaluators import CLASSES, EvaluatorConformance, members, random_clips
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

        sums = SpaceSums.of(space, lambda block, x: block.out_channels, num_classes=CLASSES)
        known = [Architecture.parse(network.name) for network in members(space, 12, seed=2)]
        fitted = FittedScores(sums, tuple(ScoreObservation(one, sums.total(one) / 100) for one in known))
        return Context(3, reference, trainer, losses, random_clips, inherited, fitted)


class TestShippedSamplers(SamplerConformance):
    @pytest.fixture(params=samplers.names())
    def base(self, request):
        return samplers.get(request.param)
