"""Which layers of torch, backbones of timm and video models of transformers have a deploy form. See README.md.

python experiments/039-other-models/run.py [layers] [backbones] [videos]      # default: all three
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from hwbench.blocks.graph import deploy_graph
from hwbench.errors import HwbenchError
from hwbench.testing.clip_functions import Does

OUT = Path(__file__).with_name("results.json")
CHANNELS = 8
BACKBONES = [
    "resnet18", "resnetv2_50", "seresnet18", "regnetx_002", "regnety_002", "densenet121", "dla34", "repvgg_a0",
    "mobileone_s0", "mobilenetv3_small_100", "mobilenetv4_conv_small", "efficientnet_lite0", "tf_efficientnetv2_b0",
    "lcnet_050", "tinynet_e", "ghostnet_100", "starnet_s1", "convnext_atto", "convmixer_768_32",
    "inception_next_atto", "repvit_m0_9", "mobilevit_xxs", "mobilevitv2_050", "edgenext_xx_small", "fastvit_t8",
    "efficientformerv2_s0", "efficientvit_b0", "levit_128s", "poolformer_s12", "caformer_s18", "vit_tiny_patch16_224",
    "deit_tiny_patch16_224", "vit_base_patch16_siglip_224", "swin_tiny_patch4_window7_224", "xcit_nano_12_p16_224",
    "maxvit_rmlp_pico_rw_256", "coat_lite_tiny", "pit_ti_224", "halonet_h1",
]  # fmt: skip


class OfFrames(nn.Module):
    """The mean of what a network of pictures gives for every frame."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, t, h, w = x.shape
        made: torch.Tensor = self.network(x.transpose(1, 2).reshape(n * t, c, h, w))
        return made.view(n, t, -1).mean(1)


