"""The networks of experiment 006, and what must be measured to predict them: drawn once, kept in plan.json."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hwbench.latency import context_chains, macs
from hwbench.spaces import StagedSpace, load_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import BlockSpec, Precision, TensorSpec, Workload
from hwbench.workspace import Workspace

HERE = Path(__file__).parent
SPACE, CLASSES, SEED = "x3d-mobile", 400, 6
# Budgets that bound the bands, in multiply-adds: before there is a table there are no milliseconds to draw by.
BANDS = ((0.15e9, 0.3e9), (0.3e9, 0.6e9), (0.6e9, 1.2e9), (1.2e9, 2.4e9), (2.4e9, 4.8e9))
# Networks of each band, by role. Those of MORE and LATE were drawn later, and are not in the data of every machine;
# LATE when the predictor had got its present form.
FIRST = {"held-out": 8, "calibration": 4}
MORE = {"more-held-out": 4, "more-calibration": 4}
LATE = {"late-held-out": 12, "late-calibration": 8}
HELD_OUT, CALIBRATION = (tuple(roles) for roles in zip(FIRST, MORE, LATE))
BLOCKS = ("block", "late-block")
# Boundaries told by probes, chains of blocks (as was done before), and kernels of each kind.
BOUNDARIES, CHAINS, CHAIN_LENGTH, KERNELS = 40, 40, 4, 75
ROLES = (*CALIBRATION, *HELD_OUT, "boundary", *BLOCKS, "chain", "kernel")


def plan() -> None:
    """Draws the networks, uniformly from each band, and lists what must be measured; writes ``plan.json``."""
    space = load_space(Workspace.find(), SPACE)
    sums = SpaceSums.of(space, lambda b, x: float(macs(Workload((b,), x))), num_classes=CLASSES)
    rng = np.random.default_rng(SEED)
    seen: dict[Workload, None] = {}
    roles = draw(space, sums, FIRST, rng, seen)
    parts = [part for network in seen for part in network.parts()]
    chains = chains_of_blocks(parts)
    roles |= draw(space, sums, MORE, np.random.default_rng([SEED, 1]), seen)
    roles["block"] = [w.key for w in sorted({part for whole in (*seen, *chains) for part in whole.parts()})]
    roles["chain"] = [w.key for w in chains]
    roles["boundary"] = [w.key for w in context_chains(parts, BOUNDARIES)]
    members = (space.network(space.random(rng), CLASSES).workload(Precision.FP32) for _ in range(1000))
    roles["kernel"] = [w.key for w in some_kernels(members)]
    roles |= draw(space, sums, LATE, np.random.default_rng([SEED, 2]), seen)
    later = {part.key for network in seen for part in network.parts()}.difference(roles["block"])
    roles["late-block"] = sorted(later)
    text = {"space": SPACE, "classes": CLASSES, "seed": SEED, "bands_macs": BANDS, **roles}
    (HERE / "plan.json").write_text(json.dumps(text, indent=1) + "\n")
    print({role: len(keys) for role, keys in roles.items()})


def draw(
    space: StagedSpace, sums: SpaceSums, roles: dict[str, int], rng: np.random.Generator, seen: dict[Workload, None]
) -> dict[str, list[str]]:
    """So many networks of each role from each band, none of which was ``seen``; the roles follow the order of bands."""
    found: dict[str, list[str]] = {role: [] for role in roles}
    for low, high in BANDS:
        feasible = FeasibleSet(sums, high)
        for role, count in roles.items():
            wanted = len(found[role]) + count
            while len(found[role]) < wanted:
                network = space.network(feasible.draw(rng, (low / high, 1.0)), CLASSES).workload(Precision.FP32)
                found[role] += [] if network in seen else [network.key]
                seen[network] = None
    return found


def chains_of_blocks(parts: list[Workload]) -> list[Workload]:
    """Chains of the cheapest blocks between whose copies an activation lies, or of a pair of blocks around it."""
    ends: dict[TensorSpec, tuple[list[Workload], list[Workload]]] = {}
    for part in dict.fromkeys(parts):
        ends.setdefault(part.output, ([], []))[0].append(part)
        ends.setdefault(part.input, ([], []))[1].append(part)
    found = []
    for before, after in ends.values():
        copied = [part for part in after if part.output == part.input]
        if copied:
            least = min(copied, key=lambda part: (macs(part), part.key))
            found.append(Workload(least.blocks * CHAIN_LENGTH, least.input, least.precision))
        elif before and after:
            first, last = (min(those, key=lambda part: (macs(part), part.key)) for those in (before, after))
            found.append(Workload(first.blocks + last.blocks, first.input, first.precision))
    found.sort(key=lambda chain: (list(chain.parts())[1].input.numel, chain.key))
    return [found[at] for at in sorted(set(np.linspace(0, len(found) - 1, CHAINS).astype(int).tolist()))]


def kernels_of(part: Workload) -> list[Workload]:
    """The convolutions of a block, each with the activation that is fused to it, as blocks of their own."""
    (block,) = part.blocks
    found = []
    for conv in block.operations(part.input):
        act = "identity" if conv.path == "gate" else block.activation if conv.groups > 1 else "relu"
        groups, stride = conv.groups, conv.stride
        spec = BlockSpec(
            "conv", conv.input.c, conv.out_channels, kernel=(conv.kernel,), stride=stride, groups=groups, activation=act
        )
        found.append(Workload((spec,), conv.input, part.precision))
    return found


def some_kernels(networks: Iterable[Workload]) -> list[Workload]:
    """``KERNELS`` depthwise and as many other convolutions, one of each kind from each network."""
    found: dict[bool, dict[Workload, None]] = {True: {}, False: {}}
    rng = np.random.default_rng(SEED)
    for network in networks:
        for depthwise, those in found.items():
            drawn = [k for p in network.parts() for k in kernels_of(p) if (k.blocks[0].groups > 1) == depthwise]
            those[drawn[int(rng.integers(len(drawn)))]] = None
        if min(map(len, found.values())) >= KERNELS:
            break
    return [kernel for those in found.values() for kernel in list(those)[:KERNELS]]


def planned(precision: Precision) -> dict[str, list[Workload]]:
    """The workloads of each role."""
    text = json.loads((HERE / "plan.json").read_text())
    return {role: [with_precision(Workload.parse(key), precision) for key in text[role]] for role in ROLES}


def with_precision(workload: Workload, precision: Precision) -> Workload:
    return Workload(workload.blocks, workload.input, precision, workload.variant)
