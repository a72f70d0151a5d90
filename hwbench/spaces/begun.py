"""A study that was begun and has no result: by what command it goes on. Reads its folder, and opens no storage."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hwbench import lookup
from hwbench.documents import read_json
from hwbench.errors import InvalidValue
from hwbench.printable import printable
from hwbench.runtimes import DEFAULT
from hwbench.specs import STREAM, Target

# In the folder of a study: its trials; or the file that names the storage that keeps them, and a copy of the settings.
JOURNAL = "journal.log"
MARKER = "storage.txt"
SETTINGS_COPY = "settings.json"
# The trainings that it began from.
BEGUN_FROM = "begun_from.json"
# Options of its last command that are no settings.
ASKED = "asked.json"
# The attribute of the study that has what it searches for.
SETTINGS = "settings"
# Stands for a budget that cannot be read, without which no search begins.
_BUDGET = "BUDGET"
# What is kept of these, in the order in which it is typed.
_PLAIN = ("time", "trials", "startup", "measure", "measure-rows", "decoder", "finalists")
_RACE = ("data", "finalist-epochs", "finalist-score")
# The spaces as they were typed, where one is a model of the user's own, whose name in the settings is no option.
_SPACE = "space"
# Settings that are options of the same name.
_ALIKE = ("evaluator", "sampler", "objective", "data", "modality")
# What becomes of rows that were not measured.
_LEFT_OUT, _INTERPOLATED, _TRANSFERRED = "left out", "interpolated", "transferred from "
# Limits in bytes: the option, and the setting.
_SIZES = (("max-file-size", "max_file_bytes"), ("max-activations", "max_activation_bytes"))
# Shares of the input that networks are trained on, in the effort of a study: the option, and its value.
SHARES = re.compile(r", (frames-share|resolution-share) ([0-9]+(?:\.[0-9]+)?(?:e-[0-9]+)?)")
# How long a supernet is trained, in the effort of a study that has one.
_SUPERNET = re.compile(r"supernet of ([0-9]+) epochs")
# What ``hwbench.api.learned`` says that a study begins from.
_LEARNED = re.compile(r"learned from [0-9]+ networks of (.+) \(([0-9a-f]+)\)")
# What networks saw of the videos that they were trained on, behind these: ``hwbench.api.learned.seen``.
_SEEN_AS = re.compile(r" as (?:clips|flow(?::.+)?)$")


def is_begun(folder: Path) -> bool:
    """Whether a folder holds a study, finished or not."""
    return lookup.is_file(folder / JOURNAL) or lookup.is_file(folder / MARKER)


def journal_settings(path: Path) -> object:
    """The settings that a journal gave its study last; None: it gave none, or is damaged."""
    found: object = None
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        if b'"settings"' not in line:
            continue
        try:
            entry: Any = json.loads(line)
        except ValueError:
            continue
        values = entry.get("user_attr") if isinstance(entry, dict) and "trial_id" not in entry else None
        if isinstance(values, dict) and SETTINGS in values:
            found = values[SETTINGS]
    return found


def kept_json(path: Path) -> object:
    """What a JSON file in the folder of a study holds, such as a copy of its settings; None: none, or it is damaged."""
    try:
        return read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def asked_options(folder: Path) -> dict[str, str]:
    """Options of the last command of a study that are no settings: name -> text; what is damaged is left out."""
    values = kept_json(folder / ASKED)
    kept = values if isinstance(values, dict) else {}
    return {name: text for name in (_SPACE, *_PLAIN, *_RACE) if isinstance(text := kept.get(name), str) and text}


def learned_sources(text: str) -> tuple[str, ...]:
    """Studies and paths in a setting that tells what a study learned from; empty where it tells none."""
    match = _LEARNED.fullmatch(text)
    return tuple(match[1].split(", ")) if match else ()


def learned_digest(text: str) -> str:
    """Digest of the trainings in such a setting, however they were named; empty where it tells none."""
    match = _LEARNED.fullmatch(text)
    return match[2] if match else ""


def videos_of(data: str) -> str:
    """The videos that networks were trained on, whatever they saw of them (``hwbench.api.learned.seen``)."""
    return _SEEN_AS.sub("", data)


def begun_videos(folder: Path, label: str) -> set[str] | None:
    """The videos of the trainings that a study began from; an empty text where those of some are not known.

    Args:
        folder: Of the study.
        label: What the settings of the study say of the trainings.

    Returns:
        None: the folder keeps no trainings, or others than the settings tell of.
    """
    values: Any = kept_json(folder / BEGUN_FROM)
    try:
        videos = {videos_of(str(one["data"])) for one in values["trainings"]}
        return videos if videos and values["begun_from"] == label else None
    except (LookupError, TypeError):
        return None


def asked_ms(limit_ms: float, ratio: float) -> float:
    """A budget as it was asked for: that of a search for minutes is stored divided by a ratio, with six digits.

    Of those that a search divides back to what is stored it is the one with the fewest digits.
    """
    asked = (float(f"{limit_ms * ratio:.{digits}g}") for digits in range(1, 13))
    return next((value for value in asked if float(f"{value / ratio:.6g}") == limit_ms), limit_ms * ratio)


def going_on(folder: Path, spaces: Sequence[str]) -> str:
    """The beginning of the command that goes on with a study: what of its settings can be read, and its name.

    A budget that cannot be read is a placeholder, ``--budget BUDGET``.

    Args:
        folder: Of the study; its name is that of the study.
        spaces: Names of spaces that ``--space`` takes; any other one is left out.
    """
    storage = kept_at(folder)
    stored = kept_json(folder / SETTINGS_COPY) if storage else journal_settings(folder / JOURNAL)
    asked = asked_options(folder)
    options = list(_options(stored if isinstance(stored, dict) else {}, () if _SPACE in asked else spaces))
    races = asked.get("finalists", "0") != "0"
    settled = {name for name, _ in options}
    options += [(name, text) for name, text in asked.items() if (races or name not in _RACE) and name not in settled]
    if storage:
        options.append(("storage", storage))
    options.append(("study", folder.name))
    words = [f"--{name} {shlex.quote(printable(value, 300))}" if value else f"--{name}" for name, value in options]
    return " ".join(["hwbench search", *words])


def _options(stored: Mapping[str, object], spaces: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options that decide what is searched for, by stored settings; those that are damaged are left out.

    A switch has an empty value.
    """
    space = stored.get("space")
    further = stored.get("further_budgets_ms", {})
    limits = further if isinstance(further, dict) else {}
    if isinstance(space, str) and all(name in spaces for name in space.split(",")):
        yield "space", space
    if isinstance(target := stored.get("target"), str):
        yield "device", ",".join(key.partition("/")[0] for key in (target, *limits))
    if isinstance(precision := stored.get("precision"), str):
        yield "precision", precision
    yield from _engine(str(target))
    if isinstance(classes := stored.get("num_classes"), int):
        yield "classes", str(classes)
    budgets = _asked_budgets(stored, limits)
    yield "budget", ",".join(f"{one:.12g}ms" for one in budgets) if budgets else _BUDGET
    for name in _ALIKE:
        if isinstance(value := stored.get(name), str) and value:
            yield name, value
    if isinstance(policy := stored.get("on_error"), str) and policy:
        yield "on-error", policy
    effort = str(stored.get("effort"))
    if trained := _SUPERNET.fullmatch(effort):
        yield "supernet-epochs", trained[1]
    yield from SHARES.findall(effort)
    yield from _forms(stored)
    if isinstance(seed := stored.get("seed"), int):
        yield "seed", str(seed)
    if stored.get("sustained"):
        yield "sustained", ""
    confidence = stored.get("confidence")
    if isinstance(confidence, float) and confidence != 0.5:  # the default, which goes by the prediction alone
        yield "confidence", f"{confidence}"
    for name, setting in _SIZES:
        if isinstance(size := stored.get(setting), int) and size > 0:
            yield name, f"{size}B"
    for source in learned_sources(str(stored.get("begun_from") or stored.get("effort"))):
        yield "learn-from", source


