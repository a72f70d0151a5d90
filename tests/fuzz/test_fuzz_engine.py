"""The engine itself, with faults that it must find."""

import json
import time

from hwbench.errors import InvalidValue
from hwbench.testing.fuzz import FuzzTarget, Source, attempt, fuzz, read_corpus


def strict(text: str) -> None:
    """Refuses with an error of ours, but for one thing that it forgot."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidValue("no JSON") from None
    if isinstance(values, dict) and isinstance(values.get("count"), int):
        float(values["count"])


RECORDED = ['{"count": 3, "name": "a"}', '{"count": 12, "list": [1, 2]}']


def test_a_fault_is_found_once_and_made_short():
    report = fuzz([FuzzTarget("strict", strict, RECORDED)], seconds=60, seed=0, most=500)
    assert [finding.error.partition(":")[0] for finding in report.findings] == ["OverflowError"]
    (finding,) = report.findings
    assert len(finding.text) < 340
    assert report.inputs["strict"] == 500
    assert 0 < report.accepted["strict"] < 500
    assert "with seed 0" in str(report)


def test_a_finding_can_be_made_again_and_becomes_a_line_of_a_corpus(tmp_path):
    target = FuzzTarget("strict", strict, RECORDED)
    (finding,) = fuzz([target], seconds=60, seed=0, most=500).findings
    assert attempt(target, Source(target, 0).text(finding.number)).error == finding.error
    (again,) = fuzz([target], seconds=60, seed=0, first=finding.number, most=1).findings
    assert (again.target, again.number, again.place) == (finding.target, finding.number, finding.place)
    path = tmp_path / "corpus.jsonl"
    path.write_text(finding.line + "\n")
    assert read_corpus(path) == [("strict", finding.text)]
    assert read_corpus(tmp_path / "none.jsonl") == []


def test_the_same_seed_gives_the_same_texts():
    target = FuzzTarget("strict", strict, RECORDED)
    first, second, other = ([Source(target, seed).text(n) for n in range(1, 50)] for seed in (1, 1, 2))
    assert first == second != other
    assert first[:2] == RECORDED


def test_what_takes_too_long_is_a_finding():
    def endless(text: str) -> None:
        while text:
            pass

    report = fuzz([FuzzTarget("endless", endless, ["a"])], seconds=60, seed=0, most=1, limit_s=0.1)
    assert [finding.error.partition(":")[0] for finding in report.findings] == ["TooSlow"]


def test_what_a_target_may_raise_is_said_by_it():
    def refuse(text: str) -> None:
        raise ValueError(text)

    assert not fuzz([FuzzTarget("a", refuse, ["x"], (ValueError,))], seconds=60, most=50).findings
    assert fuzz([FuzzTarget("a", refuse, ["x"], ())], seconds=60, most=50).findings


def test_targets_have_equal_time_whatever_they_take():
    quick, slow = [], []

    def sleepless(text: str) -> None:
        slow.append(time.sleep(0.02))

    both = [FuzzTarget("quick", quick.append, ["x"]), FuzzTarget("slow", sleepless, ["x"])]
    report = fuzz(both, seconds=60, most=200, seed=0)
    assert report.inputs["quick"] > report.inputs["slow"] > 0
