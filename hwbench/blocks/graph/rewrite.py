"""From a model to its deploy form, through the graph that ``torch.export`` makes of it."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import fx, nn
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from hwbench.blocks.double_precision import doubled, fixed_dtype_refused
from hwbench.blocks.graph.apart import taken_apart
from hwbench.blocks.graph.rules import BATCH_NORM, Call, described, name_of, rules
from hwbench.blocks.graph.values import FOLDED, NCTHW, Clip, Plain, Value, reorder, spec_of
from hwbench.blocks.kept import changed, kept_values, refusal
from hwbench.blocks.layout import frames_to_batch
from hwbench.blocks.lazy import uninitialised
from hwbench.errors import HwbenchError, InvalidValue, ParityFailed, UnsupportedModule
from hwbench.printable import shown
from hwbench.registry import blaming
from hwbench.specs import AUTO

# One clip, or one for each of several pathways.
Clips = torch.Tensor | tuple[torch.Tensor, ...]

# Of the largest output, in double precision. Sums in another order make 1e-15 per layer.
TOLERANCE = 1e-9
# Around a run in double precision: makes an error of what a fixed dtype raises.
_Refusing = Callable[[], AbstractContextManager[None]]
_ASSERTION = "aten._assert_tensor_metadata.default"


class RewriteResult(enum.Enum):
    """How a deploy form gives an activation with five axes: in the model's own shape, or with frames as batch."""

    AS_MODEL = "as model"
    FOLDED = "folded"


def deploy_graph(
    model: nn.Module, example: Clips, *, variant: str = AUTO, result: RewriteResult = RewriteResult.AS_MODEL
) -> fx.GraphModule:
    """The deploy form of any video model: folded frames (N·T, C, H, W) -> what the model returns, in eval mode.

    The graph of the model in eval mode is rewritten operation by operation (``hwbench.blocks.graph.rules``) with frames
    as batch, batch normalisation folded, and nothing in it that XNNPACK does not take. The result is compared with the
    model on a random clip in double precision before it is returned.

    Args:
        model: Takes one clip and returns one tensor; as a part of a network it may take and return several. Left as it
            is.
        example: One clip (N, C, T, H, W), or one for each of several pathways; their shapes are baked in. Their values
            are not looked at.
        variant: Layout of convolutions over time.
        result: ``FOLDED`` for a part of a network, whose activations stay folded: (N·T, C, H, W).

    Returns:
        A module of its own, with weights of the dtype of ``example``; several tensors come out as a tuple.

    Raises:
        UnsupportedModule: An operation has no rule, or not for these arguments, or ``torch.export`` cannot follow the
            model, or the model cannot be copied or lies on the meta device, or its forward fixes a dtype, draws random
            numbers, keeps something of a clip that answers to later clips depend on, or takes a limit of double
            precision from ``torch.finfo(x.dtype)``; the message names the operation, its place in the model and the
            shape of its input, or the attribute.
        InvalidValue: The example is no clip of floats, the model does not take it, or a lazy layer has no weights yet.
        ParityFailed: The rewritten model computes something else than the model: a defect, and nothing is returned.
    """
    examples = (example,) if isinstance(example, torch.Tensor) else example
    for one in examples:
        if one.dim() != 5:
            raise InvalidValue(f"deploy_graph: expected a clip (N, C, T, H, W), got shape {tuple(one.shape)}")
        if not one.is_floating_point():
            raise InvalidValue(f"deploy_graph: expected a clip of floats, as clip.float(), got {one.dtype}")
    if lazy := uninitialised(model):
        raise InvalidValue(f"{type(model).__name__}: {lazy[0]} has no values yet; run a clip through it first")
    original = doubled(model)
    generator = torch.Generator().manual_seed(0)
    clips = tuple(torch.randn(one.shape, dtype=torch.float64, generator=generator) for one in examples)
    own = tuple(clip.to(one.dtype) for clip, one in zip(clips, examples, strict=True))
    refusing = partial(fixed_dtype_refused, model, own)
    with torch.no_grad():
        before = kept_values(original)
        expected = _answer(original, clips, result, refusing)
        if kept := changed(before, kept_values(original)):
            _refuse_dependence(model, kept, clips, expected, result, refusing)
        program = exported(original, clips)
        if mutated := program.graph_signature.buffers_to_mutate:  # as through ``buffer.data``, which has no versions
            _refuse_dependence(model, mutated.values(), clips, expected, result, refusing)
        _refuse_limits_of_float64(program, examples[0].dtype)
        rewriter = Rewriter(program, variant, result)
        deployed = rewriter.deployed()
        others = ", ".join(dict.fromkeys(rewriter.others_rules))
        with blaming(others, on="the rewritten model") if others else nullcontext():
            answers = pytree.tree_leaves(deployed(*map(frames_to_batch, clips)))
        for wanted, got in zip(expected, answers, strict=True):
            _prove(wanted, got, others)
    return deployed.to(examples[0].dtype)


