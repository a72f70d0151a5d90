"""What takes the place of what: layers and groups of layers, and the blocks that compute the same.

A *rule* looks at one module and answers with a block, with the reason why there is none, or with nothing when the
module is none of its business. Rules go by exact types and by all attributes, and whatever they find is proven: block
and module, with the same random weights and statistics, see the same random clip in double precision.
"""

from __future__ import annotations

import copy
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import fx, nn

from hwbench.blocks.base import EfficientBlock, tensor_spec
from hwbench.blocks.layout import batch_to_frames, frames_to_batch
from hwbench.blocks.mobile_cpu import (
    AdaptiveAvgPool3dOutSize1,
    Chain,
    Conv3d3x1x1BnAct,
    Conv3d3x3x3DwBnAct,
    Conv3d5x1x1BnAct,
    Conv3dPwBnAct,
    Conv3dTemporalKernel1BnAct,
    HardSwish,
    Identity,
    Pool3d,
    ReLU,
    ResidualBlock,
    SqueezeExcitation,
    Swish,
)
from hwbench.blocks.mobile_cpu.activations import Activation
from hwbench.blocks.mobile_cpu.convolutions import ConvBnAct
from hwbench.deploy.tracing import Traced, Untraceable, trace
from hwbench.errors import HwbenchError

# A block, the reason why there is none, or None where the rule does not apply.
Answer = EfficientBlock | str | None
Rule = Callable[[nn.Module], Answer]

# By how much a probe is larger than all kernels together, on each axis by another number: what is not the same shows.
_PROBE_ROOM = (2, 4, 3)
_TOLERANCE = 1e-9

_ACTIVATIONS: dict[type[nn.Module], type[Activation]] = {
    nn.ReLU: ReLU,
    nn.SiLU: Swish,
    nn.Hardswish: HardSwish,
    nn.Identity: Identity,
}
# The same as functions and methods, which can only be taken in together with the forward they stand in.
_FUNCTIONS: dict[object, type[Activation]] = {
    torch.relu: ReLU, torch.relu_: ReLU, nn.functional.relu: ReLU, "relu": ReLU, "relu_": ReLU,
    nn.functional.silu: Swish, nn.functional.hardswish: HardSwish,
}  # fmt: skip
_IN_PLACE = (torch.relu_, "relu_")
_SIGMOIDS = (torch.sigmoid, nn.functional.sigmoid, "sigmoid")
_PRODUCTS = (operator.mul, operator.imul, torch.mul, "mul", "mul_")
_SUMS = (operator.add, operator.iadd, torch.add, "add", "add_")
_MEANS = (torch.mean, "mean")
_ALL_AXES = {2, 3, 4}


def altered(module: nn.Module) -> str | None:
    """Why a layer of an exact type still may do something else, or do more than a block would."""
    if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks:
        return "it has hooks, which a block would lose"
    if hasattr(module, "parametrizations"):
        return "it has parametrisations, which a block would lose"
    if "forward" in vars(module):
        return "its forward was replaced"
    if getattr(module, "_compiled_call_impl", None) is not None:
        return "it is compiled"
    return None


def convolution(conv: nn.Module, norm: nn.Module | None = None, act: nn.Module | None = None) -> Answer:
    """A convolution, with the normalisation and the activation that follow it."""
    if not isinstance(conv, nn.Conv3d):
        return None
    if type(conv) is not nn.Conv3d:
        return f"a subclass of Conv3d ({type(conv).__name__}) may compute something else"
    reason = altered(conv)
    if reason is not None:
        return reason
    if isinstance(conv.padding, str) or conv.padding_mode != "zeros":
        return f"padding {conv.padding!r} of mode {conv.padding_mode!r}: only zeros, given in numbers, are covered"
    block = _of_geometry(conv)
    layers: OrderedDict[str, nn.Module] = OrderedDict(conv=conv)
    if norm is not None:
        layers["bn"] = norm
    layers["act"] = Identity() if act is None else _wrapped(act)
    block.kernel = nn.Sequential(layers)
    _follow(conv.training, block, block.kernel, layers["act"])
    chain = nn.Sequential(*(layer for layer in (conv, norm, act) if layer is not None))
    return proven(block, chain, conv.in_channels)


def activation_of(module: nn.Module) -> bool:
    """Whether a module is an activation that blocks have."""
    return type(module) in _ACTIVATIONS and altered(module) is None


