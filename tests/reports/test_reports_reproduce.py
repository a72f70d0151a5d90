"""The commands of a page are none that hwbench refuses, and make the page again."""

import re
import shlex

import pytest

from hwbench.reports import gather, page
from hwbench.runtimes import get
from hwbench.specs import Precision


def with_target(stored, target, precision):
    """The study, as if it had measured on another target."""
    stored(lambda values: values["settings"].update(target=target, precision=precision))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_study_of_a_runtime_without_int8_is_not_asked_for_it(workspace, stored, parse, precision):
    with_target(stored, "local/torch-2.14.0/t1", precision)
    report = gather(workspace, "mine")
    assert {*report.tables} == {Precision.FP32, Precision.parse(precision)}
    assert not any("int8" in reason for reason in report.missing())
    shown = parse(page(report))
    assert "the torch runtime builds no int8, so fp32 and int8 cannot be compared on it" in shown.text
    lines = [line for line in {*shown.commands, *shown.codes} if line.startswith("hwbench ")]
    asked = [re.search(r"--precision (\w+).* --runtime (\w+)", line) for line in lines]
    assert {one[2] for one in asked if one} > {"torch"}
    for one in filter(None, asked):
        get(one[2]).require_precision(Precision.parse(one[1]))


def test_a_file_is_measured_by_its_own_runtime(workspace, stored, make_export, parse):
    with_target(stored, "local/torch-2.14.0/t1", "fp32")
    folder = make_export("fp32", runtime="executorch")
    shown = parse(page(gather(workspace, "mine", [folder])))
    words = ["hwbench", "bench", str(folder / "model.pte"), "--device", "local", "--threads", "1"]
    assert words in [shlex.split(line) for line in shown.commands]
