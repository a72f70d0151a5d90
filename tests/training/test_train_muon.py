"""Muon: directions are those of a singular value decomposition, and what is no matrix is updated by AdamW."""

import pytest
import torch
from torch import nn

from hwbench.training.muon import BETAS, Muon, is_matrix, orthogonal

RATE, DECAY = 0.02, 0.05


def exact(matrix: torch.Tensor) -> torch.Tensor:
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    return left @ right


def distance(one: torch.Tensor, two: torch.Tensor) -> float:
    return ((one - two).norm() / two.norm()).item()


@pytest.mark.parametrize("shape", [(24, 72), (16, 16), (1, 9), (3, 500)])
def test_matrices_become_orthogonal(shape: tuple[int, int]) -> None:
    matrices = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    matrices *= torch.tensor([1e-6, 1.0, 1e6])[:, None, None]
    for found, matrix in zip(orthogonal(matrices), matrices, strict=True):
        assert distance(found, exact(matrix)) < 0.08
        assert torch.linalg.svdvals(found).max() < 1.2


def test_outputs_without_a_gradient_stay() -> None:
    matrix = torch.randn(1, 8, 20, generator=torch.Generator().manual_seed(1))
    matrix[:, 3] = 0
    assert (orthogonal(matrix)[0, 3] == 0).all()
    assert (orthogonal(torch.zeros(2, 4, 5)) == 0).all()


def network() -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv3d(3, 16, 3),
        nn.BatchNorm3d(16),
        nn.Conv3d(16, 16, 3, groups=16),
        nn.ReLU(),
        nn.Conv3d(16, 64, 1, bias=False),
        nn.Conv3d(64, 16, 1, bias=False),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )


def gradients(module: nn.Module, seed: int) -> None:
    """As dense as they can be, so that a decomposition has no choice of directions."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def test_a_step_of_a_matrix_is_as_long_in_every_direction() -> None:
    module = network()
    before = [parameter.detach().clone() for parameter in module.parameters()]
    gradients(module, 0)
    Muon(module.parameters(), lr=RATE, weight_decay=DECAY).step()
    seen = set()
    for parameter, old in zip(module.parameters(), before, strict=True):
        if is_matrix(parameter):
            step = (parameter.detach() - (1 - RATE * DECAY) * old).flatten(1)
            length = RATE * max(1.0, step.shape[0] / step.shape[1]) ** 0.5
            assert parameter.grad is not None
            assert distance(step, -length * exact(parameter.grad.flatten(1))) < 0.08
            seen.add(tuple(step.shape))
    assert seen == {(16, 81), (64, 16), (16, 64), (5, 16)}


def test_the_rest_is_updated_by_adamw() -> None:
    ours, theirs = network(), network()
    rest = [parameter for parameter in theirs.parameters() if not is_matrix(parameter)]
    muon = Muon(ours.parameters(), lr=RATE, weight_decay=DECAY)
    adamw = torch.optim.AdamW(rest, lr=RATE, betas=BETAS, weight_decay=DECAY)
    for step in range(3):
        for module, optimizer in ((ours, muon), (theirs, adamw)):
            gradients(module, step)
            optimizer.step()
    found = [parameter for parameter in ours.parameters() if not is_matrix(parameter)]
    assert len(found) == 6  # biases of two convolutions and of the head, scale and shift, a depthwise convolution
    for one, other in zip(found, rest, strict=True):
        torch.testing.assert_close(one, other)


def test_momentum_goes_on_where_a_gradient_is_missing() -> None:
    module = network()
    optimizer = Muon(module.parameters(), lr=RATE)
    gradients(module, 0)
    head = module[-1].weight
    head.grad = None
    before = head.detach().clone()
    optimizer.step()
    assert torch.equal(head, before)
    gradients(module, 1)
    optimizer.step()
    assert not torch.equal(head, before)


def test_zigzags_of_one_strong_direction_do_not_hold_up_the_others() -> None:
    """Least squares with a condition of 1e4: SGD at its largest stable rate learns the strong direction only."""
    scales = torch.logspace(0, -2, 8)
    target = torch.randn(8, 8, generator=torch.Generator().manual_seed(3))

    def error(make: type[torch.optim.Optimizer], **how: float) -> float:
        weight = nn.Parameter(torch.zeros(8, 8))
        optimizer = make([weight], **how)  # type: ignore[arg-type]
        for _ in range(200):
            optimizer.zero_grad()
            (((weight - target) * scales) ** 2).sum().backward()
            optimizer.step()
        return (weight - target).norm().item()

    assert error(Muon, lr=0.05) < 0.5 * error(torch.optim.SGD, lr=0.1, momentum=0.9)