def pooling(module: nn.Module) -> Answer:
    """Average over everything, or windows of an average or a maximum."""
    if not isinstance(module, nn.AdaptiveAvgPool3d | nn.AdaptiveMaxPool3d | nn.AvgPool3d | nn.MaxPool3d):
        return None
    if type(module) not in (nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d, nn.AvgPool3d, nn.MaxPool3d):
        return f"a subclass of a pooling ({type(module).__name__}) may compute something else"
    reason = altered(module)
    if reason is not None:
        return reason
    if isinstance(module, nn.AvgPool3d | nn.MaxPool3d):
        try:
            block: EfficientBlock = Pool3d(module)
        except HwbenchError as error:
            return str(error)
        _follow(module.training, block)
        return proven(block, module, 3)
    if isinstance(module, nn.AdaptiveMaxPool3d) or module.output_size not in (1, (1, 1, 1), [1, 1, 1]):
        return f"adaptive pooling to {module.output_size}: only an average to 1 is covered"
    block = AdaptiveAvgPool3dOutSize1()
    block.pool = module
    _follow(module.training, block)
    return proven(block, module, 3)


def squeeze_excite(module: nn.Module) -> Answer:
    """A module whose forward is ``x * sigmoid(conv(act(conv(mean(x)))))`` and nothing else."""
    if not _composed(module) or sum(isinstance(part, nn.Conv3d) for part in module.modules()) not in (1, 2):
        return None
    return _in_both_modes(module, _gate)


def residual(module: nn.Module) -> Answer:
    """A module whose forward is ``act(f(x) + g(x))`` of blocks and nothing else; ``g`` may be x itself."""
    if not _composed(module) or not any(isinstance(part, EfficientBlock) for part in module.modules()):
        return None
    return _in_both_modes(module, _sum)


def proven(block: EfficientBlock, module: nn.Module, channels: int) -> EfficientBlock | str:
    """The block, if its original and its deploy form compute what the module does on a random clip of ``channels``."""
    tensors = [*module.parameters(), *module.buffers()]
    if {id(t) for t in tensors} != {id(t) for t in (*block.parameters(), *block.buffers())}:
        return f"{type(block).__name__} would not hold all of its parameters and buffers"
    if any(tensor.is_meta for tensor in tensors):
        return "its weights are on the meta device, where nothing can be proven"
    shape = (2, channels, *_probe(module))
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=chance, dtype=torch.float64)
    inputs = [x.clone() for _ in range(3)]
    # Copied together: what they share they share afterwards.
    made, vanilla = copy.deepcopy((block, module))
    for part in (made, vanilla):
        part.to("cpu", torch.float64).eval()
    _randomise(vanilla, chance)
    try:
        with torch.no_grad():
            expected = vanilla(inputs[0])
            spec = tensor_spec(made, shape)
            folded, output = made.to_deploy(spec)(frames_to_batch(inputs[1])), made.output(spec)
            results = (made(inputs[2]), batch_to_frames(folded, output.t))
    except (HwbenchError, RuntimeError) as error:
        return f"{type(block).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
    scale = max(float(expected.abs().max()), 1.0)
    if output.shape != tuple(expected.shape):
        return f"{type(block).__name__} does not give the same shape"
    if any(y.shape != expected.shape or not float((y - expected).abs().max()) <= _TOLERANCE * scale for y in results):
        return f"{type(block).__name__} does not compute the same"
    if not all(torch.equal(one, x) for one in inputs):
        return "it changes its input in place, which others may read"
    return block


def _probe(module: nn.Module) -> tuple[int, int, int]:
    """(T, H, W) of a clip on which every kernel has an inside and both edges."""
    reach = [0, 0, 0]
    for part in module.modules():
        if isinstance(part, nn.Conv3d | nn.AvgPool3d | nn.MaxPool3d):
            sizes = (part.kernel_size, getattr(part, "dilation", 1))
            kernel, dilation = ((v, v, v) if isinstance(v, int) else v for v in sizes)
            reach = [r + d * (k - 1) for r, k, d in zip(reach, kernel, dilation)]
    t, h, w = (1 + r + room for r, room in zip(reach, _PROBE_ROOM))
    return t, h, w


def _randomise(module: nn.Module, chance: torch.Generator) -> None:
    """Weights and statistics that hide nothing; a fresh or zeroed normalisation would pass for none."""
    with torch.no_grad():
        for parameter in module.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
            parameter.normal_(std=fan_in**-0.5, generator=chance)
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_var is not None:
                part.running_var.uniform_(0.5, 2, generator=chance)
                assert part.running_mean is not None
                part.running_mean.normal_(std=0.5, generator=chance)


