"""Everything a training run carries from step to step, and the two files it resumes from.

Randomness is not carried but derived: the order of an epoch, each clip, each transform and the dropout of each step
follow from the seed and a position. So the state is the tensors and the position, and a resumed run is the run itself,
bit for bit on a CPU with the same number of threads.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hwbench import lookup
from hwbench.data import FailurePolicy, Failures
from hwbench.durable import make_folder, sync_folder
from hwbench.errors import HwbenchError, InvalidFile, InvalidValue, OtherRun
from hwbench.models.files import read_tensors
from hwbench.training.optimizers import make_optimizer
from hwbench.training.parts import freeze
from hwbench.training.processes import ALONE, World
from hwbench.training.recipe import Recipe
from hwbench.workspace import write_bytes, writing

RESUME = "resume.pt"
STEP = "resume-step.pt"
# Where the second is written before it has its name.
_STEP_TEMPORARY = f".{STEP}.tmp"
# Holds in any folder and for any command: a damaged state tells no run, and ``--fresh`` is of ``train`` alone.
_ANEW = "move it away, and the same command begins anew"
# What is no fact of a run where it is this.
_UNSAID = {"modality": "rgb"}
# Of a longer fact the part that differs is told, from the last of the marks before.
_LONGEST, _MARKS = 60, ">,( "

_SCHEMA = 1
# Writing the state may cost this share of the time a run takes.
_COST_SHARE = 0.1


@dataclass
class TrainingPosition:
    """Where a run is: the next step takes batch ``batch`` of ``epoch``; the log up to here is ``log_bytes`` long."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    log_bytes: int = 0
    failures: Failures = field(default_factory=Failures)


