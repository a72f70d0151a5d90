"""Any video model as a graph of operations that a mobile runtime has: conv3d and its kin with frames as batch.

* ``rewrite``: the way through a model: export, one rule for each operation, proof.
* ``rules``: operation -> rule, and what a rule sees. A rule is one small function.
* ``convolution``, ``pooling``, ``pointwise``, ``shaping``, ``attention``, ``normalisation``, ``recurrent``,
  ``compositions``: the rules.
* ``apart``: operations without a rule as those that they are made of.
* ``frames``: what the rules put into the rewritten graph: modules on folded clips.
* ``values``: what stands for a tensor of the original: a folded clip, or a plain tensor.
"""

from hwbench.blocks.graph import (  # noqa: F401  # they register their rules
    attention,
    compositions,
    convolution,
    normalisation,
    pointwise,
    pooling,
    recurrent,
    shaping,
)
from hwbench.blocks.graph.rewrite import RewriteResult, deploy_graph
from hwbench.blocks.graph.rules import rules

__all__ = ["RewriteResult", "deploy_graph", "rules"]