def _of_geometry(conv: nn.Conv3d) -> ConvBnAct:
    """The block for a geometry by its name, or the general one; its own convolution is on no device."""
    i, o, g, bias = conv.in_channels, conv.out_channels, conv.groups, conv.bias is not None
    k, s, p, d = conv.kernel_size[1], conv.stride[1], int(conv.padding[1]), conv.dilation[1]
    with torch.device("meta"):
        known: Sequence[ConvBnAct] = [
            Conv3dPwBnAct(i, o, bias=bias),
            Conv3d3x3x3DwBnAct(i, s, bias=bias),
            Conv3dTemporalKernel1BnAct(i, o, bias, g, k, s, p, d),
            Conv3d3x1x1BnAct(i, o, groups=g, bias=bias),
            Conv3d5x1x1BnAct(i, o, groups=g, bias=bias),
        ]
        return next((block for block in known if _geometry(block.conv) == _geometry(conv)), ConvBnAct(conv, "identity"))


def _geometry(conv: nn.Conv3d) -> tuple[object, ...]:
    sizes = (conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    return (*sizes, conv.groups, conv.in_channels, conv.out_channels, conv.padding_mode, conv.bias is None)


def _wrapped(act: nn.Module) -> Activation:
    """An activation of torch as one of ours, around the same module."""
    made = _ACTIVATIONS[type(act)]()
    made.act = act
    made.training = act.training
    return made


def _follow(training: bool, *modules: nn.Module) -> None:
    """The mode of what is new; modules that were there keep theirs."""
    for module in modules:
        module.training = training


def _composed(module: nn.Module) -> bool:
    """Whether a module has a forward of its own over others."""
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict, EfficientBlock)
    own = not isinstance(module, containers) and not type(module).__module__.startswith("torch.nn.")
    return own and any(True for _ in module.children())


def _in_both_modes(module: nn.Module, read: Callable[[Traced, nn.Module], Answer]) -> Answer:
    """What a pattern reads from the forward, if it is the same in training."""
    try:
        training, evaluation, *_ = trace(module)
    except Untraceable:
        return None
    in_training = read(training, module)
    answer = read(evaluation, module)
    if isinstance(answer, EfficientBlock):
        if not isinstance(in_training, EfficientBlock) or _identity(in_training) != _identity(answer):
            return "its forward is another one in training"
        reason = altered(module) or next((r for r in map(altered, module.modules()) if r is not None), None)
        if reason is not None:
            return reason
        return proven(answer, module, _in_channels(answer))
    return answer


def _identity(block: EfficientBlock) -> tuple[object, ...]:
    """What two blocks that were read from the same layers in the same order have in common."""
    return (str(block), [id(parameter) for parameter in block.parameters()])


def _in_channels(block: EfficientBlock) -> int:
    return next((part.in_channels for part in block.modules() if isinstance(part, nn.Conv3d)), 3)


def _ends(traced: Traced) -> tuple[fx.Node, fx.Node] | None:
    """The only input and the node whose value is given back."""
    inputs = [node for node in traced.graph.nodes if node.op == "placeholder"]
    (output,) = (node for node in traced.graph.nodes if node.op == "output")
    if len(inputs) != 1 or not isinstance(output.args[0], fx.Node):
        return None
    return inputs[0], output.args[0]


def _is(node: fx.Node, functions: Iterable[object]) -> bool:
    return node.op in ("call_function", "call_method") and node.target in functions


def _operands(node: fx.Node, functions: Iterable[object]) -> tuple[fx.Node, fx.Node] | None:
    """The two tensors of a sum or product, which has nothing else."""
    if not _is(node, functions) or len(node.args) != 2 or node.kwargs:
        return None
    a, b = node.args
    return (a, b) if isinstance(a, fx.Node) and isinstance(b, fx.Node) else None


def _gate(traced: Traced, module: nn.Module) -> Answer:
    ends = _ends(traced)
    pair = None if ends is None else _operands(ends[1], _PRODUCTS)
    if ends is None or pair is None or ends[0] not in pair:
        return None
    x, gate = ends[0], pair[0] if pair[1] is ends[0] else pair[1]
    steps: list[fx.Node] = []
    while gate is not x:
        steps.append(gate)
        if not gate.args or not isinstance(gate.args[0], fx.Node) or len(steps) > 5:
            return None
        gate = gate.args[0]
    if len(steps) != 5 or len(x.users) != 2 or len(traced.graph.nodes) != 8:
        return None
    sigmoid, expand, act, reduce, mean = steps
    if not (_sigmoid(traced, sigmoid) and _clip_mean(traced, mean)):
        return "a gate on its input, but not a sigmoid of the mean over time and space"
    convs = [traced.module(node) for node in (reduce, expand)]
    between = _activation(traced, act)
    pointwise = all(isinstance(c, nn.Conv3d) and type(c) is nn.Conv3d and _is_pointwise(c) for c in convs)
    if not pointwise or between is None:
        return "squeeze-excite, but not of two pointwise convolutions with relu, swish or hswish between"
    first, second = convs
    assert isinstance(first, nn.Conv3d)
    assert isinstance(second, nn.Conv3d)
    with torch.device("meta"):
        block = SqueezeExcitation(first.in_channels, first.out_channels, is_3d=True)
    block.se.block = nn.Sequential(first, between.act, second, nn.Sigmoid())
    _follow(module.training, block, block.se, block.se.block, block.se.block[3])
    return block


