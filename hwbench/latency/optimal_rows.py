"""The choice of rows that takes most from the predicted variance of networks (A-optimal design)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwbench.latency.block_features import BlockColumns, Blocks, Floats, Integers
from hwbench.latency.boosted import MIN_ROWS
from hwbench.latency.gaussian import GaussianProcess, Kernel, Structure
from hwbench.latency.table import LatencyTable, Role
from hwbench.latency.work_law import WorkLaw
from hwbench.specs import Workload

# Of the networks, spread evenly over those given: their mean variance hardly changes with more.
_NETWORKS = 250
# Candidates that are weighed at a time: those that the networks have, the largest shares first, then others.
_POOL = 3000
# Candidates that are weighed at all; the others come after them, in the order of their use.
_WEIGHED = 6000
# Rows that the process is conditioned on; of more, those that came last in the order of keys are left out.
_ROWS = 1200
# Relative variance of a row that is measured.
_NOISE = 0.005**2
# Before anything was measured: seconds of a multiply-add in a depthwise convolution and elsewhere, of a value, of an
# operation. By judgement, of one core of a phone; only their proportions matter.
_DEPTHWISE_S, _DENSE_S, _VALUE_S, _OPERATION_S = 2.5e-10, 5e-11, 1e-9, 5e-6
# Share of an error that is common to all networks which the calibration takes away; by judgement.
_CENTRED = 0.9
# Blocks of the networks that are taken up at a time, which bounds memory.
_CHUNK = 512


class AOptimal:
    """Blocks whose measurement takes most from the mean predicted variance of the networks, one after the other.

    A Gaussian process over what a law of work leaves (``GaussianRows``) says how unsure each block is and which blocks
    are off together. Latency is a sum, so the variance of a network follows, and what is left of it once a block is
    measured. Blocks of a batch are chosen greedily (A-optimal design; Krause et al. 2008 for processes). An error that
    all networks share is taken away by their calibration, and counts a tenth. Before 20 blocks were measured the
    process has the parameters of its prior.

    Args:
        candidates: Single blocks; all rows of a space.
        networks: Draws of the networks that can be chosen; one that is drawn twice counts twice.
    """

    def __init__(self, candidates: Sequence[Workload], networks: Sequence[Workload]) -> None:
        some = np.unique(np.linspace(0, len(networks) - 1, min(len(networks), _NETWORKS)).round().astype(int))
        drawn = [Counter(networks[at].parts()) for at in some]
        used = Counter(part for network in networks for part in set(network.parts()))
        order = sorted(dict.fromkeys(candidates), key=lambda part: -used[part])
        self._others = order[_WEIGHED:]
        order = order[:_WEIGHED]
        self._parts = list(dict.fromkeys([*order, *(part for counts in drawn for part in counts)]))
        self._candidates = len(order)
        self._keys = [part.key for part in self._parts]
        self._columns = BlockColumns.of(self._parts)
        self._blocks = self._columns(self._parts)
        places = {part: at for at, part in enumerate(self._parts)}
        self._drawn = [(np.array([places[p] for p in counts]), np.array([*counts.values()])) for counts in drawn]

    def next(self, known: LatencyTable, count: int) -> list[Workload]:
        """The blocks of the next batch, the one that takes most first."""
        tried = {row.workload.key for row in known}
        free = np.array([at for at in range(self._candidates) if self._keys[at] not in tried], dtype=np.int64)
        if len(free) < count:
            others = (part for part in self._others if part.key not in tried)
            return [*(self._parts[at] for at in free), *itertools.islice(others, count - len(free))]
        if count < 1:
            return []
        measured = {row.workload.key: row.stats for row in known if row.stats is not None}
        belief = self._belief(known)
        seconds = belief.seconds(self._blocks)
        for at, key in enumerate(self._keys):
            if key in measured:
                seconds[at] = measured[key].median_s
        whole = self._shares(seconds)
        needed = np.array([at for at in np.flatnonzero(whole.any(axis=0)) if self._keys[at] not in measured], dtype=int)
        pool = self._pool(free, whole, count)
        design = _Design.of(belief, self._blocks, needed, whole[:, needed], pool)
        return [self._parts[at] for at in pool[design.greedy(count)]]

    def _belief(self, known: LatencyTable) -> _Belief:
        rows = known.rows(Role.BLOCK)
        rows = [rows[at] for at in np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).astype(int))]
        pairs = [(row.workload, row.stats.median_s) for row in rows if row.stats is not None]
        blocks = self._columns([part for part, _ in pairs])
        return _Belief.of(self._columns, blocks, np.array([seconds for _, seconds in pairs]))

    def _shares(self, seconds: Floats) -> Floats:
        """The share of each block in each network, less what it has in all of them alike; (networks, blocks)."""
        shares = np.zeros((len(self._drawn), len(self._parts)))
        for row, (places, copies) in zip(shares, self._drawn):
            row[places] = copies * seconds[places] / (copies * seconds[places]).sum()
        return shares - _CENTRED * shares.mean(axis=0) if len(shares) else shares

    def _pool(self, free: Integers, shares: Floats, count: int) -> Integers:
        """The free candidates that networks have, those with the largest shares first, then others."""
        weight = (shares[:, free] ** 2).sum(axis=0)
        return free[np.argsort(-weight, kind="stable")[: max(_POOL, count)]]


@dataclass(frozen=True)
class _Belief:
    """What is thought of all blocks: a law, and a process over what it leaves, conditioned on measured ones."""

    law: WorkLaw
    kernel: Kernel
    process: GaussianProcess | None

    @classmethod
    def of(cls, columns: BlockColumns, rows: Blocks, seconds: Floats) -> _Belief:
        width = rows.numbers.shape[1] + rows.names.shape[1]
        kernel = Kernel(Structure.TOGETHER, Kernel.prior(Structure.TOGETHER, width)[0])
        if not len(rows):
            return cls(_usual_law(columns), kernel, None)
        law = WorkLaw.fit(rows, seconds) if len(rows) >= MIN_ROWS else _usual_law(columns).scaled(rows, seconds)
        left_over, noise = np.log(seconds / law(rows)), np.full(len(rows), _NOISE)
        if len(rows) >= MIN_ROWS:
            process = GaussianProcess.fit(Structure.TOGETHER, rows, left_over, noise)
        else:
            process = GaussianProcess.conditioned(kernel, rows, left_over, noise)
        return cls(law, process.kernel, process)

    def seconds(self, blocks: Blocks) -> Floats:
        means = self.process.predict(blocks)[0] if self.process else np.zeros(len(blocks))
        return np.asarray(self.law(blocks) * np.exp(means), dtype=float)

    def whitened(self, blocks: Blocks) -> Floats:
        """Covariances with the rows, after which those of blocks with each other are what the rows leave of them."""
        if self.process is None:
            return np.zeros((0, len(blocks)))
        return self.process.whitened(self.kernel(self.process.blocks, blocks))


@dataclass
class _Design:
    """Covariances that rows chosen so far leave: of networks with the candidates of a pool, and of each candidate."""

    belief: _Belief
    pool: Blocks
    whitened: Floats
    networks: Floats
    variances: Floats

    @classmethod
    def of(cls, belief: _Belief, blocks: Blocks, needed: Integers, shares: Floats, pool: Integers) -> _Design:
        """Before any is chosen.

        Args:
            belief: Of all blocks.
            blocks: All of them.
            needed: Places of those of the networks that are not measured.
            shares: Of each network, by ``needed``.
            pool: Places of the candidates.
        """
        kernel, candidates = belief.kernel, blocks[pool]
        whitened = belief.whitened(candidates)
        networks = np.zeros((len(shares), len(pool)))
        for start in range(0, len(needed), _CHUNK):
            some = blocks[needed[start : start + _CHUNK]]
            left = kernel(some, candidates) - belief.whitened(some).T @ whitened
            networks += shares[:, start : start + _CHUNK] @ left
        # What a block has of its own is known once it is measured.
        place = {at: column for column, at in enumerate(needed)}
        for column, at in enumerate(pool):
            if at in place:
                networks[:, column] += shares[:, place[at]] * kernel.nugget
        variances = kernel.variance + kernel.nugget - (whitened**2).sum(axis=0)
        return cls(belief, candidates, whitened, networks, np.maximum(variances, 0.0) + _NOISE)

    def greedy(self, count: int) -> list[int]:
        """Places in the pool, the one that takes most from the variance of the networks first."""
        kernel, chosen = self.belief.kernel, list[int]()
        prior = kernel(self.pool, self.pool)
        open_ = np.ones(len(self.pool), dtype=bool)
        new = np.zeros((0, len(self.pool)))
        for _ in range(min(count, len(self.pool))):
            taken = (self.networks**2).sum(axis=0) / self.variances
            best = int(np.argmax(np.where(open_, taken, -1.0)))
            covariances = prior[best] - (self.whitened[:, best] @ self.whitened + new[:, best] @ new)
            covariances[best] += kernel.nugget
            self.networks -= np.outer(self.networks[:, best], covariances) / self.variances[best]
            step = covariances / np.sqrt(self.variances[best])
            self.variances = np.maximum(self.variances - step**2, _NOISE)
            new = np.concatenate([new, step[None]])
            open_[best] = False
            chosen.append(best)
        return chosen


def _usual_law(columns: BlockColumns) -> WorkLaw:
    """What operations cost somewhere, before one was measured."""
    costs = [_usual_cost(name) for name in columns.terms]
    return WorkLaw(np.array(costs), 1e-9)


def _usual_cost(term: str) -> float:
    if term.endswith("MACs"):
        return _DEPTHWISE_S if term.startswith("depthwise") else _DENSE_S
    return {"count": _OPERATION_S, "values": _VALUE_S}.get(term.split()[-1], 0.0)
