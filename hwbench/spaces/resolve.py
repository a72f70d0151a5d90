"""What a user calls a network, to the network: a printed key, ``STUDY:best``, ``STUDY:5ms`` or ``zoo:NAME``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hwbench import lookup
from hwbench.documents import read_json
from hwbench.errors import InvalidFile, InvalidValue, UnknownName
from hwbench.registry import suggest
from hwbench.spaces.begun import asked_ms, going_on, is_begun
from hwbench.spaces.cards import ZOO_SPACE, load_card
from hwbench.spaces.digest import choices_digest
from hwbench.spaces.families.by_hand import hand_network, is_importable
from hwbench.spaces.loader import load_space
from hwbench.spaces.space import StagedSpace
from hwbench.specs import AUTO, STREAM, Architecture, ModelName, Network
from hwbench.specs.study_name import check_reference
from hwbench.units import milliseconds, parse_duration
from hwbench.workspace import Workspace

RESULT = "result.json"


def resolve(workspace: Workspace, text: str, num_classes: int | None = None) -> Network:
    """The network that ``text`` names.

    Args:
        workspace: Where spaces, cards and studies are looked up.
        text: A printed key such as ``x3d-tiny:frames=8,...``, ``STUDY:best``, ``STUDY:5ms`` (the best within that
            budget of a front, for minutes as it was asked for; both causal where the study is one of streams),
            ``zoo:NAME``, or ``package.module:function`` of a model that the user wrote, which is imported: never text
            from a file.
        num_classes: Width of the logits. A zoo card knows its own, as does a function that does not take
            ``num_classes``; for a space it must be given.

    Raises:
        UnknownName: No such space, study or card; the nearest names are listed.
        InvalidValue: The text is none of the four, the architecture is no member of its space, or the function makes
            no model.
        InvalidFile: The file behind the name does not validate, or the space was changed since a study searched it.
    """
    head, colon, tail = text.strip().partition(":")
    if colon and head == "zoo":
        return load_card(workspace, tail).network(num_classes)
    name = ModelName.match(text)
    if name is not None and is_importable(name):
        return hand_network(name, num_classes)
    if colon and "=" not in tail:
        return _of_study(workspace, head, tail, num_classes)
    if not colon:
        raise InvalidValue(_expected(workspace, text))
    architecture = Architecture.parse(text.strip())
    return _member(_space(workspace, architecture), architecture, num_classes)


def load_result(workspace: Workspace, study: str, options: str = "") -> dict[str, object]:
    """The stored result of a finished search.

    Args:
        workspace: Has the studies.
        study: Name of the study.
        options: Words of a ``hwbench search`` that makes such a study, for the message where there is none.

    Raises:
        UnknownName: No study of that name has a result; says how one goes on that was begun.
        InvalidValue: No study can have that name.
        InvalidFile: Its file is damaged.
    """
    path = workspace.studies / study / RESULT
    if not lookup.is_file(path):
        raise _no_result(workspace, study, options)
    try:
        result = read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: damaged: {error}; run the search again, it goes on from its journal") from None
    if not isinstance(result, dict):
        raise InvalidFile(f"{path}: expected one JSON object; run the search again, it goes on from its journal")
    return result


def finished(workspace: Workspace) -> list[str]:
    """The names of the studies that have a result."""
    return sorted(path.parent.name for path in workspace.studies.glob(f"*/{RESULT}"))


def _no_result(workspace: Workspace, study: str, options: str) -> UnknownName:
    """What is said of a study without a result: how it goes on, or that there is none.

    Raises:
        InvalidValue: None of this name can be made.
    """
    known = finished(workspace)
    check_reference(study, known)
    folder = workspace.studies / study
    if is_begun(folder):
        spaces = [*workspace.names("search_spaces"), *(ZOO_SPACE + name for name in workspace.names("zoo"))]
        return UnknownName(
            f"study {study!r} has no result: its search has not finished, or found no network within the budget; "
            "it goes on with the same command, and further options where it had some: "
            f"{going_on(folder, spaces)}"
        )
    command = " ".join(filter(None, ['hwbench search --budget "12 ms"', options, f"--study {study}"]))
    return UnknownName(f"no finished study {study!r}; {suggest(study, known)}; make one: {command}")


def _of_study(workspace: Workspace, study: str, which: str, num_classes: int | None) -> Network:
    architecture, result = _from_study(workspace, study, which), load_result(workspace, study)
    streaming = result.get("streaming") is True
    try:
        space = _space(workspace, architecture)
        searched = _searched_digest(result, space.name)
        if searched not in (None, choices_digest(replace(space, variant=STREAM if streaming else AUTO))):
            raise InvalidFile(
                f"{workspace.studies / study / RESULT}: space {space.name!r} was changed since study {study!r} "
                "searched it; bring its file back, search again under another name, or name the network of the space "
                f"as it is now: {architecture.key}"
            )
        network = _member(space, architecture, num_classes)
        return network.causal() if streaming else network
    except InvalidFile:
        raise
    except (InvalidValue, UnknownName) as error:
        if num_classes is None:
            raise
        raise InvalidFile(f"{_result(workspace, study)}: its best is {architecture.key[:200]}: {error}") from None


def _searched_digest(result: Mapping[str, object], space: str) -> str | None:
    """The ``choices_digest`` of a space as it was searched; None where the result does not hold it."""
    settings = result.get("settings")
    if not isinstance(settings, dict):
        return None
    spaces, digests = (str(settings.get(name, "")).split(",") for name in ("space", "choices"))
    return dict(zip(spaces, digests, strict=False)).get(space) or None


def _result(workspace: Workspace, study: str) -> Path:
    return workspace.studies / study / RESULT


def _from_study(workspace: Workspace, study: str, which: str) -> Architecture:
    path = workspace.studies / study / RESULT
    try:
        limit_ms = None if which == "best" else milliseconds(parse_duration(which, name=which))
    except InvalidValue:
        raise InvalidValue(_expected(workspace, f"{study}:{which}")) from None
    result = load_result(workspace, study)
    best = result.get("best") if limit_ms is None else _within(result, study, limit_ms)
    key = best.get("architecture") if isinstance(best, dict) else None
    if not isinstance(key, str):
        raise InvalidFile(f"{path}: has no best architecture; run the search again, it goes on from its journal")
    try:
        return Architecture.parse(key)
    except InvalidValue as error:
        raise InvalidFile(f"{path}: {error}; run the search again, it goes on from its journal") from None


def _within(result: Mapping[str, object], study: str, limit_ms: float) -> object:
    """The best network of one budget of a front: as it was asked for, or that of the cool device."""
    points = result.get("front", [{"budget_ms": result.get("budget_ms"), "best": result.get("best")}])
    listed = [one for one in points if isinstance(one, dict)] if isinstance(points, list) else []
    known = {one["budget_ms"]: one.get("best") for one in listed if isinstance(one.get("budget_ms"), int | float)}
    asked = {budget: _asked(result, budget) for budget in known}
    named = [budget for budget in known if limit_ms in (budget, asked[budget])]
    if len(named) > 1:
        raise UnknownName(
            f"{limit_ms:.12g} ms is two budgets of study {study!r}, one for minutes and one of the cool device; "
            f"name {study}:{asked[named[1]]:.12g}ms or {study}:{named[0]:.12g}ms"
        )
    best = known[named[0]] if named else None
    if best is None:
        there = [f"{study}:{asked[budget]:.12g}ms" for budget, one in known.items() if one is not None]
        if named:
            fault = f"study {study!r} has no network that was measured within {limit_ms:.12g} ms"
        else:
            fault = f"{limit_ms:.12g} ms is no budget of study {study!r}"
        raise UnknownName(f"{fault}; it has {', '.join(there)}")
    return best


def _asked(result: Mapping[str, object], budget_ms: float) -> float:
    """A budget as it was asked for; that of a search for minutes was divided by the ratio of the first device."""
    ratios = result.get("sustained")
    ratio = next(iter(ratios.values()), None) if isinstance(ratios, dict) else None
    try:
        return asked_ms(budget_ms, ratio) if isinstance(ratio, int | float) and ratio > 0 else budget_ms
    except OverflowError:  # a damaged file
        return budget_ms


def _space(workspace: Workspace, architecture: Architecture) -> StagedSpace:
    try:
        return load_space(workspace, architecture.space)
    except UnknownName as error:
        hint = "; a model of your own is called by the name of its function: package.module:function"
        raise UnknownName(f"{error}{hint if '.' in architecture.space else ''}") from None


def _member(space: StagedSpace, architecture: Architecture, num_classes: int | None) -> Network:
    space.validate(architecture)
    if num_classes is None:
        raise InvalidValue(f"{architecture.key}: the number of classes is needed; it comes with the data")
    return space.network(architecture, num_classes)


def _expected(workspace: Workspace, text: str) -> str:
    names = [f"zoo:{name}" for name in workspace.names("zoo")]
    names += [f"{study}:best" for study in finished(workspace)]
    return (
        f"unknown architecture {text!r}: expected a printed key such as x3d-tiny:frames=8,..., STUDY:best, "
        "zoo:NAME, or package.module:function of a model of your own, in the working directory or on PYTHONPATH; "
        f"{suggest(text, names)}"
    )