def _sigmoid(traced: Traced, node: fx.Node) -> bool:
    return type(traced.module(node)) is nn.Sigmoid or (_is(node, _SIGMOIDS) and len(node.args) == 1)


def _clip_mean(traced: Traced, node: fx.Node) -> bool:
    module = traced.module(node)
    if isinstance(module, nn.AdaptiveAvgPool3d):
        return isinstance(pooling(module), EfficientBlock)
    if module is not None:
        return False
    if _is(node, (nn.functional.adaptive_avg_pool3d,)):
        return node.args[1:] in ((1,), ((1, 1, 1),))
    options: dict[str, Any] = dict(zip(("dim", "keepdim"), node.args[1:])) | node.kwargs
    axes = options.pop("dim", None)
    if not _is(node, _MEANS) or options != {"keepdim": True} or not isinstance(axes, tuple | list):
        return False
    return len(axes) == 3 and all(isinstance(axis, int) for axis in axes) and {axis % 5 for axis in axes} == _ALL_AXES


def _is_pointwise(conv: nn.Conv3d) -> bool:
    plain = conv.padding_mode == "zeros" and conv.padding == (0, 0, 0) and altered(conv) is None
    return plain and conv.kernel_size == conv.stride == (1, 1, 1) and conv.groups == 1


def _activation(traced: Traced, node: fx.Node) -> Activation | None:
    """An activation in a forward, as a module or as a function."""
    module = traced.module(node)
    if module is not None:
        return _wrapped(module) if type(module) in _ACTIVATIONS else None
    made = _FUNCTIONS.get(node.target) if node.op in ("call_function", "call_method") else None
    if made is None or len(node.args) != 1 or not set(node.kwargs) <= {"inplace"}:
        return None
    block = made()
    block.act.inplace = node.target in _IN_PLACE or node.kwargs.get("inplace") is True  # type: ignore[assignment]
    return block


def _sum(traced: Traced, module: nn.Module) -> Answer:
    ends = _ends(traced)
    if ends is None:
        return None
    x, last = ends
    act = _activation(traced, last)
    pair = _operands(last, _SUMS)
    seen = 3  # input, sum, output
    if act is not None and pair is None:
        before = last.args[0]
        assert isinstance(before, fx.Node)
        pair, seen = _operands(before, _SUMS), 4
        if len(before.users) != 1:
            return None
    if pair is None:
        return None
    paths = [_path(traced, end, x) for end in pair]
    reasons = [path for path in paths if isinstance(path, str)]
    if reasons:
        return f"a residual sum, but {reasons[0]}"
    shortcut, branch = sorted((path for path in paths if not isinstance(path, str)), key=_count)
    if len(traced.graph.nodes) != seen + len(branch) + len(shortcut):
        return "a residual sum, but its forward does more than that"
    first, second = _chain(module, branch), _chain(module, shortcut)
    if first is None:
        return None
    block = ResidualBlock(first, second, act)
    _follow(module.training, block, block.add)
    return block


_Steps = list[tuple[str, EfficientBlock | None]]


def _path(traced: Traced, node: fx.Node, x: fx.Node) -> _Steps | str:
    """The blocks from the input to a node, or what stands between; None for a layer that does nothing."""
    steps: _Steps = []
    while node is not x:
        module, act = traced.module(node), _activation(traced, node)
        if len(node.users) != 1:
            return f"{node.name} is used by others, too"
        if type(module) is nn.Identity:
            steps.append(("", None))
        elif isinstance(module, EfficientBlock):
            steps.append((str(node.target), module))
        elif act is not None:
            steps.append((node.name, act))
        else:
            what = type(module).__name__ if module is not None else str(node.target)
            return f"{node.name} ({what}) is no block"
        before = node.args[0]
        assert isinstance(before, fx.Node)
        node = before
    return steps[::-1]


def _count(steps: _Steps) -> int:
    return sum(block is not None for _, block in steps)


def _chain(module: nn.Module, steps: _Steps) -> EfficientBlock | None:
    found = [(name.replace(".", "_"), block) for name, block in steps if block is not None]
    if len(found) < 2:
        return found[0][1] if found else None
    made = Chain({f"{index}_{name}": block for index, (name, block) in enumerate(found)})
    _follow(module.training, made)
    return made
