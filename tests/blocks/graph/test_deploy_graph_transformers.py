"""Transformers for video: the deploy form, and the file, compute what the model computes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models import video
from torchvision.models.video.mvit import MSBlockConfig, MViT
from torchvision.models.video.swin_transformer import SwinTransformer3d

from hwbench.blocks import frames_to_batch
from hwbench.blocks.graph import deploy_graph
from hwbench.deploy.parity import relative_error
from hwbench.runtimes import get
from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.runners import check_file
from hwbench.specs import BlockSpec, Precision, TensorSpec, Workload

SIZE = (32, 32)
# Strides tell the order of axes in a file, also that of an axis of one place.
ORDERS = (torch.contiguous_format, torch.channels_last)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


class Layer(nn.Module):
    """Attention and two linear layers, each behind a normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, tokens, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(n, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width)
        x = x + self.projection(y)
        return x + self.mlp(self.norm2(x))


class Tubelets(nn.Module):
    """A plain vision transformer on tubelets of 2x8x8 (Tong et al., VideoMAE, NeurIPS 2022), with a class token."""

    def __init__(self, width: int = 16, depth: int = 1) -> None:
        super().__init__()
        self.patch = nn.Conv3d(3, width, (2, 8, 8), (2, 8, 8))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, 33, width))
        self.layers = nn.Sequential(*(Layer(width, 4) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.norm(self.layers(x))[:, 0])


def swin() -> nn.Module:
    sizes = {"patch_size": [2, 4, 4], "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": [4, 4, 4]}
    return SwinTransformer3d(**sizes, num_classes=8)


def mvit(version: int) -> nn.Module:
    kernels = [[3, 3, 3], [3, 3, 3]]
    blocks = [
        MSBlockConfig(1, 16, (32, 16)[version - 1], *kernels, [1, 1, 1], [1, 2, 2]),
        MSBlockConfig(2, (32, 16)[version - 1], 32, *kernels, [1, 2, 2], [1, 1, 1]),
    ]
    second = version == 2
    return MViT(
        spatial_size=SIZE, temporal_size=4, block_setting=blocks, residual_pool=second, residual_with_cls_embed=False,
        rel_pos_embed=second, proj_after_attn=second, num_classes=8,
    )  # fmt: skip


MODELS = {
    "tubelets": (Tubelets, (4, *SIZE)),
    "swin3d": (swin, (8, *SIZE)),
    "mvit v1": (lambda: mvit(1), (4, *SIZE)),
    "mvit v2": (lambda: mvit(2), (4, *SIZE)),
}


def pte(model: nn.Module, clip: torch.Tensor, path: Path) -> torch.Tensor:
    """What the file of a model returns for a clip, in a process of its own."""
    workload = Workload((BlockSpec("foreign", 3, 1),), TensorSpec(1, 3, 1, 1, 1), Precision.FP32)
    with quiet():
        artifact = get("executorch").build(deploy_graph(model, clip), frames_to_batch(clip), workload, path, [])
    assert artifact.delegation.complete
    return torch.from_numpy(np.array(check_file(path, frames_to_batch(clip).contiguous().numpy()).output))


@pytest.mark.parametrize("name", MODELS)
def test_the_deploy_form_computes_the_same(name: str) -> None:
    make, size = MODELS[name]
    model, clip = make().eval(), torch.randn(1, 3, *size)
    with torch.no_grad():
        assert relative_error(model(clip), deploy_graph(model, clip)(frames_to_batch(clip))) < 1e-5


class Positioned(nn.Module):
    """Tokens of 16 places a frame, with terms of place and of time as in MViT."""

    def __init__(self, frames: int) -> None:
        super().__init__()
        self.patch = nn.Conv3d(3, 4, (1, 8, 8), (1, 8, 8))
        self.place, self.time = nn.Parameter(torch.randn(1, 16, 4)), nn.Parameter(torch.randn(1, frames, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place, time = self.place.transpose(1, 2).reshape(1, 4, 4, 4), self.time.transpose(1, 2)
        return self.patch(x) + (place[:, :, None] + time[:, :, :, None, None])


@pytest.mark.parametrize("frames", [1, 2])
def test_constants_are_in_an_order_that_the_engine_runs(frames: int) -> None:
    clip = torch.randn(1, 3, frames, *SIZE)
    form = deploy_graph(Positioned(frames), clip)
    (constant,) = form.buffers()
    alike = [torch.empty(constant.shape, memory_format=order) for order in ORDERS]
    assert constant.stride() in {one.stride() for one in alike}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.long if n != "tubelets" else ()) for n in MODELS])
def test_the_file_is_one_delegate_that_computes_the_same(name: str, tmp_path: Path) -> None:
    make, size = MODELS[name]
    model, clip = make().eval(), torch.randn(1, 3, *size)
    with torch.no_grad():
        assert relative_error(model(clip), pte(model, clip, tmp_path / "model.pte")) < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("name", ["mvit_v1_b", "mvit_v2_s", "swin3d_t"])
def test_models_of_torchvision(name: str, tmp_path: Path) -> None:
    model, clip = getattr(video, name)(num_classes=40).eval(), torch.randn(1, 3, 16, 224, 224)
    with torch.no_grad():
        assert relative_error(model(clip), pte(model, clip, tmp_path / "model.pte")) < 1e-4
