"""The engine itself, with faults that it must find."""

import json

import pytest

from hwbench.errors import InvalidValue
from hwbench.testing.fuzz import Source, Target, attempt, fuzz, read_corpus


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
    report = fuzz([Target("strict", strict, RECORDED)], seconds=60, seed=3, most=3000)
    assert [finding.error.partition(":")[0] for finding in report.findings] == ["OverflowError"]
    (finding,) = report.findings
    assert len(finding.text) < 340
    assert report.inputs["strict"] == 3000
    assert 0 < report.accepted["strict"] < 3000
    assert "with seed 3" in str(report)


def test_a_finding_can_be_made_again_and_becomes_a_line_of_a_corpus(tmp_path):
    target = Target("strict", strict, RECORDED)
    (finding,) = fuzz([target], seconds=60, seed=3, most=3000).findings
    assert attempt(target, Source(target, 3).text(finding.number)).error == finding.error
    assert fuzz([target], seconds=60, seed=3, first=finding.number, most=1).findings == [finding]
    path = tmp_path / "corpus.jsonl"
    path.write_text(finding.line + "\n")
    assert read_corpus(path) == [("strict", finding.text)]
    assert read_corpus(tmp_path / "none.jsonl") == []


def test_the_same_seed_gives_the_same_texts():
    target = Target("strict", strict, RECORDED)
    first, second, other = ([Source(target, seed).text(n) for n in range(1, 50)] for seed in (1, 1, 2))
    assert first == second != other
    assert first[:2] == RECORDED


def test_what_takes_too_long_is_a_finding():
    def endless(text: str) -> None:
        while text:
            pass

    report = fuzz([Target("endless", endless, ["a"])], seconds=60, seed=0, most=1, limit_s=0.1)
    assert [finding.error.partition(":")[0] for finding in report.findings] == ["TooSlow"]


def test_what_a_target_may_raise_is_said_by_it():
    def refuse(text: str) -> None:
        raise ValueError(text)

    assert not fuzz([Target("a", refuse, ["x"], (ValueError,))], seconds=60, most=50).findings
    assert fuzz([Target("a", refuse, ["x"], ())], seconds=60, most=50).findings


@pytest.mark.parametrize("seed", range(3))
def test_targets_have_equal_time_whatever_they_take(seed):
    quick, slow = [], []

    def sleepless(text: str) -> None:
        slow.append(sum(range(20_000)))

    report = fuzz(
        [Target("quick", quick.append, ["x"]), Target("slow", sleepless, ["x"])], seconds=60, most=300, seed=seed
    )
    assert report.inputs["quick"] > report.inputs["slow"] > 0
