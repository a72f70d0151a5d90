"""Zero-cost proxies: what an untrained network says about itself after one forward and one backward pass."""

from __future__ import annotations

import math
from statistics import fmean, pstdev
from typing import ClassVar

import torch
from torch import nn

from hwbench.models import network as build
from hwbench.specs import Network
from hwbench.studies.evaluators.base import Context, evaluators

# Clips in the batch whose activation patterns are compared; the kernel matrix is CLIPS x CLIPS.
CLIPS = 8
# Feasible networks that define the scale on which the two proxies are added.
REFERENCE = 12


@evaluators.register("zero-cost")
class ZeroCost:
    """Mean of two proxies on a common scale, at the network's real input size.

    NASWOT: log-determinant of the kernel of binary activation patterns over a batch of random clips (Mellor et al.,
    "Neural Architecture Search without Training", ICML 2021). SynFlow: log of the sum of |weight x gradient| of the
    network with absolute weights on an input of ones (Tanaka et al., NeurIPS 2020; used for search by Abdelfattah et
    al., ICLR 2021). Each is expressed in standard deviations from its mean over a fixed draw of feasible networks, so
    zero is an average network within the budget.
    """

    name: ClassVar[str] = "zero-cost"
    unit: ClassVar[str] = "standard deviations above the mean of feasible networks"

    def __init__(self, context: Context) -> None:
        self._seed = context.seed
        proxies = [self._proxies(network) for network in context.reference(REFERENCE)]
        self._scales = [(fmean(values), pstdev(values) or 1.0) for values in zip(*proxies)]

    def score(self, network: Network) -> float:
        return fmean((v - mean) / spread for v, (mean, spread) in zip(self._proxies(network), self._scales))

    def _proxies(self, network: Network) -> tuple[float, float]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            module = build(network)
            clips = torch.randn(CLIPS, *network.input.shape[1:])
            return naswot(module, clips), synflow(module, torch.ones(1, *network.input.shape[1:]))


def naswot(module: nn.Module, clips: torch.Tensor) -> float:
    """Log-determinant of K, where K[i, j] counts the units that clips i and j (N, C, T, H, W) switch alike.

    A unit is on where what a normalisation puts out, the input of an activation, is above zero. Batch statistics are
    used, as at the start of training; the module is left as it is.
    """
    kernel = torch.zeros(len(clips), len(clips), dtype=torch.float64)

    def add(_: nn.Module, __: object, output: torch.Tensor) -> None:
        on = (output > 0).flatten(1).to(torch.float32)
        kernel.add_((on @ on.T + (1 - on) @ (1 - on).T).to(torch.float64))

    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    handles = [norm.register_forward_hook(add) for norm in norms]
    state = {name: value.clone() for name, value in module.state_dict().items()}
    was_training = module.training
    try:
        module.train()
        with torch.no_grad():
            module(clips)
    finally:
        module.train(was_training)
        module.load_state_dict(state)
        for handle in handles:
            handle.remove()
    return float(torch.linalg.slogdet(kernel).logabsdet)


def synflow(module: nn.Module, ones: torch.Tensor) -> float:
    """Log of the sum over weights of |weight x d(sum of outputs)/d(weight)|, with all weights made positive.

    Computed in double precision, because the product over many layers leaves the range of single precision. Works on a
    copy; the module is left as it is.
    """
    import copy

    positive = copy.deepcopy(module).double().eval()
    with torch.no_grad():
        for parameter in positive.parameters():
            parameter.abs_()
    positive.zero_grad()
    positive(ones.double()).sum().backward()
    total = sum(float((p.detach() * p.grad).abs().sum()) for p in positive.parameters() if p.grad is not None)
    return math.log(total) if total > 0 else float("nan")
