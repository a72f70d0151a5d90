"""The trainings that a study began from, kept in its folder: a study or a table that they are from may change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwbench.api.learned import Learned, LearnedTraining, TrainingSettings, seen
from hwbench.api.learning import check_members, learn_from
from hwbench.api.reading import RGB
from hwbench.api.study_data import Fidelity
from hwbench.documents import read_json
from hwbench.errors import HwbenchError, InvalidValue
from hwbench.workspace import TRAINED

if TYPE_CHECKING:
    from hwbench.api.listener import Listener
    from hwbench.api.search_request import SearchRequest
    from hwbench.spaces.protocols import SearchedSpace
    from hwbench.workspace import Workspace


@dataclass(frozen=True)
class Beginning:
    """What a study begins from.

    Attributes:
        learned: The trainings.
        label: What the settings of the study say of them; that of a study of before may be of other ones.
    """

    learned: Learned
    label: str

    @classmethod
    def of(cls, learned: Learned, request: SearchRequest) -> Beginning:
        """Of a study that begins."""
        return cls(learned, learned.begun_from if request.trains else learned.effort)

    def to_text(self) -> str:
        """What the folder of the study keeps, as JSON."""
        studies = list(dict.fromkeys(one.made for one in self.learned.trained if one.made is not None))
        places = {made: place for place, made in enumerate(studies)} | {None: None}
        return json.dumps(
            {
                "begun_from": self.label,
                "sources": self.learned.sources,
                "unit": self.learned.unit,
                "data": self.learned.data,
                "studies": [asdict(one) for one in studies],
                "trainings": [
                    {
                        "architecture": one.architecture,
                        "score": one.score,
                        "epochs": one.fidelity.epochs,
                        "frames_share": one.fidelity.frames_share,
                        "resolution_share": one.fidelity.resolution_share,
                        "training": one.training,
                        "data": one.data,
                        "study": places[one.made],
                        "state": one.state,
                    }
                    for one in self.learned.trained
                ],
            },
            indent=1,
            allow_nan=False,
        )

    @classmethod
    def read(cls, folder: Path, label: str) -> Beginning | None:
        """What the folder of a study keeps; None where it keeps nothing, or not what its settings tell of.

        Args:
            folder: Of the study.
            label: What the settings of the study say.
        """
        from hwbench.spaces.begun import BEGUN_FROM

        try:
            values: Any = read_json((folder / BEGUN_FROM).read_text(encoding="utf-8"))
            studies = [TrainingSettings(**one) for one in values["studies"]]
            trained = tuple(_trained(one, studies) for one in values["trainings"])
            learned = Learned(tuple(values["sources"]), str(values["unit"]), trained, str(values["data"]))
            return cls(learned, label) if trained and values["begun_from"] == label else None
        except (OSError, ValueError, LookupError, TypeError):
            return None


def _trained(values: Mapping[str, Any], studies: list[TrainingSettings]) -> LearnedTraining:
    """A training, as ``to_text`` wrote it; raises LookupError, TypeError or ValueError where it is none."""
    shares = (float(values[f"{name}_share"]) for name in ("frames", "resolution"))
    return LearnedTraining(
        str(values["architecture"]),
        float(values["score"]),
        Fidelity(int(values["epochs"]), *shares),
        int(values["training"]),
        str(values["data"]),
        None if values["study"] is None else studies[values["study"]],
        str(values["state"]),
    )


def beginning(
    request: SearchRequest,
    workspace: Workspace,
    space: SearchedSpace,
    folder: Path,
    stored: Mapping[str, object],
    listener: Listener,
) -> Beginning | None:
    """The trainings that a study begins from, or began from where it goes on; None: there are none.

    Args:
        request: Names what to learn from.
        workspace: Has it.
        space: Of the networks.
        folder: Of the study.
        stored: Settings of the study; empty: it begins.
        listener: Hears where what a study began from has changed since.

    Raises:
        InvalidValue: Scores there are of another unit; trainings are on several data, and nothing says on which scores
            are predicted; or the study is scored by trainings that are gone.
    """
    from hwbench.spaces.begun import learned_digest, learned_sources

    if not request.sources:
        return None
    label = str(stored.get("begun_from") or stored.get("effort") or "")
    if stored.get("evaluator") != request.plan.evaluator:
        return new_beginning(request, learn_from(workspace, space, request.sources))
    then = learned_sources(label)
    if not _are_same(workspace, then, request.sources):
        now = new_beginning(request, learn_from(workspace, space, request.sources))
        if learned_digest(label) != learned_digest(now.label):
            return now
        # the same trainings from elsewhere, such as a copy of a table
        same = Beginning(replace(now.learned, sources=then), label)
        return _of_its_data(request, folder.name, Beginning.read(folder, label) or same)
    if (kept := Beginning.read(folder, label)) is not None:
        check_members(space, ", ".join(request.sources), kept.learned.trained)
        _tell_changes(request, workspace, space, folder.name, kept, listener)
        return _of_its_data(request, folder.name, kept)
    now_there = replace(learn_from(workspace, space, request.sources), sources=then)
    return _of_before(request, now_there, folder.name, label, listener)


def _are_same(workspace: Workspace, then: Sequence[str], now: Sequence[str]) -> bool:
    """Whether sources are those of before, maybe under other names, as a path that is typed in another folder."""
    return len(then) == len(now) and all(_is_same(workspace, *names) for names in zip(then, now))


def _is_same(workspace: Workspace, then: str, now: str) -> bool:
    if then == now:
        return True
    before, table = workspace.trainings(then), workspace.trainings(now)
    if before is not None and table is not None:
        return before.samefile(table)
    # A path of before may be relative to another folder, or lead into a workspace that was moved.
    return now.endswith(TRAINED) and Path(then).name == Path(now).name


def _data(request: SearchRequest) -> str:
    """The data of the scores, as ``Learned`` names it; empty where it is left open."""
    modality = "" if request.modality == RGB else request.modality
    data = request.plan.data if request.trains else request.data
    return seen(data, modality) if data else ""


def new_beginning(request: SearchRequest, learned: Learned) -> Beginning:
    """What a study that begins now would begin from.

    Raises:
        InvalidValue: Scores there are of another unit; or trainings are on several data, and nothing says on which
            scores are predicted.
    """
    if request.trains:
        learned.check_unit(request.plan.evaluator)
    about = learned.beside if request.trains else learned.predicting
    return Beginning.of(about(_data(request)), request)


def _tell_changes(
    request: SearchRequest, workspace: Workspace, space: SearchedSpace, name: str, kept: Beginning, listener: Listener
) -> None:
    """Says where what is there now is not what a study began from."""
    try:
        now = replace(learn_from(workspace, space, request.sources), sources=kept.learned.sources)
    except HwbenchError as error:  # it is gone, or another one
        listener.say(f"{error}; study {name} goes on with what it began from, {kept.learned}")
        return
    if kept.learned.begun_from not in (now.begun_from, now.as_before.begun_from):
        listener.say(
            f"--learn-from {', '.join(request.sources)} has changed since study {name} began; it goes on with what it "
            f"began from, {kept.learned}"
        )


def _of_before(request: SearchRequest, now: Learned, name: str, label: str, listener: Listener) -> Beginning:
    """Of a study that goes on and did not keep what it began from.

    Raises:
        InvalidValue: Its scores rest on that, and it has changed.
    """
    old = now.as_before.beside(_data(request)) if request.trains else now.as_before
    if Beginning.of(old, request).label == label:
        return _of_its_data(request, name, Beginning(old, label))
    if request.trains:
        found = new_beginning(request, now)
        if found.label != label:
            listener.say(
                f"--learn-from {', '.join(request.sources)} has changed since study {name} began, which did not keep "
                f"what was there; it goes on with what is there now, {now}"
            )
        return Beginning(found.learned, label)
    found = new_beginning(request, now)
    if found.label == label:
        return found
    raise InvalidValue(
        f"study {name!r}: --learn-from {', '.join(request.sources)} has changed since the study began, and its scores "
        f"rest on what was learned then; bring back what was there, or begin another study: --study {name}-2"
    )


def _of_its_data(request: SearchRequest, name: str, kept: Beginning) -> Beginning:
    """Refuses other data than those on which a study predicts scores.

    Raises:
        InvalidValue: They are asked for.
    """
    asked, learned = _data(request), kept.learned
    if not request.trains and asked in learned.datas and asked != learned.predicted and len(learned.datas) > 1:
        raise InvalidValue(
            f"study {name!r} predicts scores on {learned.predicted}; for those on {asked} choose another name: --study "
            f"{name}-2"
        )
    return kept
