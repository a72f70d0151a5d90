"""Which operation of a file a reported time belongs to."""

import pytest

from hwbench.measure.attribution import block_of, place
from hwbench.runtimes.pte_record import GraphNode, ModuleCall


def node(kind, *inputs, path="net.a", clamped=False, kinds=("Block",)):
    names = path.split(".")
    paths = [".".join(names[: n + 1]) for n in range(len(names))]
    calls = tuple(ModuleCall(one, kind) for one, kind in zip(paths, ("Net", *kinds), strict=False))
    return GraphNode(kind, (1, 2), inputs, clamped, calls if path else ())


def places(names, *graph):
    found = place(names, graph)
    return None if found is None else [one.candidates for one in found]


def test_operators_are_found_in_order_and_joined_ones_are_passed_over():
    graph = [node("StaticTranspose"), node("Conv2d", 0, clamped=True), node("StaticReshape", 1), node("Add", 2, 0)]
    names = ["Transpose (ND, X32)", "Fully Connected (NC, F32) GEMM", "Add (ND)"]
    assert places(names, *graph) == [(0,), (1,), (3,)]
    assert places([*names[:2], "Static Reshape (NC)", names[2]], *graph) == [(0,), (1,), (2,), (3,)]


def test_bounds_of_a_sum_are_an_operator_of_their_own_and_belong_to_it():
    graph = [node("Conv2d"), node("Conv2d", 0), node("Add", 0, 1, clamped=True), node("Conv2d", 2)]
    names = ["Convolution", "Convolution", "Add (ND)", "Clamp (NC)", "Convolution"]
    assert places(names, *graph) == [(0,), (1,), (2,), (2,), (3,)]


def test_what_several_operations_can_be_is_not_guessed():
    graph = [node("Conv2d"), node("StaticReshape", 0), node("StaticReshape", 1), node("Conv2d", 2)]
    assert places(["Convolution", "Static Reshape", "Convolution"], *graph) == [(0,), (1, 2), (3,)]
    found = place(["Convolution", "Static Reshape", "Convolution"], graph)
    assert [one.node for one in found] == [0, None, 3]


def test_a_look_up_stands_for_a_product_with_a_function_of_the_same_value():
    graph = [node("Conv2d"), node("Convert", 0), node("Sigmoid", 1), node("Convert", 2), node("Multiply", 0, 3)]
    assert places(["Convolution", "Invalid Unary Op"], *graph) == [(0,), (2,)]
    other = [node("Conv2d"), node("Conv2d"), node("Sigmoid", 1), node("Multiply", 0, 2)]
    assert places(["Convolution", "Convolution", "Invalid Unary Op"], *other) is None  # of two values: it must run


@pytest.mark.parametrize(
    "names",
    [
        ["Convolution"],  # one is missing
        ["Convolution", "Convolution", "Convolution"],  # one too many
        ["Convolution", "Add (ND)"],
        [],
    ],
)
def test_reports_that_are_not_of_the_graph_are_attributed_to_nothing(names):
    found = place(names, [node("Conv2d"), node("DepthwiseConv2d", 0)])
    assert found is None or not found


def test_a_graph_of_thousands_of_operations_takes_no_time():
    graph = [node("Conv2d"), *(node(kind, 0) for _ in range(2000) for kind in ("StaticReshape", "Slice"))]
    assert place(["Convolution"], graph) is not None


def test_a_block_is_the_outermost_module_that_is_more_than_a_list():
    lists = ("Sequential", "Bottleneck", "Sequential", "Conv2d")
    graph = [
        node("Conv2d", path="", kinds=()),
        GraphNode("Conv2d", (), (), False, (ModuleCall("s1", "Sequential"), ModuleCall("s1.conv", "Conv2d"))),
        GraphNode("Conv2d", (), (), False, (
            ModuleCall("s1", "Sequential"), ModuleCall("s1.time", "TemporalConv"), ModuleCall("s1.time.conv", "Conv2d")
        )),
        GraphNode("Conv2d", (), (), False, tuple(
            ModuleCall(path, kind)
            for path, kind in zip(("s2", "s2.res0", "s2.res0.layers", "s2.res0.layers.a"), lists, strict=True)
        )),
        GraphNode("Add", (), (), False, (ModuleCall("s2", "Sequential"), ModuleCall("s2.res0", "Bottleneck"))),
        GraphNode("Conv2d", (), (), False, (ModuleCall("head", "Head"), ModuleCall("head.conv", "Conv2d"))),
        GraphNode("Conv2d", (), (), False, (ModuleCall("last", "Conv2d"),)),
    ]  # fmt: skip
    assert block_of(graph) == (None, "s1", "s1", "s2.res0", "s2.res0", "head", "last")


def test_a_wrapper_around_the_network_is_no_part_of_the_names():
    kinds = ("Halved", "Sequential", "Block", "Conv2d")
    names = ("inner.s1.a.conv", "inner.s1.b.conv", "inner.s2.a.conv")
    graph = [
        GraphNode("Add", (), (), False, tuple(
            ModuleCall(".".join(name.split(".")[:depth]), kind)
            for depth, kind in enumerate(kinds, start=1)
        ))
        for name in names
    ]  # fmt: skip
    own = GraphNode("StaticSlice", (), (), False, (ModuleCall("inner", "Continued"),))
    assert block_of([*graph, own]) == ("s1.a", "s1.b", "s2.a", None)
    assert block_of(graph[:1]) == ("a",)


def test_a_stream_is_named_as_the_network_it_streams():
    def calls(*pairs: tuple[str, str]) -> GraphNode:
        return GraphNode("Add", (), (), False, tuple(ModuleCall(path, kind) for path, kind in pairs))

    graph = [
        calls(("count", "FrameCount")),
        calls(
            ("step", "StreamChain"),
            ("step.s2", "StreamChain"),
            ("step.s2.res0", "ResidualStep"),
            ("step.s2.res0.a", "Conv2d"),
        ),
        calls(
            ("step", "StreamChain"),
            ("step.s3", "StreamChain"),
            ("step.s3.res0", "ResidualStep"),
            ("step.s3.res0.a", "Conv2d"),
        ),
        calls(("step", "StreamChain"), ("step.head", "HeadStep"), ("step.head.a", "Conv2d")),
    ]
    assert block_of(graph) == ("count", "s2.res0", "s3.res0", "head")