class Rewriter:
    """Walks through an exported program and puts together the rewritten graph."""

    def __init__(
        self, program: torch.export.ExportedProgram, variant: str = AUTO, result: RewriteResult = RewriteResult.AS_MODEL
    ) -> None:
        self.variant = variant
        self._result = result
        self._program = program
        self._values: dict[fx.Node, Any] = {}
        self._graph, self._root = fx.Graph(), nn.Module()
        self.others_rules: list[str] = []  # of other packages, as messages call them

    def deployed(self) -> fx.GraphModule:
        """The rewritten model.

        Raises:
            UnsupportedModule: There is an operation that no rule covers.
        """
        for node in self._program.graph.nodes:
            if node.op == "call_function" and node not in self._values:
                self._visit(node)
            elif node.op == "placeholder":
                self._values[node] = self._input(node)
        made = [value.node for value in self._outputs()]
        self._graph.output(made[0] if len(made) == 1 else tuple(made))
        return fx.GraphModule(self._root, self._graph, "Deployed").eval()

    def resolved(self, argument: Any) -> Any:
        """An argument of the original with values in the place of nodes."""
        return pytree.tree_map_only(fx.Node, self._values.__getitem__, argument)

    def is_constant(self, node: fx.Node) -> bool:
        """Whether a node is known not to depend on the input."""
        return isinstance(self._values.get(node), torch.Tensor)

    def emit(self, module: nn.Module, nodes: Sequence[fx.Node], source: fx.Node) -> fx.Node:
        """Puts a module behind nodes of the rewritten graph, named after a node of the original."""
        if isinstance(module, nn.Identity):
            return nodes[0]
        name, count = source.name, 1
        while hasattr(self._root, name):
            name, count = f"{source.name}_{count}", count + 1
        self._root.add_module(name, module.eval())
        return self._graph.call_module(name, tuple(nodes))

    def _visit(self, node: fx.Node) -> None:
        if name_of(node) == "getitem":
            source, index = node.args
            assert isinstance(source, fx.Node)
            assert isinstance(index, int)
            results = self.resolved(source)
            if index >= len(results):
                raise UnsupportedModule(f"{described(source)}: its result {index} is not covered, result 0 is")
            self._values[node] = results[index]
            return
        if all(self.is_constant(source) for source in node.all_input_nodes):
            self._values[node] = _computed(node, self.resolved(node.args), self.resolved(node.kwargs))
            return
        name = name_of(node)
        if name == _ASSERTION:
            return  # of a tensor before it is converted; nothing takes its result
        if any(map(_is_symbolic, pytree.tree_leaves(node.meta.get("val")))):
            raise UnsupportedModule(
                f"{described(node)}: its size depends on values; index with numbers, as torch.tensor([0, 2, 3]), "
                "in place of a mask"
            )
        if name not in rules:
            raise UnsupportedModule(
                f"{described(node)}: the operation has no rule, so the model cannot be deployed as it is "
                "(hwbench.blocks.graph.rules.names() lists the operations that have one)"
            )
        call = Call(self, node)
        if name != BATCH_NORM and not all(map(all, call.shapes)):
            call.refuse("its result is empty")
        rule = rules.get(name)
        with rules.blaming(rule, on=described(node)):
            value = rule(call)
        if title := rules.origin(rule):
            self.others_rules.append(title)
            given: object = value
            if not isinstance(given, Clip | Plain | torch.Tensor | tuple | list):
                raise HwbenchError(f"{title}: expected the result of {described(node)}, got {shown(given)}")
        if isinstance(value, Clip | Plain):
            call.require_own_dtype()
        for part in (node, *call.absorbed):
            self._values[part] = (value,) if name_of(part) == BATCH_NORM else value

    def _input(self, node: fx.Node) -> Value:
        """The clip, or a parameter or constant of the model."""
        signature = {spec.arg.name: spec for spec in self._program.graph_signature.input_specs}
        spec = signature[node.name]
        if spec.kind == InputKind.USER_INPUT:
            shape = node.meta["val"].shape
            number = sum(placeholder.op == "placeholder" for placeholder in self._graph.nodes)
            return Clip(self._graph.placeholder(f"frames_{number}" if number else "frames"), spec_of(shape))
        held: object = {**self._program.state_dict, **self._program.constants}[spec.target]
        if not isinstance(held, torch.Tensor):
            raise UnsupportedModule(
                f"{described(next(iter(node.users), node))}: it reads a {type(held).__name__}, and only tensors are "
                "covered; what a generator draws, draw once in __init__ and keep with register_buffer"
            )
        return held.detach()

    def _outputs(self) -> list[Plain]:
        """What the model returns: one tensor, or several of a part of a network."""
        specs = self._program.graph_signature.output_specs
        outputs = [spec.arg for spec in specs if spec.kind == OutputKind.USER_OUTPUT]
        several = self._result is RewriteResult.FOLDED
        if not (outputs if several else len(outputs) == 1) or not all(isinstance(o, TensorArgument) for o in outputs):
            raise UnsupportedModule(f"the model returns {len(outputs)} values; expected one tensor")
        nodes = {node.name: node for node in self._program.graph.nodes}
        return [self._output(nodes[output.name]) for output in outputs]

    def _output(self, node: fx.Node) -> Plain:
        """One tensor that the model returns, in the shape that is asked for."""
        value = self._values[node]
        if isinstance(value, torch.Tensor):
            raise UnsupportedModule("the model returns what does not depend on its input")
        if isinstance(value, Clip) and self._result is RewriteResult.FOLDED:
            # Axes of the original in another order have its sizes, which the block behind takes for (N, C, T, H, W).
            spec, moved = spec_of(value.shape), "".join(value.order[NCTHW.index(axis)] for axis in FOLDED)
            module = reorder(value.spec, FOLDED, moved, spec.folded)
            return Plain(value.node if moved == FOLDED else self.emit(module, [value.node], node), spec.folded)
        if isinstance(value, Clip):
            module = reorder(value.spec, FOLDED, value.order, value.shape)
            return Plain(self.emit(module, [value.node], node), value.shape)
        assert isinstance(value, Plain)
        return value


