"""Muon: momentum whose directions are made orthogonal, for the matrices of a network; AdamW for the rest.

Momentum of a matrix has few strong directions and many weak ones. Muon steps equally far in all of them, so that rare
features are learned as soon as frequent ones. Networks of all families of hwbench learn in a third of the epochs that
SGD takes (experiments/031-recipes).

Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks" (kellerjordan.github.io/posts/muon).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.optim.adamw import adamw

# Of each iteration of Newton and Schulz, x <- a x + b (x x') x + c (x x')^2 x: those of modded-nanogpt (Jordan et al.).
COEFFICIENTS = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
# Of AdamW, as the reference has them.
BETAS = (0.9, 0.95)
_EPS = 1e-8


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum.

    The weights of a convolution are the matrix of its outputs by all that goes into one of them. What has no such
    matrix (biases, normalisation, depthwise convolutions) is updated by AdamW at the same rate.

    Args:
        params: Groups of parameters; a group may have a ``weight_decay`` of its own. Decay is decoupled.
        lr: Spectral norm of the step of a matrix that has no more outputs than inputs.
        momentum: Of the matrices.
        weight_decay: Of groups that say nothing else.
    """

    def __init__(
        self, params: Iterable[Any], *, lr: float = 0.02, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step; what has no gradient stays."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            given = [parameter for parameter in group["params"] if parameter.grad is not None]
            if matrices := [parameter for parameter in given if is_matrix(parameter)]:
                self._step_matrices(matrices, group)
            if others := [parameter for parameter in given if not is_matrix(parameter)]:
                self._step_others(others, group)
        return loss

    def _step_matrices(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        rate, beta, decay = float(group["lr"]), float(group["momentum"]), float(group["weight_decay"])
        gradients = _gradients(parameters)
        moments = [self._kept(parameter, "momentum") for parameter in parameters]
        torch._foreach_lerp_(moments, gradients, 1 - beta)
        looked_ahead = torch._foreach_lerp(gradients, moments, beta)
        torch._foreach_mul_(parameters, 1 - rate * decay)
        # Matrices of one shape go together: of small ones, a GPU spends its time on starting kernels.
        alike: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, parameter in enumerate(parameters):
            rows, columns = parameter.shape[0], parameter[0].numel()
            alike[min(rows, columns), max(rows, columns)].append(number)
        for numbers in alike.values():
            flat = [looked_ahead[number].flatten(1) for number in numbers]
            directions = orthogonal(torch.stack([one.T if _is_tall(one) else one for one in flat])).unbind()
            steps = [
                (direction.T if _is_tall(one) else direction).mul(_length(one)).reshape(parameters[number].shape)
                for number, one, direction in zip(numbers, flat, directions, strict=True)
            ]
            torch._foreach_add_([parameters[number] for number in numbers], steps, alpha=-rate)

    def _step_others(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        for parameter in parameters:
            self.state[parameter].setdefault("step", torch.zeros(()))
        adamw(
            parameters,
            _gradients(parameters),
            [self._kept(parameter, "exp_avg") for parameter in parameters],
            [self._kept(parameter, "exp_avg_sq") for parameter in parameters],
            [],
            [self.state[parameter]["step"] for parameter in parameters],
            foreach=True,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=_EPS,
            maximize=False,
        )

    def _kept(self, parameter: torch.Tensor, name: str) -> torch.Tensor:
        """A tensor of the state of a parameter, zeros at first."""
        state = self.state[parameter]
        if name not in state:
            state[name] = torch.zeros_like(parameter)
        kept: torch.Tensor = state[name]
        return kept


def is_matrix(weight: torch.Tensor) -> bool:
    """Whether weights (outputs, inputs, ...) mix several inputs into several outputs."""
    return weight.dim() >= 2 and min(weight.shape[:2]) > 1


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Matrices (N, rows, columns), not taller than wide, with all singular values near 1 and the same singular vectors.

    Values below about a thousandth of the norm of a matrix stay small, and zeros stay zeros.
    """
    x: torch.Tensor = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp_min(1e-7)
    for a, b, c in COEFFICIENTS:
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x


def _gradients(parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _is_tall(matrix: torch.Tensor) -> bool:
    return matrix.shape[0] > matrix.shape[1]


def _length(matrix: torch.Tensor) -> float:
    """Of the step of a matrix (outputs, inputs), in learning rates: more outputs need a longer one."""
    return math.sqrt(max(1.0, matrix.shape[0] / matrix.shape[1]))
