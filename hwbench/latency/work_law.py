"""A law of work: what a block takes is a sum over its operations, in which nothing costs less than nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwbench.latency.block_features import Blocks, Floats

# Ridge on each term, in parts of what the term explains alone: terms that rows hardly tell apart share what they cost.
_RIDGE = 1e-3
# A row this many median deviations off the law, and off by a third at least, does not take part in it.
_OUTLYING = 6.0
_LEAST_OFF = 0.3
_ROUNDS = 2
# No block costs less than this share of what the least of the measured rows took.
_FLOOR = 0.05


@dataclass(frozen=True)
class WorkLaw:
    """seconds = sum of cost * term over the terms of ``Blocks``; non-negative least squares of relative errors.

    The unknowns are operators, not blocks: each group of operations has a cost for each of its multiply-adds, of the
    values that it moves, of its weights, and of itself. All terms grow with a block, so that the law holds beyond the
    largest row as well (in the manner of the roofline model, Williams et al. 2009). Rows that are off by far are left
    out in a second round.
    """

    costs: Floats
    floor_s: float

    @classmethod
    def fit(cls, blocks: Blocks, seconds: Floats) -> WorkLaw:
        """Fits to rows; ``seconds`` has the shape (blocks,), above zero."""
        kept = np.ones(len(blocks), dtype=bool)
        law = cls._of(blocks, seconds)
        for _ in range(_ROUNDS):
            off = np.abs(np.log(seconds / law(blocks)))
            inside = off <= max(_OUTLYING * float(np.median(off)), _LEAST_OFF)
            if (inside == kept).all() or not inside.any():
                break
            kept = inside
            law = cls._of(blocks[kept], seconds[kept])
        return law

    @classmethod
    def _of(cls, blocks: Blocks, seconds: Floats) -> WorkLaw:
        from scipy.optimize import nnls

        relative = blocks.terms / seconds[:, None]
        scales = np.maximum(np.sqrt(np.mean(relative**2, axis=0)), 1e-300)
        count, width = relative.shape
        ridge = np.sqrt(_RIDGE * _RIDGE * count) * np.eye(width)
        design = np.concatenate([relative / scales, ridge])
        target = np.concatenate([np.ones(count), np.zeros(width)])
        costs, _ = nnls(design, target, maxiter=30 * width)
        return cls(np.where(scales > 1e-290, costs / scales, 0.0), _FLOOR * float(seconds.min()))

    def __call__(self, blocks: Blocks) -> Floats:
        """Seconds by the law, shape (blocks,); above zero."""
        values: Floats = np.maximum(blocks.terms @ self.costs, self.floor_s)
        return values

    def scaled(self, blocks: Blocks, seconds: Floats) -> WorkLaw:
        """The same proportions at the level of a few rows."""
        factor = float(np.median(seconds / self(blocks)))
        return WorkLaw(self.costs * factor, self.floor_s * factor)
