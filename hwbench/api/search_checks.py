"""What a search refuses before anything is trained or measured, where the options alone do not say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hwbench.api.listener import Listener
from hwbench.api.reading import RGB
from hwbench.api.score_plan import NO_PRUNER
from hwbench.api.search_request import SearchRequest
from hwbench.api.study_data import StudyData
from hwbench.errors import InvalidValue
from hwbench.specs.tensor import CLIP_CHANNELS
from hwbench.workspace import NO_TRAININGS

if TYPE_CHECKING:
    from hwbench.spaces.protocols import NetworkSet
    from hwbench.workspace import Workspace


def check_spelling(request: SearchRequest, workspace: Workspace) -> None:
    """Refuses an evaluator and a sampler that do not exist, before minutes are spent on counting networks.

    Raises:
        InvalidValue: The study cannot be called so; one that was begun so goes on.
        UnknownName: There is no such evaluator or sampler.
    """
    from hwbench.spaces.begun import is_begun
    from hwbench.specs.study_name import check_new_name
    from hwbench.studies.evaluators import evaluators

    if request.study is not None:
        check_new_name(request.study)
    if request.study == NO_TRAININGS and not is_begun(workspace.studies / NO_TRAININGS):
        raise InvalidValue(
            f"--study {NO_TRAININGS}: --learn-from could not name it, for {NO_TRAININGS} stands for no trainings; "
            "choose another name"
        )
    if request.plan.evaluator not in evaluators:
        evaluators.get(request.plan.evaluator)
    if request.sampler != SearchRequest.sampler:  # its module loads Optuna
        from hwbench.studies.sampler import samplers

        if request.sampler not in samplers:
            samplers.get(request.sampler)
    if request.ray is not None:
        from hwbench.studies.ray_workers import load_ray

        load_ray()


def check_runtime(request: SearchRequest) -> None:
    """Refuses what a runtime does not do, before anything is counted or trained.

    Raises:
        UnknownName: No such runtime.
        UnsupportedModule: It does not build the precision, or streams.
        InvalidValue: Finalists are to race by int8 files, and it writes none.
    """
    from hwbench.api.finalists import INT8
    from hwbench.runtimes import DEFAULT, exporting, get
    from hwbench.specs import Precision

    runtime = get(request.runtime)
    runtime.require_precision(Precision.parse(request.precision))
    if request.streaming:
        runtime.require_streams()
    if request.finalist_score == INT8 and request.runtime not in exporting():
        raise InvalidValue(
            f"--finalist-score int8: runtime {request.runtime!r} writes no int8 file; use --runtime {DEFAULT}"
        )


def check_names(workspace: Workspace, request: SearchRequest, feasible: NetworkSet, listener: Listener) -> None:
    """Refuses names that nothing has, before a study holds them, and says what a score is.

    Raises:
        UnknownName: No such evaluator, sampler or data.
        InvalidValue: The evaluator says nothing that a pruner could go by.
        InvalidFile: The data are not laid out as their reader expects.
        MissingDependency: Networks are to be scored on Ray, which is not installed.
    """
    from hwbench.data import SYNTHETIC
    from hwbench.studies.evaluators import describe, get, judgement
    from hwbench.studies.sampler import samplers

    evaluator = get(request.plan.evaluator)
    if request.plan.pruner != NO_PRUNER and not hasattr(evaluator, "score_reporting"):
        raise InvalidValue(
            f"--pruner {request.plan.pruner}: evaluator {request.plan.evaluator!r} tells no score before its end; take "
            "curve or short-train"
        )
    samplers.get(request.sampler)
    if request.reads or request.plan.finalists:
        from hwbench.data import open_splits
        from hwbench.data.decoders import get as get_decoder

        get_decoder(request.decoder)

        if request.plan.data != SYNTHETIC:  # which is made when it is read
            open_splits(workspace, request.plan.data)
    listener.say(f"score: {describe(evaluator)}")
    if not request.plan.finalists and (doubt := judgement(evaluator, feasible.count)):
        listener.say(doubt)
    if request.plan.finalists and request.data is None and not request.trains:
        listener.say(
            f"no --data is named: finalists race on {SYNTHETIC} videos, whatever the score is about; --data DATA lets "
            "them race on yours, --finalists 0 leaves the race out"
        )


def check_modality(data: StudyData, feasible: NetworkSet, listener: Listener) -> None:
    """Says what times are of networks that see no pictures.

    Raises:
        InvalidValue: No such modality, or a space has networks of pictures alone.
    """
    if data.modality == RGB:
        return
    for part in feasible.parts:
        _, smallest = part.smallest()
        data.trained(feasible.space.network(smallest, part.sums.num_classes))
    listener.say(
        f"networks see {data.modality}: predictions are those of networks that see pictures, whose first block takes "
        f"{CLIP_CHANNELS} channels; the best are measured as they are trained, with {data.channels}"
    )


def check_clips(data: StudyData, feasible: NetworkSet) -> None:
    """Refuses clips of trainings that are too small, of which the fastest network of a space mostly has the smallest.

    Raises:
        InvalidValue: A network does not take them.
    """
    for part in feasible.parts:
        _, smallest = part.smallest()
        data.fidelity.clip_of(feasible.space.network(smallest, part.sums.num_classes))
