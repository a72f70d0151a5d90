"""The commands of a page are none that hwbench refuses, and make the page again."""

import re
import shlex
from dataclasses import replace

import pytest

from hwbench.reports import commands, gather, page
from hwbench.reports.race_advice import race_advice
from hwbench.reports.result import read_result
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


def trials_of_the_page(workspace) -> int:
    asked = re.search(r"--trials (\d+) ", commands.search(read_result(workspace, "mine")))
    return int(asked[1])


def test_the_command_of_a_study_whose_networks_were_replaced_lets_it_be(workspace, search_again):
    first = search_again(factor=1.03)
    assert first.trials > trials_of_the_page(workspace) == 16
    for _ in range(2):
        again = search_again(trials=trials_of_the_page(workspace), factor=1.03)
        assert (again.trials, again.history) == (first.trials, first.history)
    fewer = search_again(trials=8, factor=1.03)
    assert (fewer.trials, trials_of_the_page(workspace)) == (first.trials, 16)


def test_the_command_of_a_result_of_before_leaves_out_the_networks_that_took_the_place_of_others(workspace, stored):
    stored(lambda values: values["course"].pop("trials", None))
    assert trials_of_the_page(workspace) == 16
    stored(lambda values: values.update(trials=19, measured_rows={"replaced": 3}))
    assert trials_of_the_page(workspace) == 16


@pytest.mark.parametrize(("measured", "most"), [({"measured_rows": {"replaced": 1, "limit": 7}}, 7), ({}, 0)])
def test_the_command_measures_as_many_filled_rows_as_the_study_could(workspace, stored, measured, most):
    assert "--measure-rows" not in commands.search(read_result(workspace, "mine"))  # it left rows out
    stored(lambda values: (values["settings"].update(missing_rows="interpolated"), values.update(measured)))
    assert f" --interpolate --measure-rows {most} " in commands.search(read_result(workspace, "mine"))


@pytest.mark.parametrize("confidence", [0.9, 0.9512345, 0.9999999])
def test_the_command_asks_for_the_confidence_of_the_study(workspace, stored, confidence):
    stored(lambda values: values["settings"].update(confidence=confidence))
    result = read_result(workspace, "mine")
    words = shlex.split(commands.search(result))
    typed = float(words[words.index("--confidence") + 1])
    assert not replace(result.settings, confidence=typed).differences(result.settings.as_dict(), "mine")


def of_one_network(values, feasible):
    """The study, as if its best network were the only one that was tried, and so many were within the budget."""
    best = values["best"]
    values.update(feasible=feasible, trials=1, history=[best], measured=[best], pareto=[best])
    values["course"].update(trials=1)


def test_a_study_that_tried_one_network_is_advised_to_try_more(workspace, stored, parse):
    stored(lambda values: of_one_network(values, feasible=20))
    shown = parse(page(gather(workspace, "mine")))
    assert "one network that was tried is within the budget, which is no race; try more" in shown.text
    line = re.search(r"hwbench search .*? --finalists \d+ .*?--study mine", race_advice(read_result(workspace, "mine")))
    words = shlex.split(line[0])
    asked = {name: words[words.index(name) + 1] for name in ("--trials", "--finalists", "--data")}
    assert asked == {"--trials": "16", "--finalists": "8", "--data": "synthetic"}


def test_a_study_whose_budget_one_network_keeps_is_not_advised_to_let_it_race(workspace, stored, parse):
    stored(lambda values: of_one_network(values, feasible=1))
    shown = parse(page(gather(workspace, "mine")))
    assert shown.text.count("no other network is within the budget, so there is no race") >= 2
    assert not any("--finalists" in line for line in (shown.text, *shown.commands, *shown.codes))


def test_networks_that_were_measured_beyond_the_budget_do_not_race(workspace, stored):
    def slow(values):
        best, other = values["best"], next(one for one in values["measured"] if one != values["best"])
        other["measured_ms"] = dict.fromkeys(other["measured_ms"], 1e3)
        values.update(feasible=2, trials=2, history=[best, other], measured=[best, other])

    assert race_advice(read_result(workspace, "mine")).startswith("let the best ones race: hwbench search ")
    stored(slow)
    assert race_advice(read_result(workspace, "mine")).startswith("no other network is within the budget")
