"""Passes over the graph inside the XNNPACK delegate, one file each.

Each is a function that changes a ``torch.fx.GraphModule`` in the edge dialect and returns how many places it changed;
each leaves what the graph computes as it is. ``inject`` puts them into the delegate's own list of passes.

    casts            conversions between fp32 and fp16 are XNNPACK's; no pass, what the delegate takes and writes
    free_reshape     reshapes and permutations that move nothing in NHWC memory become one; before layouts are chosen
    implicit_moves   a move is done in int8 where both its ends are, else in fp32; after free_reshape
    needed           whether a pass of the engine has anything to do: those that have not are left out
    shared_copies    one change of layout for all who read the same int8 values; after layouts are chosen
"""
