"""The few fields of a ``.pte`` file that are read without the exporter are those that its own reader gives."""

from pathlib import Path

import numpy as np
import pytest

from hwbench.runtimes.executorch.quiet import quiet
from hwbench.runtimes.pte_model import PteLayout, TensorLayout, pte_layout

PROGRAMS = sorted((Path(__file__).resolve().parents[1] / "golden").rglob("*.pte"))


def by_its_own_reader(path: Path) -> PteLayout:
    with quiet():
        from executorch.exir._serialize._program import deserialize_pte_binary

        program = deserialize_pte_binary(path.read_bytes()).program
    (plan,) = (plan for plan in program.execution_plan if plan.name == "forward")

    def tensors(indices: list[int]) -> tuple:
        values = [plan.values[index].val for index in indices]
        return tuple(
            TensorLayout(tuple(v.sizes), tuple(map(int, v.dim_order)), int(v.scalar_type))
            for v in values
            if hasattr(v, "dim_order")
        )

    return PteLayout(tensors(plan.inputs), tensors(plan.outputs))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_shapes_and_orders_are_those_of_its_own_reader(path: Path) -> None:
    assert pte_layout(path) == by_its_own_reader(path)
    assert pte_layout(path).inputs


def test_types_of_numbers_are_those_of_numpy_and_others_are_none() -> None:
    known = {6: "<f4", 5: "<f2", 1: "|i1", 4: None, 0: None}
    found = {scalar: TensorLayout((1,), (0,), scalar).dtype for scalar in known}
    assert {scalar: dtype and dtype.str for scalar, dtype in found.items()} == known


@pytest.mark.parametrize("path", PROGRAMS[:1], ids=lambda path: path.stem)
def test_a_damaged_file_is_an_error_with_its_name(path: Path, tmp_path: Path) -> None:
    whole, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    damaged = tmp_path / "damaged.pte"
    for content in (b"", b"text", whole[:6], whole[:100], bytes(len(whole))):
        damaged.write_bytes(content)
        with pytest.raises(ValueError, match=r"damaged\.pte"):
            pte_layout(damaged)
    for _ in range(2000):
        content = bytearray(whole)
        for place in rng.integers(len(whole), size=8):
            content[place] = rng.integers(256)
        damaged.write_bytes(content)
        try:
            pte_layout(damaged)
        except ValueError as error:
            assert "damaged.pte" in str(error)  # noqa: PT017
            refused += 1
    assert refused