def exported(model: nn.Module, clips: Clips) -> torch.export.ExportedProgram:
    """The graph of the model without operations in place."""
    try:
        inputs = _own((clips,) if isinstance(clips, torch.Tensor) else clips)
        with warnings.catch_warnings():
            # A recurrent layer lists its weights once more, which torch.export takes for a buffer that it should be.
            warnings.filterwarnings("ignore", "The tensor attributes? .* assigned during export", UserWarning)
            program: torch.export.ExportedProgram = torch.export.export(model, inputs, strict=False)
        return taken_apart(program.run_decompositions({}))
    except HwbenchError:
        raise
    except Exception as error:  # the model's own code runs in it, which raises what it likes
        raise UnsupportedModule(
            f"{type(model).__name__}: torch.export cannot follow it: {type(error).__name__}: {_line(error)}"
        ) from error


def _answer(
    model: nn.Module, clips: tuple[torch.Tensor, ...], result: RewriteResult, refusing: _Refusing
) -> list[torch.Tensor]:
    """What the model returns for a clip, or for one of each pathway: one tensor; of a part of it several, folded."""
    shape = " and ".join("x".join(map(str, clip.shape)) for clip in clips)
    try:
        with refusing():
            leaves = pytree.tree_leaves(model(*_own(clips)))
    except HwbenchError:
        raise
    except Exception as error:
        raise InvalidValue(
            f"{type(model).__name__} does not take a clip of {shape} (NxCxTxHxW): {_line(error)}"
        ) from error
    part = result is RewriteResult.FOLDED
    fits = bool(leaves) if part else len(leaves) == 1
    if not fits or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise UnsupportedModule(f"{type(model).__name__} returns {len(leaves)} values; expected one tensor")
    return [frames_to_batch(one) if part and one.dim() == 5 else one for one in leaves]


