"""Published weights from a file: recognised by their names, checked against a network, told apart readably."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hwbench.errors import InvalidFile, InvalidValue
from hwbench.models.assembly import assemble
from hwbench.models.files import INSIDE, inside, read_tensors, unwrapped
from hwbench.models.mvit_weights import MvitForm, separated
from hwbench.models.plausible import Findings, examined
from hwbench.models.weight_names import Form, WeightNames, names_of, recognised
from hwbench.models.weights import Weights
from hwbench.specs import Network

EXPECTED = (
    "weights of an X3D, a ResNet, an MViT or a SqueezeTime: a state dict of EfficientX3d, of PyTorchVideo, of "
    "PySlowFast, or of SqueezeTime's authors, as written by torch.save(model.state_dict(), FILE)"
)
_COUNTER = "num_batches_tracked"
# Lines of a diff for each kind of difference; a network of another kind would fill pages. What is beyond stands in one.
_MAX_GROUPS = 6
# Of a diff in all. What has more kinds of differences, strange names among them, is a network of another make, of which
# one line says enough.
_MOST_GROUPS = 15
_MEND = "hwbench zoo list names the networks whose weights are published"
# Kinds of numbers that weights come in; each becomes float32 without another value.
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class PublishedWeights:
    """Weights as they are in a file.

    Attributes:
        path: The file; ``sha256`` is its digest.
        form: Whose names they have.
        weights: Name in the file, without a trainer's prefix -> tensor, on the CPU; of an MViT each under one
            name alone, and queries, keys and values apart.
    """

    path: Path
    sha256: str
    form: Form
    weights: Weights

    @property
    def names(self) -> WeightNames:
        """What is known of the names."""
        return names_of(self.form)

    @property
    def num_classes(self) -> int:
        """Width of the last layer.

        Raises:
            InvalidFile: There is none.
        """
        last = [value for name, value in self.weights.items() if name.endswith(f"{self.names.last_layer}.weight")]
        if not last or last[0].dim() != 2:
            raise InvalidFile(
                f"{self.path}: has no last layer, whose width is the number of classes; expected {EXPECTED}"
            )
        return last[0].shape[0]

    def of(self, network: Network, *, head: bool = True) -> dict[str, torch.Tensor]:
        """The weights under this package's names, all that the network has and nothing else.

        Args:
            network: Whose weights they should be.
            head: Without it the last layer is left out, whose width is the number of classes.

        Raises:
            InvalidFile: Names or shapes do not fit, or a tensor is one that no trained network has
                (``hwbench.models.plausible``); the message is a diff in the names of the file.
        """
        known = self.names
        if not known.fits(network):
            raise InvalidFile(
                f"{self.path}: weights of another network than {network.name}: those of {known.networks}; {_MEND}"
            )
        with torch.device("meta"):
            wanted = assemble(network.blocks).state_dict()
        names = known.in_file(wanted)
        last = {name for name in names.values() if name.rpartition(".")[0].endswith(known.last_layer)}
        expected = {own: wanted[name] for name, own in names.items() if head or own not in last}
        given = {name: value for name, value in self.weights.items() if head or name not in last}
        # Counters are no weights; old files lack them.
        missing = {n: torch.zeros_like(v, device="cpu") for n, v in expected.items() if n.endswith(_COUNTER)}
        given = missing | given
        difference = diff({name: str(tuple(v.shape)) for name, v in expected.items()}, described(given))
        usable = {n: v for n, v in given.items() if n in expected and n not in difference.differ}
        damaged = _lines(self._examined(usable).impossible)
        if difference or damaged:
            what = "weights of another network than" if difference else "damaged weights of"
            whose = f"{self.path}: {what} {network.name} (form {self.form}, {len(self.weights)} tensors)"
            if difference.num_groups > _MOST_GROUPS and difference.unexpected:
                raise InvalidFile(f"{whose}: {difference.brief}; {_MEND}")
            raise InvalidFile(f"{whose}\n" + "\n".join([*([str(difference)] if difference else []), *damaged]))
        return known.ours(given, names)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is strange about tensors that can be used, one line for each kind, with their names in the file."""
        plain = {name: value for name, value in self.weights.items() if not _kind(name, value)}
        return tuple(line.strip() for line in _lines(self._examined(plain).doubtful))

    def _examined(self, weights: Weights) -> Findings:
        """Findings under the names of the file."""
        names = {ours or name: name for name, ours in self.names.plain(weights).items()}
        findings = examined({ours: weights[name] for ours, name in names.items()})
        return Findings(
            *(
                {what: [names[ours] for ours in found] for what, found in kind.items()}
                for kind in (findings.impossible, findings.doubtful)
            )
        )


def read_published(path: str | Path) -> PublishedWeights:
    """Weights of an X3D, a ResNet, an MViT or a SqueezeTime in any of their forms, bare or inside a trainer's file.

    No code in the file is run.

    Raises:
        InvalidFile: No such file, damaged, one that needs code to be read, or weights of something else.
    """
    path = Path(path)
    data, values = read_tensors(path, EXPECTED)
    *_, bare = unwrapped(_tensors(path, values))
    weights = {name: _counter(value) if name.endswith(_COUNTER) else value for name, value in bare.items()}
    try:
        form = recognised(weights)
        weights = separated(weights) if isinstance(form, MvitForm) else weights
    except InvalidValue as error:
        raise InvalidFile(f"{path}: {error}") from None
    return PublishedWeights(path, hashlib.sha256(data).hexdigest(), form, weights)