class TrainState:
    """Module, running average, optimizer and position of one run."""

    def __init__(self, module: nn.Module, recipe: Recipe) -> None:
        self.module = module
        self.recipe = recipe
        freeze(module, recipe)
        self.optimizer = make_optimizer(module, recipe)
        device = next((tensor.device.type for tensor in module.state_dict().values()), "cpu")
        self.scaler = torch.amp.GradScaler(device, enabled=recipe.precision == "fp16")
        self.average = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
        self._may_hold_infinity = _may_hold_infinity(module)
        self.position = TrainingPosition()

    def update_average(self) -> None:
        """Moves the running average towards the module's weights and statistics; counters are copied.

        Buffers of a user are averaged, too, but for their values that are not finite, such as those of a mask.
        """
        step = self.position.step
        decay = min(self.recipe.ema_decay, (1 + step) / (10 + step)) if self.recipe.ema_decay else 0.0
        values = self.module.state_dict()
        moving = [name for name, tensor in values.items() if tensor.is_floating_point()]
        with torch.no_grad():
            torch._foreach_lerp_([self.average[name] for name in moving], [values[name] for name in moving], 1 - decay)
            for name in self._may_hold_infinity:
                average = self.average[name]  # infinity less infinity is no number
                average.copy_(torch.where(average.isfinite(), average, values[name]))
            counters = [name for name in values if not values[name].is_floating_point()]
            if counters:
                torch._foreach_copy_([self.average[name] for name in counters], [values[name] for name in counters])

    def to_values(self, fingerprint: Mapping[str, str]) -> dict[str, Any]:
        """The state as plain values and a few large tensors."""
        position = self.position
        optimizer = self.optimizer.state_dict()
        return {
            "schema": _SCHEMA,
            "fingerprint": dict(fingerprint),
            **({"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {}),
            "tensors": pack(
                {
                    **{f"module/{name}": tensor for name, tensor in self.module.state_dict().items()},
                    **{f"average/{name}": tensor for name, tensor in self.average.items()},
                    **{f"{i}/{key}": value for i, state in optimizer["state"].items() for key, value in state.items()},
                    # LAMB of timm counts its steps by group
                    **{
                        f"group/{i}.{key}": value
                        for i, group in enumerate(optimizer["param_groups"])
                        for key, value in group.items()
                        if isinstance(value, torch.Tensor)
                    },
                }
            ),
            "position": {
                "epoch": position.epoch,
                "batch": position.batch,
                "step": position.step,
                "seconds": position.seconds,
                "log_bytes": position.log_bytes,
                "causes": dict(position.failures.causes),
                "lost_samples": position.failures.samples,
            },
        }

    def load_values(self, values: Mapping[str, Any]) -> None:
        """Takes over what ``to_values`` gave; KeyError, TypeError or RuntimeError where it does not fit.

        Raises:
            InvalidValue: Its optimizer has other weights in the places of these.
        """
        parts: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
        for name, tensor in unpack(values["tensors"]).items():
            part, _, key = name.partition("/")
            parts[part][key] = tensor
        self.module.load_state_dict(parts.pop("module"))
        average = parts.pop("average")
        for name, tensor in self.average.items():
            tensor.copy_(average[name])
        groups = self.optimizer.state_dict()["param_groups"]
        for name, tensor in parts.pop("group", {}).items():
            number, _, key = name.partition(".")
            groups[int(number)][key] = tensor
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        _check_places(parts, parameters)
        own = {int(i): {key: _like(tensor, parameters[int(i)]) for key, tensor in s.items()} for i, s in parts.items()}
        self.optimizer.load_state_dict({"state": own, "param_groups": groups})
        if self.scaler.is_enabled():
            self.scaler.load_state_dict(dict(values["scaler"]))
        stored = dict(values["position"])
        failures = Failures(stored.pop("causes"), stored.pop("lost_samples"))
        self.position = TrainingPosition(**stored, failures=failures)


def _may_hold_infinity(module: nn.Module) -> list[str]:
    """Names of the tensors that may hold values which are not finite while training goes well.

    These are buffers but for the statistics of batch normalisation, and weights that hold such values already.
    """
    weights = dict(module.named_parameters(remove_duplicate=False))
    statistics = {
        id(tensor)
        for layer in module.modules()
        if isinstance(layer, _BatchNorm)
        for tensor in layer.buffers(recurse=False)
    }
    return [
        name
        for name, tensor in module.state_dict(keep_vars=True).items()
        if tensor.is_floating_point()
        and id(tensor) not in statistics
        and (name not in weights or not bool(tensor.isfinite().all()))
    ]


def _check_places(states: Mapping[str, Mapping[str, torch.Tensor]], parameters: Sequence[nn.Parameter]) -> None:
    """Raises InvalidValue where an optimizer had other weights in these places, for want of the same groups.

    Numbers that an optimizer has of a weight are as many as the weight has, or one.
    """
    for place, state in states.items():
        shape = parameters[int(place)].shape if int(place) < len(parameters) else None
        if any(tensor.dim() and tensor.shape != shape for tensor in state.values()):
            raise InvalidValue(
                "belongs to a run whose network had other blocks (layer_decay, freeze), as MViT and SqueezeTime had "
                "in an earlier hwbench"
            )


def _like(tensor: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """A copy in the memory format of a parameter: LAMB sums over it, and another order rounds in another way."""
    if tensor.shape != parameter.shape:
        return tensor.clone()
    return torch.empty_like(parameter, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def pack(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Many tensors as one per type, which is ten times quicker to store; ``unpack`` takes them apart."""
    by_type: dict[torch.dtype, list[str]] = defaultdict(list)
    for name, tensor in sorted(tensors.items(), key=lambda item: str(item[1].device)):
        by_type[tensor.dtype].append(name)
    return {
        str(dtype): {
            "names": names,
            "shapes": [list(tensors[name].shape) for name in names],
            "values": _joined([tensors[name].detach().reshape(-1) for name in names]),
        }
        for dtype, names in by_type.items()
    }


def _joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """One tensor on the CPU of flat ones, those of a device together: each copy from a GPU waits for it."""
    groups = itertools.groupby(tensors, key=lambda tensor: tensor.device)
    return torch.cat([torch.cat([*group]).cpu() for _, group in groups])


def unpack(packed: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """What was packed."""
    found: dict[str, torch.Tensor] = {}
    for part in packed.values():
        sizes = [math.prod(shape) for shape in part["shapes"]]
        for name, shape, flat in zip(part["names"], part["shapes"], part["values"].split(sizes), strict=True):
            found[name] = flat.view(shape)
    return found


class Resume:
    """The files a run goes on from: ``resume.pt`` of the last whole epoch, ``resume-step.pt`` of a step after it.

    The state of an epoch is on the disk when it has been written: a power cut does not take it. A step's is written
    while writing takes at most a tenth of the time, after every step or after as many as keep it below that, so a kill
    costs the step in progress, or of a large network the few steps since the last write. (60 000 weights take 3 ms
    beside steps of 100 ms, 2.5 million take 80 ms.) It does not wait for the disk: a killed process loses nothing that
    it has handed to the system, and after a power cut the run goes on from the epoch where the step's file is not
    whole. Each write replaces its own file at once.
    """

    def __init__(self, folder: Path | None, fingerprint: Mapping[str, str]) -> None:
        self._folder = folder
        self._fingerprint = dict(fingerprint)
        self._cost_s = 0.0
        self._last_s = time.monotonic()

    def load(self, state: TrainState, world: World = ALONE) -> bool:
        """Puts the newest stored state back that is whole; False where there is none.

        The leading process reads it, and all take it over.

        Raises:
            InvalidFile: The state of the last epoch is damaged, and there is none of a step.
            OtherRun: It belongs to a run with another recipe, network or data.
        """
        loaded = self._load(state) if world.leads else False
        if world.size > 1 and world.share(loaded):
            values = world.share(state.to_values(self._fingerprint) if world.leads else {})
            if not world.leads:
                state.load_values(values)
            return True
        return loaded

    def _load(self, state: TrainState) -> bool:
        if self._folder is None:
            return False
        stored: list[tuple[tuple[int, int], Path, dict[str, Any]]] = []
        refused: list[HwbenchError] = []
        for name in (STEP, RESUME):
            path = self._folder / name
            try:
                if path.is_file():
                    values = self._read(path)
                    stored.append((_order(values), path, values))
            except HwbenchError as error:
                # the bytes of a step are not waited for: what a power cut left of them is no state
                if name == RESUME or not isinstance(error, InvalidFile):
                    refused.append(error)
        for _, path, values in sorted(stored, key=lambda one: one[0], reverse=True):
            try:
                state.load_values(values)
                return True
            except InvalidValue as error:
                refused.append(InvalidValue(f"{path}: {error}; start over with --fresh or choose another --out"))
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                line = " ".join(str(error).split())[:200]
                refused.append(InvalidFile(f"{path}: damaged: {line}; {_ANEW}"))
        if refused:
            raise refused[0]
        return False

    def _read(self, path: Path) -> dict[str, Any]:
        """The values in a file that is whole and of this run."""
        data, values = read_tensors(path, f"the state of an interrupted run; {_ANEW}")
        damaged = _damaged_part(data)
        if damaged:
            raise InvalidFile(f"{path}: damaged: {damaged} does not match its checksum; {_ANEW}")
        if values.get("schema") != _SCHEMA:
            raise InvalidFile(f"{path}: written by another version of hwbench; {_ANEW}")
        check_same_run(path, values.get("fingerprint"), self._fingerprint)
        return values

    def is_cheap(self) -> bool:
        """Whether the time since the last write pays for another one."""
        return self._folder is not None and self._cost_s <= _COST_SHARE * (time.monotonic() - self._last_s)

    def save_if_cheap(self, state: TrainState) -> None:
        """Writes the state of a step if the time since the last write pays for it."""
        if self.is_cheap():
            self.save(state, durable=False)

    def save(self, state: TrainState, *, durable: bool = True) -> None:
        """Writes the state; ``durable`` is that of an epoch, and waits for the disk.

        Raises:
            WorkspaceError: No rights or no room; the files from before are still there.
        """
        if self._folder is None:
            return
        start = time.monotonic()
        buffer = io.BytesIO()
        torch.save(state.to_values(self._fingerprint), buffer)
        if durable:
            write_bytes(self._folder / RESUME, buffer.getvalue())
        else:
            _write_step(self._folder, buffer.getbuffer())
        self._last_s = time.monotonic()
        self._cost_s = self._last_s - start


def begun_in(folder: Path) -> bool:
    """Whether a run in the folder can go on."""
    return any(lookup.exists(folder / name) for name in (STEP, RESUME))


def holds_state(folder: Path) -> bool:
    """Whether a folder holds what a run would go on from, whichever run and version that is."""
    for name in (STEP, RESUME):
        with contextlib.suppress(InvalidFile):
            _, values = read_tensors(folder / name, "the state of a run")
            if "fingerprint" in values:
                return True
    return False


def remove_states(folder: Path) -> None:
    """Removes what a run would go on from, and what a killed process left of it; it is gone from the disk, too."""
    names = [name for name in (STEP, RESUME, _STEP_TEMPORARY) if (folder / name).exists()]
    for name in names:
        (folder / name).unlink(missing_ok=True)
    if names:
        sync_folder(folder)


def _order(values: Mapping[str, Any]) -> tuple[int, int]:
    """Where a stored state is: of two states of a run the one with the larger order is the newer."""
    try:
        return int(values["position"]["epoch"]), int(values["position"]["batch"])
    except (KeyError, TypeError, ValueError):
        return -1, -1


def _damaged_part(data: bytes) -> str | None:
    """The part of a ``torch.save`` file that is not as it was written, if any; torch itself does not look."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return archive.testzip()
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
        return str(error) or type(error).__name__


# The fact of a run that says what is done about unreadable videos.
POLICY = "on_error"


def check_same_run(path: Path, stored: object, wanted: Mapping[str, str]) -> None:
    """Raises OtherRun where a stored run is not the one asked for; the message names what differs."""
    if not isinstance(stored, dict):
        raise InvalidFile(f"{path}: damaged: it does not say which run it belongs to; {_ANEW}")
    differ = [key for key in sorted({*stored, *wanted}) if stored.get(key) != wanted.get(key)]
    if stored.get(POLICY) == FailurePolicy.RAISE:  # no video failed so far: it is the run of any other policy, too
        differ = [key for key in differ if key != POLICY]
    if differ:
        changes = _changes(differ, stored, wanted)
        ways = "start over with --fresh or choose another --out"
        if differ == [POLICY] and POLICY in stored:
            ways = f"go on with --on-error {stored[POLICY]}, {ways}"
        raise OtherRun(f"{path}: belongs to another run ({changes}); {ways}", changes)


def _changes(names: Iterable[str], stored: Mapping[str, Any], wanted: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {_difference(_shown(stored, name), _shown(wanted, name))}" for name in names)


def _difference(there: str, now: str) -> str:
    """Both facts; long ones from where they begin to differ."""
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(there, now, strict=False)))
    start = max(there.rfind(mark, 0, same) + 1 for mark in _MARKS) if max(len(there), len(now)) > _LONGEST else 0
    return f"{_part(there, start)} there, {_part(now, start)} now"


def _part(text: str, start: int) -> str:
    end = start + _LONGEST
    return "..." * (start > 0) + text[start:end] + "..." * (end < len(text))


def _shown(facts: Mapping[str, Any], name: str) -> str:
    """A fact of a run; one that is left out is that of a recipe's default, or there is none."""
    return str(facts.get(name, _UNSAID.get(name, getattr(Recipe, name, "none"))))


def _write_step(folder: Path, data: memoryview) -> None:
    path, temporary = folder / STEP, folder / _STEP_TEMPORARY
    with writing(path):
        make_folder(folder)
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
