"""Fuzzing of whatever reads text from elsewhere: a parser of a device's answers, of a runner's lines, of a file.

    target = FuzzTarget("my-runtime", parse_line, seeds=recorded_lines)
    report = fuzz([target], seconds=10)
    assert not report.findings, report

An input is a recorded text that was changed in a few places: numbers that overflow, texts that no database takes,
lines that are lost or repeated, JSON that is nested too deep. A target may raise the errors that it is expected to
raise, which are those of hwbench unless it says otherwise; any other exception is a finding, and so is an input that
takes longer than ``LIMIT_S`` of processor time.

Everything follows from the seed, which the report names: ``Source.text`` makes the same input again. A finding is
shortened as far as it goes; its line is added to a file of such lines (``read_corpus``), which is a test from then on.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import re
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from hwbench.errors import HwbenchError

# Of processor time; the longest recorded text takes some milliseconds.
LIMIT_S = 10.0
# Shortening a finding ends then: what is left is short enough to be read.
SHORTEN_S = 5.0
# Changes of one text: most faults need one, some the meeting of two.
MOST_CHANGES = 6
# Longer texts are cut: they find no more, and take the time of many.
MAX_CHARS = 1 << 16

NUMBERS = (
    "0", "-0", "-1", "1", "2", "0.0", "-0.5", "1e400", "-1e400", "1e-400", "NaN", "Infinity", "-Infinity", "nan", "inf",
    "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "18446744073709551616", "1" + 400 * "0", 5000 * "9", "0x10", "1_000", "+5", "007", "1.2.3", "1,5", "²", "٣", "½",
    "0-99999999999", "3-1", "0," * 5000 + "x", "true", "null", '""',
)  # fmt: skip
TEXTS = (
    "", " ", "\0", "\x1b[2J\x1b]0;title\x07", "\r", "\t", "\n", "\n\n", "\x0b", "\x1c", "\x85", "\u2028", "\u202e",
    "\ud800", "\udfff", "\ufeff", "é", "𝔘", '=HYPERLINK("http://a.b",1)', "+1", "-1", "@A1", "'", '"', "\\", "\\ud800",
    "<script>alert(1)</script>", "%s%n", "../../../etc/passwd", "/dev/zero", "~", "== ", "== uname", ": ", "=", ",",
    ";", "{", "}", "[", "]", "[[", 3000 * "[", 3000 * '{"a":', 3000 * "(", 5000 * "A", "-", "--", "#", "sentinel", "0",
)  # fmt: skip


@dataclass(frozen=True)
class FuzzTarget:
    """Something that reads text.

    Args:
        name: Unique in a corpus.
        run: Reads a text; what it returns may be anything. It should also do what is done with a text that reads, such
            as storing it.
        seeds: Texts as they were recorded, at least one.
        expected: What it may raise.
    """

    name: str
    run: Callable[[str], object]
    seeds: Sequence[str]
    expected: tuple[type[Exception], ...] = (HwbenchError,)


@dataclass(frozen=True)
class FuzzFinding:
    """A text that a target fails on, shortened; ``number`` and the seed of the report make the text as it was."""

    target: str
    text: str
    error: str
    place: str
    number: int

    @property
    def line(self) -> str:
        """For a corpus."""
        return json.dumps(
            {"target": self.target, "text": self.text, "was": f"{self.error} at {self.place}, input {self.number}"}
        )


@dataclass
class FuzzReport:
    """What came of it, by target: inputs, and how many of them read."""

    seed: int
    seconds: float = 0.0
    inputs: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    findings: list[FuzzFinding] = field(default_factory=list)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count} ({self.accepted[name]} read)" for name, count in self.inputs.items())
        total = f"{self.inputs.total()} inputs in {self.seconds:.0f} s with seed {self.seed}"
        lines = "".join(f"\n  {one.line}" for one in self.findings)
        return f"{total}, {len(self.findings)} findings: {counts}{lines}"


class TooSlow(BaseException):
    """An input took longer than ``LIMIT_S``; no parser catches it by accident."""


@dataclass(frozen=True)
class Source:
    """The texts of a target, by number."""

    target: FuzzTarget
    seed: int

    def text(self, number: int) -> str:
        """The input with this number, from 1 on; the seeds themselves come first."""
        if number <= len(self.target.seeds):
            return self.target.seeds[number - 1]
        return Changes(random.Random(f"{self.seed} {self.target.name} {number}"), self.target.seeds).text()


def fuzz(
    targets: Sequence[FuzzTarget],
    *,
    seconds: float,
    seed: int | None = None,
    first: int = 1,
    most: int | None = None,
    limit_s: float = LIMIT_S,
) -> FuzzReport:
    """Gives changed texts to all targets, each for as long as the others, and reports what they raise: each fault once.

    Args:
        targets: What reads; their names are unique.
        seconds: How long.
        seed: Default: another one each time; the report names it.
        first: Number of the first input of each target.
        most: At most so many inputs in all.
        limit_s: Processor time that one input may take.
    """
    report = FuzzReport(int.from_bytes(os.urandom(4), "big") if seed is None else seed)
    sources = [Source(target, report.seed) for target in targets]
    # Who has had the least time is next; all begin with none.
    waiting = [(0.0, at) for at in range(len(sources))]
    started, seen = time.monotonic(), set()
    with _alarm():
        while (now := time.monotonic()) - started < seconds and report.inputs.total() != most:
            used, at = heapq.heappop(waiting)
            target, name = sources[at].target, sources[at].target.name
            number = first + report.inputs[name]
            failure = attempt(target, text := sources[at].text(number), limit_s)
            report.inputs[name] += 1
            report.accepted[name] += failure is None
            heapq.heappush(waiting, (used + time.monotonic() - now, at))
            if isinstance(failure, _Wrong) and (name, failure.kind) not in seen:
                seen.add((name, failure.kind))
                short = shortened(target, text, failure, limit_s)
                report.findings.append(FuzzFinding(name, short, failure.error, failure.place, number))
    report.seconds = time.monotonic() - started
    return report


@dataclass(frozen=True)
class _Refused:
    """The target raised what it may raise."""


@dataclass(frozen=True)
class _Wrong:
    kind: str
    error: str
    place: str


def attempt(target: FuzzTarget, text: str, limit_s: float = LIMIT_S) -> _Refused | _Wrong | None:
    """What a target makes of a text: None where it reads it."""
    in_time = threading.current_thread() is threading.main_thread()
    try:
        if in_time:
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
        try:
            target.run(text)
        finally:
            if in_time:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except target.expected:
        return _Refused()
    except (Exception, TooSlow) as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [one for one in frames if "hwbench" in one.filename and one.filename != __file__]
        last = (ours or frames)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        return _Wrong(f"{type(error).__name__} {place}", f"{type(error).__name__}: {str(error)[:200]}", place)
    return None


def shortened(target: FuzzTarget, text: str, failure: _Wrong, limit_s: float = LIMIT_S) -> str:
    """The shortest text found in ``SHORTEN_S`` that fails in the same way, by leaving parts out."""

    def fails(shorter: str) -> bool:
        now = attempt(target, shorter, limit_s)
        return isinstance(now, _Wrong) and now.kind == failure.kind

    ends = time.monotonic() + SHORTEN_S
    size = len(text) // 2
    while size and time.monotonic() < ends:
        at = 0
        while at < len(text) and time.monotonic() < ends:
            shorter = text[:at] + text[at + size :]
            if fails(shorter):
                text = shorter
            else:
                at += size
        size //= 2
    return text


def read_corpus(path: Path) -> list[tuple[str, str]]:
    """Target and text of every line of a file of findings; an empty list where there is none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = [json.loads(line) for line in lines if line.strip()]
    return [(one["target"], one["text"]) for one in found]