def _refuse_dependence(
    model: nn.Module,
    kept: Iterable[str],
    clips: tuple[torch.Tensor, ...],
    expected: Sequence[torch.Tensor],
    result: RewriteResult,
    refusing: _Refusing,
) -> None:
    """Raises UnsupportedModule where the model answers otherwise than expected once it has seen other clips.

    ``kept``: the attributes that its forward changes.
    """
    fresh = doubled(model)
    _answer(fresh, tuple(clip.flip(-1) + 1 for clip in clips), result, refusing)
    for wanted, got in zip(expected, _answer(fresh, clips, result, refusing), strict=True):
        if got.shape != wanted.shape or float((got - wanted).abs().max()) > TOLERANCE * float(wanted.abs().max()):
            raise refusal(type(model).__name__, kept)


def _own(clips: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Copies for a model that may change its input in place, as ``x -= mean``."""
    return tuple(clip.clone() for clip in clips)


def _prove(expected: torch.Tensor, got: torch.Tensor, others: str = "") -> None:
    """Raises ParityFailed; ``others``: the rules of other packages that took part."""
    took_part = f"; what took part: {others}" if others else ""
    if got.shape != expected.shape:
        raise ParityFailed(
            f"the rewritten model returns {tuple(got.shape)}, the model {tuple(expected.shape)}{took_part}"
        )
    if not bool(torch.isfinite(expected).all()):
        raise ParityFailed("the model returns values that are not finite for a clip of normal noise; nothing is proven")
    error = float((got - expected).abs().max())
    if not error <= TOLERANCE * float(expected.abs().max()):
        raise ParityFailed(
            f"the rewritten model differs from the model by {error:.2g} in double precision on a random clip, so it is "
            f"not returned{took_part or '. Please report the model, this is a defect of hwbench'}"
        )


def _computed(node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The value of an operation that does not depend on the input."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        raise UnsupportedModule(f"{described(node)}: it draws random numbers, also in eval mode")
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _refuse_limits_of_float64(program: torch.export.ExportedProgram, dtype: torch.dtype) -> None:
    """Raises UnsupportedModule for a constant from ``torch.finfo(x.dtype)``, which the export takes from float64.

    In fp32 such a number is infinite or 0.
    """
    held = torch.promote_types(dtype, torch.float32)  # a number that fp32 holds is no limit of float64, also for fp16
    if held == torch.float64:
        return
    constants = {
        spec.arg.name: program.constants[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.kind == InputKind.CONSTANT_TENSOR
    }
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        for argument in pytree.tree_leaves((node.args, node.kwargs)):
            number = constants.get(argument.name) if isinstance(argument, fx.Node) else argument
            if isinstance(number, float):
                number = torch.tensor(number, dtype=torch.float64)
            if isinstance(number, torch.Tensor) and (field := _limit(number, held)):
                raise UnsupportedModule(
                    f"{described(node)}: its forward takes a limit of double precision, in which hwbench exports; "
                    f"write torch.finfo(torch.float32).{field} in place of torch.finfo(x.dtype).{field}"
                )


def _limit(numbers: torch.Tensor, held: torch.dtype) -> str | None:
    """The field of ``torch.finfo`` from which numbers come that a dtype does not hold."""
    if numbers.dtype != torch.float64:
        return None
    beyond = numbers[numbers.isfinite() & ~numbers.to(held).isfinite()]
    if beyond.numel():
        return "min" if float(beyond[0]) < 0 else "max"
    if numbers.numel() != 1:  # values far below the others may well become 0
        return None
    return "tiny" if float(numbers) and not float(numbers.to(held)) else None


def _is_symbolic(value: object) -> bool:
    """Whether an export knows no number for a value, or for a size of it."""
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(size, torch.SymInt | torch.SymBool) for size in sizes)


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]
