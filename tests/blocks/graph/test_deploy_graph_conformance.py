import pytest
from torch import nn

from hwbench.testing.graph_rules import GraphRuleConformance

LAYERS = {
    "convolution": lambda: nn.Conv3d(4, 6, 3, (2, 1, 1), 1),
    "normalisation": lambda: nn.Sequential(nn.Conv3d(4, 6, (3, 1, 1), padding=(1, 0, 0)), nn.BatchNorm3d(6), nn.ReLU()),
    "pooling": lambda: nn.MaxPool3d(3, 2, 1),
}


class TestSomeRules(GraphRuleConformance):
    """The rules themselves, one by one and in all forms: ``test_deploy_graph_rules``."""

    @pytest.fixture(params=LAYERS)
    def layer(self, request):
        return LAYERS[request.param]()