class Logits(nn.Module):
    """Logits of a model of transformers, which takes frames before channels."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.network(x.transpose(1, 2)).logits
        return made


def sequence(x: torch.Tensor) -> torch.Tensor:
    """(N, T, C)."""
    return x.mean((3, 4)).transpose(1, 2)


def over_time(layer: nn.Module) -> nn.Module:
    return Does(lambda x, layer: layer(x.mean((3, 4))), layer)


def recurrent(layer: nn.Module) -> nn.Module:
    return Does(lambda x, layer: layer(sequence(x))[0], layer)


def attention(**named: Any) -> nn.Module:
    return Does(
        lambda x, layer: layer(*[sequence(x)] * 3, **named)[0], nn.MultiheadAttention(CHANNELS, 2, batch_first=True)
    )


def layers() -> dict[str, nn.Module]:
    """Each takes (N, 8, T, H, W)."""
    c, first = CHANNELS, {"batch_first": True}
    return {
        "GroupNorm": nn.GroupNorm(2, c), "InstanceNorm3d": nn.InstanceNorm3d(c, affine=True),
        "InstanceNorm3d with statistics": nn.InstanceNorm3d(c, track_running_stats=True),
        "LocalResponseNorm": nn.LocalResponseNorm(2), "RMSNorm": Does(lambda x, m: m(sequence(x)), nn.RMSNorm(c)),
        "LayerNorm": Does(lambda x, m: m(sequence(x)), nn.LayerNorm(c)),
        "BatchNorm1d": over_time(nn.BatchNorm1d(c)), "BatchNorm2d": Does(lambda x, m: m(x.mean(2)), nn.BatchNorm2d(c)),
        "weight_norm": nn.utils.parametrizations.weight_norm(nn.Conv3d(c, 4, 1)),
        "LSTM": recurrent(nn.LSTM(c, 6, **first)), "GRU": recurrent(nn.GRU(c, 6, 2, bidirectional=True, **first)),
        "h of a GRU": Does(lambda x, m: m(sequence(x))[1][-1], nn.GRU(c, 6, **first)), "RNN": recurrent(nn.RNN(c, 6)),
        "c of an LSTM": Does(lambda x, m: m(sequence(x))[1][1], nn.LSTM(c, 6, **first)),
        "LSTMCell": Does(lambda x, m: m(x.mean((2, 3, 4)))[0], nn.LSTMCell(c, 6)),
        "TransformerEncoderLayer": Does(
            lambda x, m: m(sequence(x)), nn.TransformerEncoderLayer(c, 2, 16, batch_first=True)
        ),
        "MultiheadAttention": attention(need_weights=False), "MultiheadAttention with weights": attention(),
        "scaled_dot_product_attention": Does(lambda x: F.scaled_dot_product_attention(*[sequence(x)] * 3)),
        "attention of a query": Does(
            lambda x, q: F.scaled_dot_product_attention(q(torch.arange(2)).expand(len(x), 2, c), *[sequence(x)] * 2),
            nn.Embedding(2, c),
        ),
        "Embedding of places": Does(lambda x, m: sequence(x) + m(torch.arange(4)), nn.Embedding(4, c)),
        **{name: getattr(nn, name)() for name in (
            "Mish", "Softplus", "Softsign", "SELU", "CELU", "ELU", "SiLU", "Hardswish", "Hardtanh", "LogSigmoid",
            "Tanhshrink", "Softshrink", "Hardshrink", "RReLU", "PReLU", "AlphaDropout", "Flatten",
        )},
        "GLU": nn.GLU(1), "LogSoftmax": nn.LogSoftmax(1), "Softmax": nn.Softmax(1), "Threshold": nn.Threshold(0.1, 0.0),
        "Upsample, nearest": nn.Upsample(scale_factor=2),
        "Upsample, trilinear": nn.Upsample(scale_factor=2, mode="trilinear"),
        "interpolate, bilinear": Does(lambda x: F.interpolate(x.flatten(1, 2), scale_factor=2, mode="bilinear")),
        "interpolate to a size": Does(lambda x: F.interpolate(x, size=(4, 12, 12), mode="trilinear")),
        "ConvTranspose3d": nn.ConvTranspose3d(c, 4, 2, 2),
        "ConvTranspose2d": Does(lambda x, m: m(x[:, :, 0]), nn.ConvTranspose2d(c, 4, 2, 2)),
        "Conv1d": over_time(nn.Conv1d(c, c, 3, padding=1)),
        **{name: over_time(getattr(nn, name)(2)) for name in ("AvgPool1d", "MaxPool1d", "AdaptiveAvgPool1d")},
        "AdaptiveMaxPool3d": nn.AdaptiveMaxPool3d((1, 2, 2)), "LPPool3d": nn.LPPool3d(2, 2),
        "CircularPad3d": nn.CircularPad3d(1), "ReflectionPad3d": nn.ReflectionPad3d(1),
        "ReplicationPad3d": nn.ReplicationPad3d(1),
        "Bilinear": Does(lambda x, m: m(x.mean((2, 3, 4)), x.amax((2, 3, 4))), nn.Bilinear(c, c, 3)),
        "normalize": Does(lambda x: F.normalize(x.mean((2, 3, 4)))),
        "cosine_similarity": Does(lambda x: F.cosine_similarity(sequence(x)[:, 1:], sequence(x)[:, :-1], dim=-1)),
        **{name: Does(lambda x, f=function: f(x)) for name, function in FUNCTIONS.items()},
    }  # fmt: skip


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "std": lambda x: x.std((3, 4)), "var": lambda x: x.var((2, 3, 4)),
    "var_mean": lambda x: torch.var_mean(x, dim=1)[0],
    "norm": lambda x: x.norm(dim=1), "cumsum": lambda x: x.cumsum(2), "topk": lambda x: x.mean((3, 4)).topk(2, -1)[0],
    "sort": lambda x: x.mean((3, 4)).sort(-1)[0], "median": lambda x: x.mean((3, 4)).median(-1)[0],
    "argmax": lambda x: x.mean((3, 4)).argmax(-1).to(x.dtype), "logsumexp": lambda x: x.logsumexp((3, 4)),
    "addcmul": lambda x: torch.addcmul(x, x, x), "lerp": lambda x: torch.lerp(x, x * x, 0.3),
    "where of the clip": lambda x: torch.where(x > 0, x, 0.1 * x), "diff": lambda x: x.diff(dim=2),
    "where of a mask": lambda x: torch.where(torch.arange(6) > 2, x, 0.0), "flip": lambda x: x.flip(2),
    "unfold over time": lambda x: x.unfold(2, 2, 1).mean(-1), "unfold of pictures": lambda x: F.unfold(x[:, :, 0], 2),
    "sign": lambda x: x.sign(), "erf": lambda x: torch.erf(x), "log1p": lambda x: torch.log1p(x.abs()),
    "expm1": lambda x: torch.expm1(x), "exp2": lambda x: torch.exp2(x), "prod": lambda x: x.prod(1),
    "floor_divide": lambda x: x // 0.5, "remainder": lambda x: x % 0.5, "round": lambda x: x.round(),
    "trunc": lambda x: x.trunc(), "cdist": lambda x: torch.cdist(sequence(x), sequence(x)),
    "tril": lambda x: torch.tril(sequence(x) @ sequence(x).mT), "rot90": lambda x: x.rot90(1, (3, 4)),
    "einsum": lambda x: torch.einsum("nc,nd->ncd", x.mean((2, 3, 4)), x.amax((2, 3, 4))),
    "grid_sample": lambda x: F.grid_sample(x[:, :, 0], torch.zeros(2, 3, 3, 2).to(x), align_corners=False),
    "index_add": lambda x: x.mean((2, 3, 4)).index_add(0, torch.arange(2), torch.ones(2, 8).to(x)),
    "roll": lambda x: torch.cat([x[:, :2].roll(1, 2), x[:, 2:]], 1),
    "chunk": lambda x: torch.cat(x.chunk(2, 1)[::-1], 1),
    "stack": lambda x: torch.stack([x.mean((2, 3, 4)), x.amax((2, 3, 4))], 1),
}  # fmt: skip


def backbone(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A network of timm on two frames, in which an average of them follows."""
    import timm

    network = timm.create_model(name, pretrained=False, num_classes=5)
    size = network.default_cfg["input_size"][-1]
    side = size if network.default_cfg.get("fixed_input_size") else min(size, 64)
    return OfFrames(network), (1, 3, 2, side, side)