class Changes:
    """Changed texts.

    Args:
        chance: Where changes come from.
        seeds: Texts to change.
    """

    def __init__(self, chance: random.Random, seeds: Sequence[str]) -> None:
        self._chance = chance
        self._seeds = seeds
        self._kinds = (
            self._number, self._number, self._word, self._json, self._json, self._json, self._insert, self._remove,
            self._repeat, self._cut, self._splice, self._line, self._character,
        )  # fmt: skip

    def text(self) -> str:
        """One text."""
        text = self._chance.choice(self._seeds)
        for _ in range(self._chance.randint(1, MOST_CHANGES)):
            text = self._chance.choice(self._kinds)(text)[:MAX_CHARS]
        return text

    def _number(self, text: str) -> str:
        return self._replaced(r"-?[0-9][0-9.]*", text, self._chance.choice(NUMBERS))

    def _word(self, text: str) -> str:
        return self._replaced(r"[^\s\"',:=]+", text, self._chance.choice((*TEXTS, *NUMBERS)))

    def _replaced(self, pattern: str, text: str, new: str) -> str:
        found = list(re.finditer(pattern, text))
        if not found:
            return text + new
        place = self._chance.choice(found)
        return text[: place.start()] + new + text[place.end() :]

    def _json(self, text: str) -> str:
        """Exchanges or removes one value of a line, or of the whole text, that is JSON."""
        lines = text.split("\n")
        places = [at for at, line in enumerate(lines) if line.startswith("{")]
        try:
            if text.startswith("{") and text.rstrip().endswith("}") and len(places) == 1:
                return json.dumps(self._changed(json.loads(text)))
            at = self._chance.choice(places)
            lines[at] = json.dumps(self._changed(json.loads(lines[at])))
        except (IndexError, ValueError, RecursionError):
            return self._number(text)
        return "\n".join(lines)

    def _changed(self, value: Any) -> Any:
        inside = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
        if not inside or self._chance.random() < 0.1:
            return self._value(value)
        key = self._chance.choice(inside)
        copy = value.copy()
        if self._chance.random() < 0.1:
            del copy[key]
        else:
            copy[key] = self._changed(value[key])
        return copy

    def _value(self, value: Any) -> Any:
        kind = self._chance.randrange(6)
        if kind == 0:
            return self._chance.choice(
                (0, -1, 10**400, 2**63, 2**63 - 1, 2**64, 1e308, 0.1, float("nan"), float("inf"))
            )
        if kind == 1:
            return self._chance.choice(TEXTS)
        if kind == 2:
            return self._chance.choice((None, True, False, [], {}, "", [[]], [None], {"": None}))
        if kind == 3:
            return [value] * self._chance.choice((1, 2, 1000))
        if kind == 4:
            return {str(self._chance.choice(TEXTS)): value}
        for _ in range(self._chance.choice((1, 60, 600))):
            value = [value]
        return value

    def _insert(self, text: str) -> str:
        at = self._place(text)
        return text[:at] + self._chance.choice(TEXTS) + text[at:]

    def _remove(self, text: str) -> str:
        at = self._place(text)
        return text[:at] + text[at + self._chance.choice((1, 2, 10, 100)) :]

    def _repeat(self, text: str) -> str:
        at = self._place(text)
        part = text[at : at + self._chance.choice((1, 5, 30))]
        return text[:at] + part * self._chance.choice((2, 10, 300)) + text[at:]

    def _cut(self, text: str) -> str:
        return text[: self._place(text)] if self._chance.random() < 0.3 else text

    def _splice(self, text: str) -> str:
        other = self._chance.choice(self._seeds)
        return text[: self._place(text)] + other[self._place(other) :]

    def _line(self, text: str) -> str:
        """Removes, repeats or moves a line."""
        lines = text.split("\n")
        at = self._chance.randrange(len(lines))
        line = lines.pop(at)
        for _ in range(self._chance.choice((0, 1, 2, 20))):
            lines.insert(self._chance.randrange(len(lines) + 1), line)
        return "\n".join(lines)

    def _character(self, text: str) -> str:
        at = self._place(text)
        kinds = (range(0x20, 0x7F), range(0x20), range(0x80, 0x100), range(0xD800, 0xE000), range(0x100, 0x3000))
        return text[:at] + chr(self._chance.choice(self._chance.choice(kinds))) + text[at + 1 :]

    def _place(self, text: str) -> int:
        return self._chance.randint(0, len(text))


@contextmanager
def _alarm() -> Iterator[None]:
    """The end of what takes too long; only the main thread can be ended so."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TooSlow("it took too long")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGVTALRM, before)
