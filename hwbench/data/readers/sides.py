"""Which side of a data set a name tells: what is to be trained on, validated on or tested on.

A name is split into words at everything that is no letter, and capitals do not matter: ``Train_256``,
``train-00000-of-00010`` and ``training`` are for training. Where a data set has no side to validate on, that to test on
takes its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from hwbench.errors import InvalidFile

TRAIN, VAL, TEST = "train", "val", "test"
_WORDS = {
    TRAIN: ("train", "training", "trainset"),
    VAL: ("val", "valid", "validation", "validate", "valset", "dev", "eval", "evaluation"),
    TEST: ("test", "testing", "testset"),
}
_SIDES = {word: side for side, words in _WORDS.items() for word in words}
_TRAIN_WORD = re.compile(rf"(?<![^\W\d_])(?:{'|'.join(_WORDS[TRAIN])})(?![^\W\d_])", re.IGNORECASE)
_MOST_NAMES = 3

Item = TypeVar("Item")


def side_of_word(word: str) -> str:
    """``train``, ``val`` or ``test``, where the whole word is a name of that side; else empty."""
    return _SIDES.get(word.lower(), "")


def side_of(name: str) -> str:
    """``train``, ``val`` or ``test`` by the words of a name; empty where they tell no side, or both to train and val.

    ``test`` is often a word of a project: beside ``train`` or ``val`` it tells nothing.
    """
    sides = {side for word in re.split(r"[\W\d_]+", name) if (side := side_of_word(word))}
    if len(sides) > 1:
        sides.discard(TEST)
    return sides.pop() if len(sides) == 1 else ""


def parted(place: Path, named: Sequence[tuple[str, Item]]) -> tuple[list[Item], list[Item], list[str]]:
    """Parts of a data set by their names: what to train on, what to validate on, and names that tell no side.

    Where no name tells a side, or all tell the same, everything is one set to train on.

    Args:
        place: What messages call the data set.
        named: Each part with its name; several may have one name.

    Raises:
        InvalidFile: Names tell apart what to validate or test on from the rest, and none what to train on.
    """
    items: dict[str, list[Item]] = {}
    for name, item in named:
        items.setdefault(side_of(name), []).append(item)
    if len(items) < 2:
        return [item for _, item in named], [], []
    if TRAIN not in items:
        raise InvalidFile(f"{place}: no name tells what to train on; expected the word train in one of {_names(named)}")
    others = dict.fromkeys(name for name, _ in named if not side_of(name))
    return items[TRAIN], items.get(VAL) or items.get(TEST, []), list(others)


def side_files(path: Path, ends: Sequence[str]) -> tuple[Path, Path] | None:
    """The files ``train.*`` and ``val.*`` of a folder, by any words of the sides; None where they are not both there.

    Args:
        path: The folder, or the file to train on: what lies beside it with the same ending is asked for.
        ends: Endings of files that count, the preferred ones first.
    """
    if path.is_file() and side_of_word(path.stem) != TRAIN:
        return None
    folder, ends = (path, ends) if path.is_dir() else (path.parent, (path.suffix,))
    files = [file for file in folder.iterdir() if file.suffix in ends and side_of_word(file.stem) and file.is_file()]
    files.sort(key=lambda file: (list(_SIDES).index(file.stem.lower()), ends.index(file.suffix), file.name))
    train = path if path.is_file() else next((file for file in files if side_of_word(file.stem) == TRAIN), None)
    val = next((file for file in files if side_of_word(file.stem) != TRAIN), None)
    return (train, val) if train and val else None


def list_beside(file: Path) -> Path | None:
    """The list to validate on whose name is that of ``file`` with another word for ``train``; None: there is none.

    Lists to validate on go before lists to test on. Where no whole word of the name is one for ``train``, ``train`` in
    a word is.
    """
    name = file.name
    pattern = _TRAIN_WORD if _TRAIN_WORD.search(name) else re.compile("train")
    for word in (*_WORDS[VAL], *_WORDS[TEST]):
        names = [name[: one.start()] + _in_case_of(one[0], word) + name[one.end() :] for one in pattern.finditer(name)]
        names.append(pattern.sub(lambda one: _in_case_of(one[0], word), name))  # noqa: B023
        beside = (file.with_name(other) for other in names if other != name)
        if path := next(filter(Path.is_file, beside), None):
            return path
    return None


def _in_case_of(model: str, word: str) -> str:
    """A word in lower case, or with capitals where ``model`` has them at the beginning or throughout."""
    return word.upper() if model.isupper() else word.capitalize() if model[0].isupper() else word


def listed(names: Sequence[str]) -> str:
    """Names in a sentence; of many the first."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _names(named: Iterable[tuple[str, object]]) -> str:
    return listed([name for name, _ in named])
