"""Stem, multiscale blocks and head of MViT as ordinary modules, deployed through their graphs; names as in
PyTorchVideo.

Tokens go in and out as activations (N, C, T, H, W); a class token is a second tensor (N, C, 1, 1, 1).
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from hwbench.blocks.deployment import deploy_form
from hwbench.blocks.mobile_cpu.activations import activation
from hwbench.specs import AUTO, BlockSpec, TensorSpec
from hwbench.specs.kinds.mvit import pools_keys, pools_queries
from hwbench.specs.operations import Size

# Of the normalisations between blocks; those of pooled heads have the default.
_EPS = 1e-6
Tokens = torch.Tensor | tuple[torch.Tensor, torch.Tensor]


class PatchEmbedding(nn.Module):
    """A convolution with a bias, padded by half its kernel: (N, 3, T, H, W) -> (N, C, T', H', W')."""

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        ((t, h, w), step) = spec.kernel[0], spec.number("temporal_stride")
        strides, padding = (step, spec.stride, spec.stride), (t // 2, h // 2, w // 2)
        self.patch_model = nn.Conv3d(spec.in_channels, spec.out_channels, (t, h, w), strides, padding)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.patch_model(x)  # type: ignore[no-any-return]


class TokenPositions(nn.Module):
    """Learned position terms of tokens for time and space apart, and a class token with a term of its own.

    Args:
        channels: Of a token.
        grid: Frames and side of the grid of tokens that the terms belong to; on another grid they are interpolated
            linearly. None: there are no terms.
        with_class: Whether there is a class token.

    Source: MViT (arXiv 2104.11227), section A.1.
    """

    def __init__(self, channels: int, grid: tuple[int, int] | None, *, with_class: bool) -> None:
        super().__init__()
        self.grid, self.with_class = grid, with_class
        if with_class:
            self.cls_token = nn.Parameter(torch.zeros(1, 1, channels))
        if grid is not None:
            frames, side = grid
            self.pos_embed_spatial = nn.Parameter(torch.zeros(1, side**2, channels))
            self.pos_embed_temporal = nn.Parameter(torch.zeros(1, frames, channels))
        if with_class:
            self.pos_embed_class = nn.Parameter(torch.zeros(1, 1, channels))
        self.initialise()

    def initialise(self) -> None:
        """Draws all terms from a normal distribution of deviation 0.02, cut at 2."""
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, T, H, W) with the terms added."""
        if self.grid is None:
            return x
        frames, side = self.grid
        space = self.pos_embed_spatial.transpose(1, 2).reshape(1, -1, side, side)
        time = self.pos_embed_temporal.transpose(1, 2)
        if x.shape[3:] != (side, side):
            space = F.interpolate(space, x.shape[3:], mode="bilinear", align_corners=False)
        if x.shape[2] != frames:
            time = F.interpolate(time, x.shape[2], mode="linear", align_corners=False)
        return x + (space[:, :, None] + time[:, :, :, None, None])

    def class_token(self, x: torch.Tensor) -> torch.Tensor:
        """The class token of each clip with its term: (N, C, 1, 1, 1)."""
        token = (self.cls_token + self.pos_embed_class).reshape(1, -1, 1, 1, 1)
        return token.expand(x.shape[0], -1, -1, -1, -1)


class TokenStem(nn.Module):
    """(N, 3, T, H, W) -> tokens (N, C, T', H', W'), and a class token (N, C, 1, 1, 1) where there is one."""

    def __init__(self, patch_embed: PatchEmbedding, cls_positional_encoding: TokenPositions) -> None:
        super().__init__()
        self.patch_embed = patch_embed
        self.cls_positional_encoding = cls_positional_encoding

    def forward(self, x: torch.Tensor) -> Tokens:
        made = self.cls_positional_encoding(self.patch_embed(x))
        return (made, self.cls_positional_encoding.class_token(x)) if self.cls_positional_encoding.with_class else made

    def to_deploy(self, input: TensorSpec, variant: str = AUTO) -> nn.Module:
        """Folded in and out."""
        tokens = deploy_form(_PositionedPatches(self), input, variant)
        if not self.cls_positional_encoding.with_class:
            return tokens
        like = self.patch_embed.patch_model.weight.new_empty(input.n, 0)
        with torch.no_grad():
            return _WithConstant(tokens, self.cls_positional_encoding.class_token(like)[..., 0])


class _PositionedPatches(nn.Module):
    """What a stem gives but for the class token."""

    def __init__(self, stem: TokenStem) -> None:
        super().__init__()
        self.patch_embed, self.cls_positional_encoding = stem.patch_embed, stem.cls_positional_encoding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cls_positional_encoding(self.patch_embed(x))  # type: ignore[no-any-return]


class _WithConstant(nn.Module):
    """Folded clips -> (folded tokens, class token (N, C, 1, 1))."""

    token: torch.Tensor

    def __init__(self, tokens: nn.Module, token: torch.Tensor) -> None:
        super().__init__()
        self.tokens = tokens
        self.register_buffer("token", token.contiguous())

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.tokens(x), self.token


class RelativePositions(nn.Module):
    """Learned terms of scores by the distance of query and key over T, H and W apart.

    The sum over the axes of ``q · R[distance]`` is part of a score. Written into more channels it needs nothing but the
    attention itself: a query has behind its own channels what it makes of every place of every axis, a key has a 1 at
    its own places and 0 elsewhere.

    Args:
        channels: Of a head.
        frames, side: Of the grid of queries, or of keys where that is larger, that the terms belong to; on another grid
            they are interpolated linearly.

    Source: MViTv2 (arXiv 2112.01526), equations 3 and 4; names as in torchvision.
    """

    def __init__(self, channels: int, frames: int, side: int) -> None:
        super().__init__()
        self.rel_pos_h = nn.Parameter(torch.zeros(2 * side - 1, channels))
        self.rel_pos_w = nn.Parameter(torch.zeros(2 * side - 1, channels))
        self.rel_pos_t = nn.Parameter(torch.zeros(2 * frames - 1, channels))
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=0.02)

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, sizes: tuple[Size, Size], tokens: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys (N, heads, L, C) with more channels, so that their products hold the terms.

        Args:
            q, k: ``tokens`` class tokens first, which have no terms. The scale 1 / sqrt(C) is yet to come.
            sizes: (T, H, W) of queries and of keys.
            tokens: Number of class tokens.
        """
        (n, heads, _, channels), (of_q, of_k) = q.shape, sizes
        tables = (self.rel_pos_t, self.rel_pos_h, self.rel_pos_w)
        places = q[:, :, tokens:].reshape(n * heads, *of_q, channels)
        terms = torch.cat(
            [
                torch.einsum(f"bthwc,{axis}kc->bthwk", places, _by_distance(table, *lengths))
                for axis, table, lengths in zip("thw", tables, zip(of_q, of_k))
            ],
            4,
        ).reshape(n, heads, -1, sum(of_k)) * math.sqrt(channels)
        marks = _marks(of_k).to(k).expand(n, heads, -1, -1)
        if tokens:
            terms, marks = (F.pad(one, (0, 0, tokens, 0)) for one in (terms, marks))
        return torch.cat([q, terms], 3), torch.cat([k, marks], 3)


def _by_distance(table: torch.Tensor, queries: int, keys: int) -> torch.Tensor:
    """The rows of a table for each query and key of one axis: (queries, keys, C)."""
    rows = 2 * max(queries, keys) - 1
    if table.shape[0] != rows:
        table = F.interpolate(table.t()[None], rows, mode="linear", align_corners=False)[0].t()
    of_q = [place * max(keys / queries, 1.0) for place in range(queries)]
    of_k = [(keys - 1 - place) * max(queries / keys, 1.0) for place in range(keys)]
    return table[torch.tensor([[int(a + b) for b in of_k] for a in of_q])]


def _marks(size: Size) -> torch.Tensor:
    """A 1 at the frame, the row and the column of each place: (T·H·W, T + H + W)."""
    t, h, w = size
    axes = (torch.eye(t)[:, None, None], torch.eye(h)[None, :, None], torch.eye(w)[None, None])
    return torch.cat([one.expand(t, h, w, -1) for one in axes], 3).reshape(t * h * w, -1)


class PoolingAttention(nn.Module):
    """Attention of several heads between pooled queries, keys and values (arXiv 2104.11227, section 3.1).

    All heads share the weights of their pooling. A class token stands before the others and is not pooled.
    """

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        inner, self.heads = spec.mid_channels, spec.number("heads")
        self.residual = bool(spec.number("residual_pool"))
        self.q = nn.Linear(spec.in_channels, inner)
        self.k = nn.Linear(spec.in_channels, inner)
        self.v = nn.Linear(spec.in_channels, inner)
        self.proj = nn.Linear(inner, inner)
        width, kernel, step = inner // self.heads, spec.kernel[0], spec.number("kv_stride")
        self.steps = (spec.stride, step)
        relative = spec.number("relative_frames"), spec.number("relative_side")
        self.relative = RelativePositions(width, *relative) if all(relative) else None
        for name, stride, pools in (
            ("q", spec.stride, pools_queries(spec)),
            ("k", step, pools_keys(spec)),
            ("v", step, pools_keys(spec)),
        ):
            self.add_module(f"pool_{name}", _pool(width, kernel, stride) if pools else None)
            self.add_module(f"norm_{name}", nn.LayerNorm(width) if pools else None)

    def forward(self, x: torch.Tensor, size: Size, tokens: int) -> torch.Tensor:
        """(N, tokens + T·H·W, C) -> (N, tokens + T·H'·W', C').

        Args:
            x: Normalised tokens, ``tokens`` class tokens first.
            size: (T, H, W) of the others.
            tokens: Number of class tokens.
        """
        q, k, v = (self._pooled(name, x, size, tokens) for name in "qkv")
        queries, scale = q, 1 / math.sqrt(q.shape[3])
        if self.relative is not None:
            of_q, of_k = ((size[0], -(-size[1] // step), -(-size[2] // step)) for step in self.steps)
            queries, k = self.relative(q, k, (of_q, of_k), tokens)
        y = F.scaled_dot_product_attention(queries, k, v, scale=scale)
        if self.residual:  # of places alone, as in torchvision
            places = y[:, :, tokens:] + q[:, :, tokens:]
            y = torch.cat([y[:, :, :tokens], places], 2) if tokens else places
        return self.proj(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _pooled(self, name: str, x: torch.Tensor, size: Size, tokens: int) -> torch.Tensor:
        """Queries, keys or values: (N, L, C) -> (N, heads, L', C / heads)."""
        x = self.get_submodule(name)(x)
        pool, norm = getattr(self, f"pool_{name}"), getattr(self, f"norm_{name}")
        n, length, channels = x.shape
        x = x.reshape(n, length, self.heads, channels // self.heads).transpose(1, 2)
        if pool is None:
            return x
        places = x[:, :, tokens:].reshape(n * self.heads, length - tokens, channels // self.heads)
        places = pool(_placed(places, size)).flatten(2).transpose(1, 2)
        places = places.reshape(n, self.heads, -1, channels // self.heads)
        return norm(torch.cat([x[:, :, :tokens], places], 2) if tokens else places)  # type: ignore[no-any-return]


class TokenMlp(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int, act: str) -> None:
        super().__init__()
        self.fc1 = nn.Linear(in_channels, hidden)
        self.act = activation(act)
        self.fc2 = nn.Linear(hidden, out_channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.act(self.fc1(x)))  # type: ignore[no-any-return]


class MultiscaleBlock(nn.Module):
    """What kinds ``multiscale`` and ``class-multiscale`` stand for: tokens (N, C, T, H, W) and, of the second, a class
    token in; the same out, of fewer places where the block has a stride.
    """

    def __init__(self, spec: BlockSpec) -> None:
        super().__init__()
        self.widens_attention = spec.mid_channels != spec.in_channels
        self.norm1 = nn.LayerNorm(spec.in_channels, eps=_EPS)
        self.attn = PoolingAttention(spec)
        self.norm2 = nn.LayerNorm(spec.mid_channels, eps=_EPS)
        self.mlp = TokenMlp(spec.mid_channels, spec.hidden_channels, spec.out_channels, spec.activation)
        self.proj = nn.Linear(spec.in_channels, spec.out_channels) if spec.in_channels != spec.out_channels else None
        self.pool_skip: nn.Module | None = None
        if (stride := spec.stride) > 1:
            kernel, padding = (1, stride + 1, stride + 1), (0, stride // 2, stride // 2)
            self.pool_skip = nn.MaxPool3d(kernel, (1, stride, stride), padding)

    def forward(self, x: torch.Tensor, *tokens: torch.Tensor) -> Tokens:
        size = (x.shape[2], x.shape[3], x.shape[4])
        rows = torch.cat([_rows(one) for one in (*tokens, x)], 1) if tokens else _rows(x)
        y = self.norm1(rows)
        attended = self.attn(y, size, len(tokens))
        shortcut = rows if self.proj is None or not self.widens_attention else self.proj(y)
        shortcut, size = self._skipped(shortcut, size, len(tokens))
        rows = shortcut + attended
        y = self.norm2(rows)
        rows = (rows if self.proj is None or self.widens_attention else self.proj(y)) + self.mlp(y)
        made = _placed(rows[:, len(tokens) :], size)
        if not tokens:
            return made
        return made, rows[:, :1].transpose(1, 2)[..., None, None]

    def _skipped(self, rows: torch.Tensor, size: Size, tokens: int) -> tuple[torch.Tensor, Size]:
        """The input of the attention at the places of its queries."""
        if self.pool_skip is None:
            return rows, size
        places = self.pool_skip(_placed(rows[:, tokens:], size))
        pooled = _rows(places)
        size = (places.shape[2], places.shape[3], places.shape[4])
        return torch.cat([rows[:, :tokens], pooled], 1) if tokens else pooled, size


class TokenHead(nn.Module):
    """Tokens, and a class token where there is one -> logits (N, classes), of the class token or of the mean."""

    def __init__(self, norm_embed: nn.Module, head: TokenClassifier) -> None:
        super().__init__()
        self.norm_embed = norm_embed
        self.head = head

    def forward(self, x: torch.Tensor, *tokens: torch.Tensor) -> torch.Tensor:
        rows = self.norm_embed(_rows(tokens[0] if tokens else x))
        return self.head(rows[:, 0] if tokens else rows.mean(1))  # type: ignore[no-any-return]


class TokenClassifier(nn.Module):
    """Dropout and a linear layer: (N, C) -> (N, classes)."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.proj = nn.Linear(in_channels, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.proj(self.dropout(x))  # type: ignore[no-any-return]


def token_stem(spec: BlockSpec) -> TokenStem:
    """What kinds ``token-stem`` and ``class-token-stem`` stand for."""
    return TokenStem(PatchEmbedding(spec), positions(spec))


def positions(spec: BlockSpec) -> TokenPositions:
    """Position terms and class token of a stem."""
    frames, side = spec.number("position_frames"), spec.number("position_side")
    with_class = spec.descriptor.gives > 1
    return TokenPositions(spec.out_channels, (frames, side) if frames else None, with_class=with_class)


def multiscale(spec: BlockSpec) -> nn.Module:
    """What kinds ``multiscale`` and ``class-multiscale`` stand for."""
    return MultiscaleBlock(spec)


def token_head(spec: BlockSpec) -> TokenHead:
    """What kinds ``token-head`` and ``class-token-head`` stand for."""
    norm = nn.LayerNorm(spec.in_channels, eps=_EPS)
    return TokenHead(norm, TokenClassifier(spec.in_channels, spec.out_channels))


def _rows(x: torch.Tensor) -> torch.Tensor:
    """(N, C, T, H, W) -> (N, T·H·W, C)."""
    return x.flatten(2).transpose(1, 2)


def _pool(width: int, kernel: Size, stride: int) -> nn.Module:
    """The depthwise convolution of one head."""
    t, h, w = kernel
    return nn.Conv3d(width, width, kernel, (1, stride, stride), (t // 2, h // 2, w // 2), groups=width, bias=False)


def _placed(rows: torch.Tensor, size: Size) -> torch.Tensor:
    """(N, T·H·W, C) -> (N, C, T, H, W)."""
    n, _, channels = rows.shape
    return rows.transpose(1, 2).reshape(n, channels, *size)