def _engine(key: str) -> Iterator[tuple[str, str]]:
    """The runtime and the threads of a target, where they are not the defaults."""
    try:
        target = Target.parse(key)
    except InvalidValue:
        return
    if target.runtime != DEFAULT:
        yield "runtime", target.runtime
    if target.threads != 1:
        yield "threads", str(target.threads)


def _forms(stored: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """What is timed, and what becomes of rows that were not measured: switches, and the device that stands in.

    Where rows are left out, they are filled in without the switch once ``hwbench profile`` has chosen rows.
    """
    if stored.get("variant") == STREAM:
        yield "streaming", ""
    if stored.get("emulated") is True:
        yield "allow-emulated", ""
    rows = str(stored.get("missing_rows"))
    if rows == _LEFT_OUT:
        yield "no-interpolate", ""
    if rows == _INTERPOLATED:
        yield "interpolate", ""
    if rows.startswith(_TRANSFERRED):
        yield "transfer-from", rows.removeprefix(_TRANSFERRED)


def _asked_budgets(stored: Mapping[str, object], further: Mapping[str, object]) -> list[float]:
    """Budgets in milliseconds as they were typed: those of a search for minutes are kept divided by its ratios.

    Empty where a budget or a ratio cannot be read.
    """
    ratios = stored.get("sustained") or {}
    if not isinstance(ratios, dict):
        return []
    smaller, device = stored.get("smaller_budgets_ms", []), str(stored.get("target")).partition("/")[0]
    budgets = [(device, one) for one in (*(smaller if isinstance(smaller, list) else []), stored.get("budget_ms"))]
    budgets += [(key.partition("/")[0], one) for key, one in further.items()]
    asked = []
    for name, limit in budgets:
        ratio = ratios.get(name) if ratios else 1.0
        if not isinstance(limit, int | float) or not isinstance(ratio, int | float) or not _positive(limit, ratio):
            return []
        asked.append(asked_ms(limit, ratio) if ratios else limit)
    return asked


def _positive(*values: float) -> bool:
    return all(0 < value < math.inf for value in values)


def kept_at(folder: Path) -> str:
    """The storage of a study as it is typed in any folder; empty where there is none.

    A relative file of SQLite is one of the workspace.
    """
    text, scheme = _line(folder / MARKER), "sqlite:///"
    file = text.removeprefix(scheme)
    return f"{scheme}{folder.absolute().parents[2] / file}" if text != file else text


def _line(path: Path) -> str:
    """The one line of a file; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
