"""Two fuzzers: everything that a device can say, and every text file that is read.

Both run for ten seconds in ``make test`` and for an hour in ``make test-long``; ``HWBENCH_FUZZ_SECONDS`` and
``HWBENCH_FUZZ_SEED`` choose otherwise. A finding prints its line for ``corpus.jsonl``, which is a test from then on.
"""

import os
from pathlib import Path

import device_targets
import file_targets
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hwbench.testing.fuzz import attempt, fuzz, read_corpus

CORPUS = Path(__file__).with_name("corpus.jsonl")
KINDS = {"device": device_targets.targets, "file": file_targets.targets}
SHORT, LONG = 5.0, 3600.0
SECONDS = float(os.environ.get("HWBENCH_FUZZ_SECONDS", "0"))
SEED = int(os.environ["HWBENCH_FUZZ_SEED"]) if "HWBENCH_FUZZ_SEED" in os.environ else None
NAMES = {
    "device": (
        *("runner-line", "runner-campaign", "runner-without-sentinel", "runner-ends-badly", "runner-check"),
        *(
            "runner-profile",
            "executor-runner",
            "probe",
            "state",
            "energy",
            "examine",
            "busy",
            "adb-devices",
            "knobs",
            "held",
        ),
        *("board", "supervisor", "adb-marks", "depot"),
    ),
    "file": (
        *("device.toml", "space.toml", "model.toml", "table.csv", "manifest.json", "manifest-report", "manifest-bench"),
        *("checkpoint-meta", "checkpoint-bytes", "result.json", "study-best", "study-journal", "knob-journal", "lease"),
        *(
            "known_hosts",
            "build-cache",
            "lab-record",
            "video-list",
            "readings",
            "flow-note",
            "course.jsonl",
            "data-set",
        ),
    ),
}
# Texts of Hypothesis for each target in each run; the changed texts find what these do not, and the other way round.
EXAMPLES = 25
# What JSON and TOML are made of, and what goes wrong with it.
WORDS = st.sampled_from(("{", "}", "[", "]", ":", ",", '"', "=", "\n", "\\ud800", "1e999", 400 * "9", "NaN", "== "))
TEXTS = st.one_of(st.text(st.characters(), max_size=200), st.lists(WORDS, max_size=60).map("".join))


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    made = {kind: make(tmp_path_factory.mktemp(kind)) for kind, make in KINDS.items()}
    return {kind: {target.name: target for target in found} for kind, found in made.items()}


def test_every_target_is_named(targets):
    assert {kind: tuple(found) for kind, found in targets.items()} == NAMES


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seconds", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
def test_19_13_no_exception_but_ours(targets, kind, seconds):
    report = fuzz(list(targets[kind].values()), seconds=SECONDS or seconds, seed=SEED)
    print(report)
    assert not report.findings, report


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names])
@settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(text=TEXTS)
def test_19_13_texts_of_hypothesis(targets, kind, name, text):
    failure = attempt(targets[kind][name], text)
    assert getattr(failure, "error", None) is None, failure


def test_19_13_what_was_found_before(targets):
    known = {name: target for found in targets.values() for name, target in found.items()}
    corpus = read_corpus(CORPUS)
    assert corpus
    wrong = [(name, failure) for name, text in corpus if hasattr(failure := attempt(known[name], text), "error")]
    assert wrong == []


def test_every_recorded_text_is_read(targets):
    """A target that refuses what was recorded would test nothing but its first check."""
    refusing = {
        *("adb-devices", "board", "manifest.json", "manifest-bench", "checkpoint-bytes"),  # several; no model beside it
    }
    wrong = [
        (target.name, at)
        for found in targets.values()
        for target in found.values()
        for at, text in enumerate(target.seeds)
        if target.name not in refusing and attempt(target, text) is not None
    ]
    assert wrong == []
