"""What one block of a network is, as a value with a printed key: ``parse(spec.key) == spec``.

Grammar of a key: the kind, then fields in a fixed order, each a letter group and a value, joined by ``_``; a field at
its default is left out.

    field             key          meaning
    in_channels       i24          channels in
    mid_channels      m54          channels inside: bottleneck width, or the head's first convolution
    hidden_channels   d2048        width of the head's second layer
    out_channels      o48          channels out
    kernel            k3x3x3       kernel (T x H x W); ``k1x3x3+3x1x1`` is a sequence; ``kglobal`` reduces T, H, W to 1
    stride            s2           spatial stride of the first kernel; time is never strided
    groups            g24          convolution groups (kind ``conv``)
    se_channels       se8          reduced channels of squeeze-excite; absent = none
    activation        relu         relu, swish, hswish or identity; always last
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from hwbench.errors import InvalidValue
from hwbench.registry import suggest
from hwbench.specs.tensor import TensorSpec

Kernel = tuple[tuple[int, int, int], ...]

ACTIVATIONS = ("relu", "swish", "hswish", "identity")
# The depthwise kernels a bottleneck may have; "separable" is a spatial then a temporal depthwise convolution.
GLOBAL: Kernel = ()
_LETTERS = {
    "in_channels": "i",
    "mid_channels": "m",
    "hidden_channels": "d",
    "out_channels": "o",
    "kernel": "k",
    "stride": "s",
    "groups": "g",
    "se_channels": "se",
}
_FIELD_OF = {letters: name for name, letters in _LETTERS.items()}
_TOKEN = re.compile(r"([a-z]+)(.+)")
_KIND = re.compile(r"[a-z][a-z0-9-]*")


def format_kernel(kernel: Kernel) -> str:
    """``((1, 3, 3), (3, 1, 1))`` as ``1x3x3+3x1x1``; the empty kernel as ``global``."""
    return "+".join("x".join(str(v) for v in k) for k in kernel) or "global"


def parse_kernel(text: str) -> Kernel:
    """Reads what ``format_kernel`` writes."""
    if text == "global":
        return GLOBAL
    kernels = []
    for part in text.split("+"):
        match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})x([0-9]{1,9})", part)
        if match is None or any(int(g) % 2 == 0 for g in match.groups()):
            raise InvalidValue(f"kernel: expected odd TxHxW such as 3x3x3 or 1x3x3+3x1x1, got {text!r}")
        kernels.append((int(match[1]), int(match[2]), int(match[3])))
    return tuple(kernels)


@dataclass(frozen=True, order=True)
class BlockSpec:
    """Kind and hyper-parameters of one block. Which fields a kind reads is said where the kind is registered
    (``hwbench.blocks.kinds``); convolutions pad by half their kernel, so only the stride changes a size."""

    kind: str
    in_channels: int
    out_channels: int
    mid_channels: int = 0
    hidden_channels: int = 0
    kernel: Kernel = ((1, 1, 1),)
    stride: int = 1
    groups: int = 1
    se_channels: int = 0
    activation: str = "relu"

    def __post_init__(self) -> None:
        if _KIND.fullmatch(self.kind) is None:
            raise InvalidValue(f"block: a kind is lower-case letters, digits and '-', got {self.kind!r}")
        if self.activation not in ACTIVATIONS:
            raise InvalidValue(f"unknown activation {self.activation!r}; {suggest(self.activation, ACTIVATIONS)}")
        if min(self.in_channels, self.out_channels, self.stride, self.groups) < 1:
            raise InvalidValue(f"block: channels, stride and groups must be at least 1, got {self.key}")
        if min(self.mid_channels, self.hidden_channels, self.se_channels) < 0:
            raise InvalidValue(f"block: channels must not be negative, got {self.key}")

    @property
    def key(self) -> str:
        """The printed form, for example ``x3d_i24_m54_o24_k3x3x3_s2_se8_swish``."""
        tokens = [self.kind, f"i{self.in_channels}"]
        if self.mid_channels:
            tokens.append(f"m{self.mid_channels}")
        if self.hidden_channels:
            tokens.append(f"d{self.hidden_channels}")
        tokens += [f"o{self.out_channels}", f"k{format_kernel(self.kernel)}"]
        tokens += [
            f"{_LETTERS[name]}{value}"
            for name, value, default in (
                ("stride", self.stride, 1),
                ("groups", self.groups, 1),
                ("se_channels", self.se_channels, 0),
            )
            if value != default
        ]
        return "_".join([*tokens, self.activation])

    @classmethod
    def parse(cls, key: str) -> BlockSpec:
        """Reads what ``key`` prints.

        Raises:
            InvalidValue: The text is not a block key.
        """
        kind, *tokens = key.split("_")
        if len(tokens) < 3:
            raise InvalidValue(f"block: expected a key such as x3d_i24_m54_o24_k3x3x3_s2_se8_swish, got {key!r}")
        values: dict[str, object] = {"activation": tokens[-1]}
        for token in tokens[:-1]:
            match = _TOKEN.fullmatch(token)
            name = _FIELD_OF.get(match[1]) if match else None
            if match is None and token[:1] == "k":
                raise InvalidValue(f"block: cannot read {token!r} in {key!r}")
            if token.startswith("kglobal"):
                name, text = "kernel", "global"
            elif name is None or match is None or name in values:
                raise InvalidValue(f"block: cannot read {token!r} in {key!r}")
            else:
                text = match[2]
            values[name] = parse_kernel(text) if name == "kernel" else _number(text, key)
        missing = {"in_channels", "out_channels", "kernel"} - values.keys()
        if missing:
            raise InvalidValue(f"block: {key!r} lacks {', '.join(sorted(missing))}")
        spec = cls(kind=kind, **values)  # type: ignore[arg-type]
        if spec.key != key:
            raise InvalidValue(f"block: {key!r} is not in canonical form; write {spec.key!r}")
        return spec

    def output(self, x: TensorSpec) -> TensorSpec:
        """Shape of the block's output for an input of shape ``x``; the only place where sizes are computed.

        Raises:
            InvalidValue: ``x`` has another number of channels than the block takes.
        """
        if x.c != self.in_channels:
            raise InvalidValue(f"{self.key} takes {self.in_channels} channels, got {x.key}")
        if self.kernel == GLOBAL:
            return TensorSpec(x.n, self.out_channels, 1, 1, 1)
        return x.with_(c=self.out_channels, h=-(-x.h // self.stride), w=-(-x.w // self.stride))

    def __str__(self) -> str:
        return self.key


FIELDS = tuple(f.name for f in fields(BlockSpec))


def _number(text: str, key: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InvalidValue(f"block: expected a whole number instead of {text!r} in {key!r}")
    return int(text)
