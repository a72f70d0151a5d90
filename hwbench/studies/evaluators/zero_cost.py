"""Zero-cost proxies: what an untrained network says about itself after one forward and one backward pass."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean, pstdev
from typing import ClassVar

import torch
from torch import nn

from hwbench.errors import InvalidValue
from hwbench.models import network as build
from hwbench.specs import Network, TensorSpec
from hwbench.specs.kinds.by_hand import is_by_hand
from hwbench.studies.evaluators.base import Context, evaluators

# Clips in the batch whose activation patterns are compared; the kernel matrix is CLIPS x CLIPS.
CLIPS = 8
# Feasible networks that define the scale on which the two proxies are added.
REFERENCE = 12
# T·H·W of the clips at most, those of x3d-tiny: the patterns of 16 x 224 x 224 take 25 times the time and memory.
MOST_POSITIONS = 8 * 64 * 64
# Frames, and T·H·W, of the input of ones at most: all that is remembered for the backward pass is in double precision.
MOST_ONES = (4, 4 * 64 * 64)
# Of a unit, "on" is at or near the identity and "off" at or near zero. A sigmoid or a softmax has no such halves.
RECTIFIERS = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.PReLU,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Mish,
    nn.Hardswish,
)
# Units whose patterns are compared at once, few enough for exact whole numbers in float32.
_CHUNK = 1 << 18


@evaluators.register("zero-cost")
class ZeroCost:
    """Mean of two proxies on a common scale; both look at an untrained network, on clips of the study's data.

    NASWOT: log-determinant of the kernel of binary activation patterns over a batch (Mellor et al., "Neural
    Architecture Search without Training", ICML 2021). SynFlow: log of the sum of |weight x gradient| of the network
    with absolute weights on an input of ones (Tanaka et al., NeurIPS 2020; used for search by Abdelfattah et al., ICLR
    2021). Each is expressed in standard deviations from its mean over a fixed draw of feasible networks, so zero is an
    average network within the budget.

    Inputs above ``MOST_POSITIONS`` and ``MOST_ONES`` are made smaller, all to about that many, so time and memory are
    bounded: of networks that differ only in a resolution above the first, the faster one wins. A network that needs all
    its frames, as SqueezeTime does, keeps them. A user's own model is run on its own input, normalised as it says.
    """

    name: ClassVar[str] = "zero-cost"
    unit: ClassVar[str] = "standard deviations above the mean of feasible networks"
    scoring: ClassVar[int] = 2
    basis: ClassVar[str] = "untrained networks on a batch of the data, about a second each"
    judged: ClassVar[str] = (
        "48 trained networks of one budget were ranked no better than by chance (tau 0.13, 95 % -0.07 to 0.34, "
        "experiment 031)"
    )

    def __init__(self, context: Context) -> None:
        if context.clips is None:
            raise InvalidValue("evaluator 'zero-cost' needs clips to look at; give --data synthetic or a path")
        self._clips, self._seed = context.clips, context.seed
        proxies = [self._proxies(network) for network in context.reference(REFERENCE)]
        self._scales = [_scale([value for value in values if math.isfinite(value)]) for values in zip(*proxies)]

    def score(self, network: Network) -> float:
        score = fmean((v - mean) / spread for v, (mean, spread) in zip(self._proxies(network), self._scales))
        return score if math.isfinite(score) else math.nan

    def _proxies(self, network: Network) -> tuple[float, float]:
        by_hand = any(is_by_hand(block) for block in network.blocks)
        input = network.input if by_hand else shrunk(network.input, MOST_POSITIONS)
        ones = network.input if by_hand else _ones(network)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            module = build(network)
            clips = self._clips(input, CLIPS, self._seed, *([network] if by_hand else []))
            return naswot(module, clips), synflow(module, torch.ones(1, *ones.shape[1:]))


def shrunk(input: TensorSpec, positions: int) -> TensorSpec:
    """A clip in the proportions of ``input`` with at most ``positions`` pixels T·H·W; frames stay."""
    factor = min(1.0, math.sqrt(positions / (input.t * input.h * input.w)))
    return input.with_(h=max(1, int(factor * input.h)), w=max(1, int(factor * input.w)))


def _ones(network: Network) -> TensorSpec:
    """The largest input of ones within ``MOST_ONES`` that a network takes: with its own frames where it needs them."""
    frames, positions = MOST_ONES
    few = network.input.with_(t=min(network.input.t, frames))
    for input in (shrunk(few, positions), shrunk(network.input, positions)):
        try:
            return network.on(input).input
        except InvalidValue:  # frames that become channels are all there, and strides without padding need pixels
            continue
    return network.input


def naswot(module: nn.Module, clips: torch.Tensor) -> float:
    """Log-determinant of K, where K[i, j] counts the units that clips i and j (N, C, T, H, W) switch alike.

    A unit is a value that goes into an activation of ``RECTIFIERS``; it is on above zero. Batch statistics are used, as
    at the start of training; the module is left as it is. Not a number where the module has no such units, or two
    clips switch all of them alike.
    """
    kernel = torch.zeros(len(clips), len(clips), dtype=torch.float64)

    def add(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if len(inputs[0]) == len(clips):  # another first axis than the batch has no patterns of clips
            kernel.add_(_alike(inputs[0]))

    handles = [m.register_forward_pre_hook(add) for m in module.modules() if isinstance(m, RECTIFIERS)]
    try:
        with _untouched(module), torch.no_grad():
            module.train()
            module(clips)
    finally:
        for handle in handles:
            handle.remove()
    logarithm = float(torch.linalg.slogdet(kernel).logabsdet)
    return logarithm if math.isfinite(logarithm) else math.nan


def synflow(module: nn.Module, ones: torch.Tensor) -> float:
    """Log of the sum over weights of |weight x d(sum of outputs)/d(weight)|, with all weights made positive.

    Computed in double precision: the product over many layers leaves the range of single precision, and layers that
    are scaled one by one would change the shares of residual branches. A small input keeps it cheap; with positive
    weights and a mean over the clip its size tells only through the edges. Works on a copy; the module is left as it
    is.
    """
    positive = copy.deepcopy(module).double().eval()
    with torch.no_grad():
        for parameter in positive.parameters():
            parameter.abs_()
    positive.zero_grad()
    positive(ones.double()).sum().backward()
    total = sum(float((p.detach() * p.grad).abs().sum()) for p in positive.parameters() if p.grad is not None)
    return math.log(total) if 0 < total < math.inf else math.nan


def _alike(units: torch.Tensor) -> torch.Tensor:
    """Number of units (N, ...) that are on in both or in neither of two clips: (N, N)."""
    flat = units.flatten(1)
    counts = torch.zeros(len(flat), len(flat), dtype=torch.float64)
    for part in torch.split(flat, _CHUNK, dim=1):
        signs = (part > 0).to(torch.float32).mul_(2).sub_(1)
        counts += (signs @ signs.T).to(torch.float64)
    return (counts + flat.shape[1]) / 2


@contextmanager
def _untouched(module: nn.Module) -> Iterator[None]:
    """Puts parameters, statistics and the modes of all parts back."""
    state = {name: value.clone() for name, value in module.state_dict().items()}
    modes = {part: part.training for part in module.modules()}
    try:
        yield
    finally:
        module.load_state_dict(state)
        for part, training in modes.items():
            part.training = training


def _scale(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation, 0 and 1 where there is nothing to tell them from."""
    return (fmean(values), pstdev(values) or 1.0) if values else (0.0, 1.0)