def video(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A small network of transformers' class of that name: four frames of 32 pixels, two layers."""
    import transformers

    small = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_labels": 5}
    if name == "VJEPA2":
        small |= {"crop_size": 32, "patch_size": 8, "frames_per_clip": 4, "tubelet_size": 2, "pred_hidden_size": 48,
                  "pred_num_attention_heads": 4, "pred_num_hidden_layers": 1, "num_pooler_layers": 1}  # fmt: skip
    else:
        small |= {"image_size": 32, "num_frames": 4, "intermediate_size": 64}
        small |= {"tubelet_size": [2, 8, 8]} if name == "Vivit" else {"patch_size": 8}
    network = getattr(transformers, f"{name}ForVideoClassification")(getattr(transformers, f"{name}Config")(**small))
    return Logits(network), (1, 3, 4, 32, 32)


def said(model: nn.Module, shape: tuple[int, ...]) -> str:
    """Nothing where a model has a deploy form, proven in double precision; else what it is refused with."""
    try:
        deploy_graph(model.eval(), torch.randn(shape))
    except HwbenchError as error:
        return str(error)
    return ""


def tried(kind: str) -> Mapping[str, str]:
    """What is said of each of a kind."""
    if kind == "layers":
        shape = (2, 3, 4, 6, 6)
        found = {name: said(nn.Sequential(nn.Conv3d(3, CHANNELS, 1), one), shape) for name, one in layers().items()}
    elif kind == "backbones":
        found = {name: said(*backbone(name)) for name in BACKBONES}
    else:
        found = {name: said(*video(name)) for name in ("VideoMAE", "Timesformer", "Vivit", "VJEPA2")}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="layers, backbones (timm), videos (transformers)")
    kinds = parser.parse_args().kinds or ["layers", "backbones", "videos"]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = json.loads(OUT.read_text()) if OUT.is_file() else {}
    for kind in kinds:
        found = tried(kind)
        refused = {name: text for name, text in found.items() if text}
        results[kind] = {"covered": [name for name in found if name not in refused], "refused": refused}
        OUT.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{kind}: {len(found) - len(refused)} of {len(found)}; not: {', '.join(refused) or 'none'}")


if __name__ == "__main__":
    main()
