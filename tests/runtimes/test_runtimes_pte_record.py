"""What a .pte file tells about the operations of its delegate."""

import zlib
from pathlib import Path

import pytest

from hwbench.runtimes.pte_record import GraphNode, ModuleCall, decode, encode, read_record

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "pte" / "small-1.5.1.pte"
OUTER = ModuleCall("s1", "Sequential")
NODES = (
    GraphNode("StaticTranspose", (1, 3, 8, 8), (), False, ()),
    GraphNode("Conv2d", (1, 4, 8, 8), (0,), True, (OUTER, ModuleCall("s1.a", "Conv2d"))),
    GraphNode("Add", (), (0, 1), False, (OUTER,)),
)


def test_a_record_comes_back_as_it_was_and_is_the_same_each_time():
    assert decode(encode(NODES)) == NODES
    assert encode(NODES) == encode(list(NODES))


def test_a_file_of_another_program_tells_nothing():
    assert read_record(GOLDEN) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no zlib",
        encode(NODES)[:-9],
        zlib.compress(b"[]"),
        zlib.compress(b'{"format":2,"modules":[],"nodes":[]}'),
        zlib.compress(b'{"format":1,"modules":[["a","B",0]],"nodes":[]}'),
        zlib.compress(b'{"format":1,"modules":[],"nodes":[["Add",[],[0],0,-1]]}'),
        zlib.compress(b'{"format":1,"modules":[],"nodes":[["Add",[],[],0,-2]]}'),
        zlib.compress(b"[" * 100_000),
    ],
)
def test_a_damaged_record_is_refused_as_such(data):
    with pytest.raises(ValueError, match=r"record|JSON|Expecting"):
        decode(data)


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    path = tmp_path / "cut.pte"
    path.write_bytes(GOLDEN.read_bytes()[:60])
    with pytest.raises(ValueError, match="damaged"):
        read_record(path)
