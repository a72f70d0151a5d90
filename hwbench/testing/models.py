"""Small real models for tests of runners: built in a second or two, run in microseconds."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from torch import nn

from hwbench.runtimes.executorch.quiet import quiet
from hwbench.specs import Artifact, DelegationReport, Workload
from hwbench.workspace import write_bytes


class SmallNet(nn.Module):
    """Three convolutions with ReLU, and a mean that stays outside the delegate: (2, 3, S, S) -> (2, 5)."""

    def __init__(self, channels: int = 8, seed: int = 0) -> None:
        super().__init__()
        self.full = nn.Conv2d(3, channels, 3, padding=1)
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.pointwise = nn.Conv2d(channels, 5, 1)
        chance = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.empty_like(parameter).normal_(0, 0.3, generator=chance))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.pointwise(self.depthwise(self.full(x).relu()).relu())
        return y.mean((2, 3))


def small_net(size: str) -> tuple[nn.Module, torch.Tensor]:
    """The factory that an ``.eager.json`` may name: ``SmallNet`` and an input with so many rows and columns."""
    return SmallNet(), torch.zeros(2, 3, int(size), int(size))


def write_eager(path: Path, size: int = 16) -> Path:
    """Writes an ``.eager.json`` of ``small_net``."""
    path.write_text(json.dumps({"module": "hwbench.testing.models:small_net", "argument": str(size)}))
    return path


def write_pte(
    path: Path,
    *,
    channels: int = 8,
    size: int = 16,
    int8: bool = False,
    layout: torch.memory_format = torch.contiguous_format,
) -> Path:
    """Writes ``SmallNet`` as ``.pte``, delegated to XNNPACK but for the mean; ``layout`` is that of its input."""
    with quiet():
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower

        example = (torch.linspace(-1, 1, 6 * size * size).reshape(2, 3, size, size).contiguous(memory_format=layout),)
        module: nn.Module = SmallNet(channels).eval()
        if int8:
            module = _quantized(module, example)
        program = to_edge_transform_and_lower(torch.export.export(module, example), partitioner=[XnnpackPartitioner()])
        write_bytes(path, program.to_executorch().buffer)
    return path


def _quantized(module: nn.Module, example: tuple[torch.Tensor, ...]) -> nn.Module:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(module, example).module(), quantizer)
    prepared(*example)
    converted: nn.Module = convert_pt2e(prepared)
    return converted


def artifact(path: Path, number: int = 0) -> Artifact:
    """An artifact of a file. Its workload is a stand-in; ``number`` tells it from others."""
    workload = Workload.parse(f"x3d_i24_m54_o24_k3x3x3_swish@1x24x4x{14 + number}x14/fp32/auto")
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
    return Artifact(path, digest, workload, "executorch", "1.5.1", DelegationReport(1))
