"""What one block of a network is, as a value with a printed key: ``parse(spec.key) == spec``.

Grammar of a key: the kind, then the fields of the kind in their order, each a letter group and a value, joined by
``_``; a field at its default is left out. These fields are common to all kinds (``hwbench.specs.fields``); a kind may
have more of its own.

    field             key          meaning
    in_channels       i24          channels in
    mid_channels      m54          channels inside: bottleneck width, or the head's first convolution
    hidden_channels   d2048        width of the head's second layer
    out_channels      o48          channels out
    kernel            k3x3x3       kernel (T x H x W); ``k1x3x3+3x1x1`` is a sequence; ``kglobal`` reduces T, H, W to 1
    stride            s2           spatial stride of the first kernel
    groups            g24          convolution groups (kind ``conv``)
    se_channels       se8          reduced channels of squeeze-excite; absent = none
    activation        relu         relu, swish, hswish, gelu or identity; always last

A block that works on one of several pathways and leaves the others as they are has the number of that pathway, from 1
on, in front of its key: ``2:x3d_i8_m16_o8_k3x3x3_relu``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

from hwbench.errors import InvalidValue
from hwbench.registry import suggest
from hwbench.specs.fields import ACTIVATION, ACTIVATIONS, COMMON, Kernel, Value, by_letters
from hwbench.specs.kind import BlockKind, BlockRole, UnknownKind, kind_of
from hwbench.specs.operations import Operation
from hwbench.specs.tensor import Pathways, TensorSpec

_TOKEN = re.compile(r"([a-z]+?)([0-9].*|global)")
# The value of a part of a key that no field reads.
_UNREAD = ""
_KIND = re.compile(r"[a-z][a-z0-9-]*")
# Of one activation; no network has more than three.
MAX_PATHWAYS = 9
_COMMON_NAMES = frozenset(field.name for field in COMMON)


@dataclass(frozen=True, order=True)
class BlockSpec:
    """Kind and hyper-parameters of one block. Which fields a kind reads, its shapes and its arithmetic are said where
    the kind is described (``hwbench.specs.kinds``).

    ``extras`` are the fields that only its kind has, as (name, value); those at their default are left out. Of a kind
    that is not installed they are the parts of the key that no common field reads, as (part, "").
    ``pathway`` is the number of the one pathway that the block works on, from 1 on; 0: the whole activation.
    """

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
    extras: tuple[tuple[str, Value], ...] = ()
    pathway: int = 0

    def __post_init__(self) -> None:
        if _KIND.fullmatch(self.kind) is None:
            raise InvalidValue(f"block: a kind is lower-case letters, digits and '-', got {self.kind!r}")
        if self.activation not in ACTIVATIONS:
            raise InvalidValue(f"unknown activation {self.activation!r}; {suggest(self.activation, ACTIVATIONS)}")
        if self.extras:
            object.__setattr__(self, "extras", self._canonical_extras())
        if min(self.in_channels, self.out_channels, self.stride, self.groups) < 1:
            raise InvalidValue(f"block: channels, stride and groups must be at least 1, got {self.key}")
        if not 0 <= self.pathway <= MAX_PATHWAYS or (self.pathway and self.descriptor.takes > 1):
            raise InvalidValue(f"block: {self.key} cannot work on pathway {self.pathway}")
        if min(self.mid_channels, self.hidden_channels, self.se_channels) < 0:
            raise InvalidValue(f"block: channels must not be negative, got {self.key}")

    @classmethod
    def of(cls, kind: str, **values: Value) -> BlockSpec:
        """A block by the names of its fields, common ones and those of its kind alike.

        Raises:
            InvalidValue: The kind has no such field, or the values make no block.
        """
        extras = tuple((name, value) for name, value in values.items() if name not in _COMMON_NAMES)
        common = {name: value for name, value in values.items() if name in _COMMON_NAMES}
        return cls(kind, **common, extras=extras)  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Value:
        """The value of a field by its name, those of its kind included.

        Raises:
            KeyError: Neither a common field nor one of this kind.
        """
        if name in _COMMON_NAMES:
            value: Value = getattr(self, name)
            return value
        for known, extra in self.extras:
            if known == name:
                return extra
        default: Value = self.descriptor.defaults[name]
        return default

    def get(self, name: str) -> Value | None:
        """The value of a field by its name; None where its kind has no such field."""
        return self[name] if name in _COMMON_NAMES or name in self.descriptor.defaults else None

    def number(self, name: str) -> int:
        """The value of a field that is a whole number; 0 where its kind has no such field."""
        value = self.get(name)
        return value if isinstance(value, int) else 0

    @property
    def descriptor(self) -> BlockKind:
        """The kind, as it is registered; ``UnknownKind`` where it is not."""
        return kind_of(self.kind)

    @property
    def role(self) -> BlockRole:
        """Where blocks of this kind stand in a network."""
        return self.descriptor.role

    @cached_property
    def key(self) -> str:
        """The printed form, for example ``x3d_i24_m54_o24_k3x3x3_s2_se8_swish``."""
        descriptor, tokens = self.descriptor, [self.kind]
        values = [(field, getattr(self, field.name)) for field in COMMON if field is not ACTIVATION]
        values += [(field, self[field.name]) for field in descriptor.fields if field.name in descriptor.defaults]
        tokens += [field.write(value) for field, value in values if value != field.default]
        tokens += self._unread
        return (f"{self.pathway}:" if self.pathway else "") + "_".join([*tokens, self.activation])

    @classmethod
    def parse(cls, key: str) -> BlockSpec:
        """Reads what ``key`` prints.

        Raises:
            InvalidValue: The text is not a block key.
        """
        pathway, colon, whole = key.rpartition(":")
        if colon:
            if not re.fullmatch(r"[1-9]", pathway):
                raise InvalidValue(
                    f"block: expected the number of a pathway, 1 to {MAX_PATHWAYS}, before ':' in {key!r}"
                )
            return replace(cls.parse(whole), pathway=int(pathway))
        kind, *tokens = key.split("_")
        if len(tokens) < 3:
            raise InvalidValue(f"block: expected a key such as x3d_i24_m54_o24_k3x3x3_s2_se8_swish, got {key!r}")
        descriptor = kind_of(kind)
        known = by_letters((*COMMON, *descriptor.fields))
        values: dict[str, Value] = {"activation": tokens[-1]}
        for token in tokens[:-1]:
            match = _TOKEN.fullmatch(token)
            field = known.get(match[1]) if match else None
            if match and field is None and isinstance(descriptor, UnknownKind) and token not in values:
                values[token] = _UNREAD
                continue
            if match is None or field is None or field.name in values:
                raise InvalidValue(f"block: cannot read {token!r} in {key!r}")
            try:
                values[field.name] = field.read(match[2])
            except InvalidValue as error:
                raise InvalidValue(f"block: {error} in {key!r}") from None
        missing = {field.name for field in COMMON if field.default is None} - values.keys()
        if missing:
            raise InvalidValue(f"block: {key!r} lacks {', '.join(sorted(missing))}")
        spec = cls.of(kind, **values)
        if spec.key != key:
            raise InvalidValue(f"block: {key!r} is not in canonical form; write {spec.key!r}")
        return spec

    def output(self, x: TensorSpec) -> TensorSpec:
        """Shape of the block's output for an input of shape ``x``; the only place where sizes are computed.

        Raises:
            InvalidValue: ``x`` has another number of channels or pathways than the block takes.
        """
        descriptor = self.descriptor
        if self.pathway or descriptor.takes + descriptor.gives != 2 or isinstance(x, Pathways):
            return self._outputs(x)
        if x.c != self.in_channels:
            raise InvalidValue(f"{self.key} takes {self.in_channels} channels, got {x.key}")
        return descriptor.output(self, x)

    @cached_property
    def alone(self) -> BlockSpec:
        """The block without the number of its pathway: what is built and timed."""
        return replace(self, pathway=0) if self.pathway else self

    def located(self, x: TensorSpec) -> tuple[BlockSpec, TensorSpec]:
        """The block alone, and of an activation what it works on.

        Raises:
            InvalidValue: The activation has no such pathway.
        """
        if not self.pathway:
            return self, x
        if self.pathway > len(x.pathways):
            raise InvalidValue(f"{self.key}: there are {len(x.pathways)} pathways in {x.key}")
        return self.alone, x.pathways[self.pathway - 1]

    def _outputs(self, x: TensorSpec) -> TensorSpec:
        """``output`` with several pathways on either side."""
        if self.pathway:
            block, one = self.located(x)
            pathways = [*x.pathways]
            pathways[self.pathway - 1] = block.output(one)
            return Pathways.of(tuple(pathways))
        takes, number = self.descriptor.takes, len(x.pathways)
        if takes and number != takes:
            raise InvalidValue(f"{self.key} takes {takes} pathways, got {number}: {x.key}")
        if x.c != self.in_channels:
            raise InvalidValue(f"{self.key} takes {self.in_channels} channels in its first pathway, got {x.key}")
        return Pathways.of(self.descriptor.outputs(self, x.pathways))

    def operations(self, x: TensorSpec) -> tuple[Operation, ...]:
        """The arithmetic of the block on an input of shape ``x``, in order.

        Raises:
            InvalidValue: The arithmetic of its kind is not described.
        """
        block, one = self.located(x)
        return tuple(self.descriptor.operations_on(block, one.pathways))

    def __str__(self) -> str:
        return self.key

    @property
    def _unread(self) -> list[str]:
        """Parts of the key that no field reads; a kind that is installed has none."""
        unknown = isinstance(self.descriptor, UnknownKind)
        return [name for name, value in self.extras if unknown and value == _UNREAD and _TOKEN.fullmatch(name)]

    def _canonical_extras(self) -> tuple[tuple[str, Value], ...]:
        given = dict(self.extras)
        defaults = self.descriptor.defaults | dict.fromkeys(self._unread)
        for name in given:
            if name not in defaults:
                raise InvalidValue(f"block: kind {self.kind!r} has no field {name!r}; {suggest(name, defaults)}")
        return tuple((name, given[name]) for name, default in defaults.items() if given.get(name, default) != default)
