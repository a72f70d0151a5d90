"""Powers, extremes, reductions over everything and fills: exact in double precision, and refused by name where not."""

from collections.abc import Callable

import pytest
import torch

from hwbench.deploy import deploy_graph
from hwbench.errors import UnsupportedModule
from hwbench.models import frames_to_batch
from hwbench.testing.clip_functions import Does

INFINITY = float("inf")
UPPER, LOWER = torch.ones(10, 10).triu(1).bool(), torch.ones(10, 10).tril(-1).bool()


def scores(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(3, 4) @ x


def generalised_mean(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Radenovic et al., arXiv 1711.02512, equation 3."""
    return x.clamp(min=1e-6).pow(p).mean((2, 3, 4)).pow(1 / p)


POWERS = (4, 5, 7, 1, 0, -2, -3, 1 / 3, 1.5, -1.5, 2.75, -0.25)
ANY_BATCH: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{f"power {exponent:g}": lambda x, e=exponent: (x.abs() + 0.1) ** e + 0 * x for exponent in POWERS},
    "whole powers of what is below 0": lambda x: x**4 - x**5 + x.mean((3, 4)).pow(6)[..., None, None],
    "root of 0": lambda x: x.relu() ** (1 / 3),
    "generalised mean": lambda x: generalised_mean(x, torch.tensor([2.7])),
    "generalised mean with a whole power": lambda x: generalised_mean(x, torch.tensor([3.0])),
    "smallest": lambda x: x.amin((2, 3, 4)) + x.amin(1).amin((1, 2, 3), keepdim=True).flatten(1),
    "smallest of channels": lambda x: x.permute(0, 2, 3, 4, 1).amin(-1, keepdim=True),
    "smallest of pictures": lambda x: x[:, :, 0].amin((2, 3)) + x[:, 0].amin((1, 3))[:, :4],
    "smallest and where": lambda x: (
        x.min(2)[0] + x.min(1, keepdim=True).values[:, :, 0] + x[:, 0].min(-1, True)[0][:, :1]
    ),
    "of pictures and tokens": lambda x: x.flatten(2) * x.flatten(2).mean() + x[:, :, 0].sum() - x[:, 0].min(),
    "filled twice": lambda x: scores(x).masked_fill(UPPER, -INFINITY).masked_fill(UPPER, 0.5),
    "filled with infinity and more": lambda x: (
        scores(x).masked_fill(UPPER, INFINITY).clamp(max=3).masked_fill(LOWER, -1)
    ),
    "filled rows that softmax has made": lambda x: (
        scores(x).masked_fill(UPPER, -INFINITY).softmax(-1).masked_fill(UPPER, 0.0)
    ),
}
OF_ALL: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scaled by the largest": lambda x: x / x.abs().max(),
    "centred": lambda x: x - x.mean() + x.sum() / 1800,
    "between the extremes": lambda x: (x - x.min()) / (x.max() - x.min()),
}


def proven(function: Callable[[torch.Tensor], torch.Tensor], batch: int) -> None:
    clip = torch.randn(batch, 4, 5, 9, 10, dtype=torch.float64)
    with torch.no_grad():
        expected, got = function(clip), deploy_graph(Does(function), clip)(frames_to_batch(clip))
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ANY_BATCH)
def test_any_batch(name: str, batch: int) -> None:
    proven(ANY_BATCH[name], batch)


@pytest.mark.parametrize("name", OF_ALL)
def test_reductions_over_everything_are_those_of_one_clip(name: str) -> None:
    """Over several clips each would depend on the others."""
    proven(OF_ALL[name], 1)
    with pytest.raises(
        UnsupportedModule, match=r"aten\.\w+\.default in the model itself .* over the batch is not covered"
    ):
        deploy_graph(Does(OF_ALL[name]), torch.zeros(2, 4, 5, 9, 10))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x**x, r"pow.Tensor_Tensor.* on 1x4x5x9x10.*: its exponent depends on the input; where x is above 0"),
        (lambda x: x ** torch.ones(10), r"pow.Tensor_Tensor.*: more than one exponent is not covered; where x is"),
        (lambda x: x**INFINITY, "a power of inf is not covered"),
        (lambda x: x.min(1)[1], r"min.dim.* on 1x4x5x9x10.*result 1 is not covered"),
    ],
)
def test_what_is_not_covered_is_refused_with_what_to_write(
    function: Callable[[torch.Tensor], torch.Tensor], said: str
) -> None:
    with pytest.raises(UnsupportedModule, match=said):
        deploy_graph(Does(function), torch.zeros(1, 4, 5, 9, 10))