@dataclass(frozen=True)
class Difference:
    """What does not fit: names that are missing, names that are too many, and (expected, given) of those that differ.

    True if there is anything. As text: alike names in one line, at most a few lines each, with the nearest name.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    differ: Mapping[str, tuple[str, str]]

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected or self.differ)

    @property
    def num_groups(self) -> int:
        """Number of kinds of differences, names that differ in their numbers alone being one."""
        return sum(len(_groups(names)) for names in (self.missing, self.unexpected, self.differ))

    @property
    def brief(self) -> str:
        """The first of each kind and how many more there are, in one line."""
        kinds = (("missing", self.missing), ("not of this network", self.unexpected), ("other shape", [*self.differ]))
        return "; ".join(f"{kind}: {self._first(names)}" for kind, names in kinds if names)

    def _first(self, names: Sequence[str]) -> str:
        name, more = names[0], len(names) - 1
        shapes = ": expected {}, got {}".format(*self.differ[name]) if name in self.differ else ""
        return name + shapes + (f" and {more} more" if more else "")

    def __str__(self) -> str:
        lines = _grouped("missing", self.missing, self._nearest)
        lines += _grouped("not of this network", self.unexpected, lambda name: "")
        lines += _grouped("other shape", self.differ, lambda name: ": expected {}, got {}".format(*self.differ[name]))
        return "\n".join(lines)

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.unexpected, 1, 0.6)
        return f"; nearest in the file: {near[0]}" if near else ""


def diff(expected: Mapping[str, str], given: Mapping[str, str]) -> Difference:
    """What differs between two state dicts, name -> description of the tensor."""
    return Difference(
        tuple(name for name in expected if name not in given),
        tuple(name for name in given if name not in expected),
        {name: (text, given[name]) for name, text in expected.items() if name in given and given[name] != text},
    )


def _lines(findings: Mapping[str, list[str]]) -> list[str]:
    """A line for each kind of layer with a finding."""
    return [line for what, names in findings.items() for line in _grouped(what, names, lambda name: "")]


def _grouped(kind: str, names: Iterable[str], note: Any) -> list[str]:
    """Every name, those that differ in their numbers alone in one line; what is beyond the limit in the last line."""
    groups = _groups(names)
    texts = [_alike(alike) for alike in groups.values()]
    lines = [f"  {kind}: {text}{note(alike[0])}" for text, alike in zip(texts, groups.values())][:_MAX_GROUPS]
    rest = sum(len(alike) for alike in [*groups.values()][_MAX_GROUPS:])
    return [*lines, f"  {kind}: and {rest} more: {'; '.join(texts[_MAX_GROUPS:])}"] if rest else lines


def _groups(names: Iterable[str]) -> dict[str, list[str]]:
    """Names that differ in their numbers alone, by what they share."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[re.sub(r"\d+", "*", name)].append(name)
    return groups


def _alike(names: list[str]) -> str:
    """The first of names that differ in their numbers alone, and which others there are: ``* = 2/0, 2/2, 3/0-4``."""
    if len(names) == 1:
        return names[0]
    numbers = sorted(tuple(map(int, re.findall(r"\d+", name))) for name in names)
    columns = [column for column in zip(*numbers) if len(set(column)) > 1]
    return f"{names[0]} ({len(names)} such: {_pattern(names)}, * = {_ranges([*zip(*columns)])})"


def _ranges(rows: Sequence[tuple[int, ...]]) -> str:
    """Sorted rows of numbers, with runs in the last of them as one."""
    runs: list[tuple[tuple[int, ...], int]] = []
    for row in rows:
        if runs and row[:-1] == runs[-1][0][:-1] and row[-1] == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], row[-1])
        else:
            runs.append((row, row[-1]))
    return ", ".join("/".join(map(str, first)) + (f"-{last}" if last != first[-1] else "") for first, last in runs)


def _pattern(names: list[str]) -> str:
    """The names as one, with a star where their numbers differ."""
    numbers = [re.findall(r"\d+", name) for name in names]
    stars = iter([column[0] if len(set(column)) == 1 else "*" for column in zip(*numbers)])
    return re.sub(r"\d+", lambda _: next(stars), names[0])


def described(weights: Weights) -> dict[str, str]:
    """Shapes, and the kind of numbers where these are not floats."""
    return {name: f"{tuple(value.shape)}{_kind(name, value)}" for name, value in weights.items()}


def _kind(name: str, value: torch.Tensor) -> str:
    """What makes a tensor no plain one of floats (a counter: of integers), as a word behind its shape."""
    if value.layout is not torch.strided:
        return f" {value.layout}"
    if value.is_meta:
        return " without values (meta)"
    if name.endswith(_COUNTER):
        return "" if value.dtype is torch.long else f" {value.dtype}"
    return "" if value.dtype in _FLOATS else f" {value.dtype}"


def _tensors(path: Path, values: dict[str, Any]) -> Mapping[str, torch.Tensor]:
    """The state dict in a file."""
    weights = inside(values)
    others = [key for key, value in weights.items() if not isinstance(value, torch.Tensor) or not isinstance(key, str)]
    if others or not weights:
        found = f"holds {', '.join(map(str, others[:3]))}" if others else "is empty"
        raise InvalidFile(f"{path}: {found}; expected {EXPECTED}, bare or as one of {', '.join(INSIDE)}")
    return weights


def _counter(value: torch.Tensor) -> torch.Tensor:
    """A counter as an integer, where it was cast with the weights; one beyond the range of its floats counts as 0."""
    if value.is_meta or value.layout is not torch.strided or value.is_complex() or value.is_quantized:
        return value  # refused by its name
    finite = value.double().nan_to_num(0, 0, 0)
    whole = finite.long()
    return whole if bool((whole == finite).all()) else value
