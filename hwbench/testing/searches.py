"""A search whose latencies follow a law: to try a space, an evaluator or a sampler without a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hwbench.latency import AdditivePredictor
from hwbench.measure.campaign import Campaign
from hwbench.measure.store import MeasurementStore
from hwbench.spaces import load_space
from hwbench.spaces.feasible import FeasibleSet
from hwbench.specs import Measurement, Precision, Timing, Workload
from hwbench.studies.evaluations import WorkerPlan
from hwbench.studies.evaluators import Trainer
from hwbench.studies.latencies import choices_digest, space_latencies
from hwbench.studies.search_result import SearchResult
from hwbench.studies.settings import Settings
from hwbench.studies.storage import StudyStorage
from hwbench.studies.study import Search
from hwbench.studies.trials import SearchWatch
from hwbench.testing.fakes import FakeDevice
from hwbench.testing.tables import CLASSES, installed_target, space_table, work
from hwbench.workspace import Workspace


def search_by_law(
    workspace: Workspace,
    space: str,
    budget_s: float,
    *,
    study: str = "by-law",
    trials: int = 20,
    evaluator: str = "entropy",
    sampler: str = "tpe",
    law: Callable[[Workload], float] = work,
    storage: StudyStorage | None = None,
    trainer: Trainer | None = None,
    workers: WorkerPlan | None = None,
    watch: SearchWatch | None = None,
) -> SearchResult:
    """Runs a study in int8: its table, and the measurements of its candidates, come from a latency law.

    Args:
        workspace: Where the space, the study and the measurements are.
        space: Name of the search space.
        budget_s: Upper limit of the latency.
        study: Name of the study.
        trials: Networks to evaluate.
        evaluator: Name of the evaluator.
        sampler: Name of the sampler.
        law: From a workload to its latency in seconds.
        storage: Where trials are kept; None: in the folder of the study.
        trainer: For evaluators that train.
        workers: Where networks are scored; None: in this process.
        watch: Hears of every trial.

    Raises:
        InfeasibleBudget: No network of the space is within the budget.
    """
    precision, target, choices = Precision.INT8, installed_target(), load_space(workspace, space)
    predictor = AdditivePredictor.fit(space_table(choices, precision, law), space=space)
    device = FakeDevice(workspace.root / ".hwbench" / "fake", law)

    def measure(workloads: Sequence[Workload]) -> Sequence[Measurement]:
        with MeasurementStore(workspace.store) as store:
            timing = Timing(min_rounds=3, max_rounds=4)
            return (
                Campaign(store, target, {"device": "law"}, device.build, device.measure, timing)
                .run(workloads)
                .measurements
            )

    settings = Settings(
        space, choices_digest(choices), target.key, precision.value, 1e3 * budget_s, CLASSES, evaluator, sampler
    )
    feasible = FeasibleSet(space_latencies(choices, predictor, precision, CLASSES), budget_s)
    search = Search(
        workspace,
        study,
        settings,
        feasible,
        predictor.calibration.spread,
        measure,
        trainer,
        storage=storage,
        workers=workers,
        watch=watch or SearchWatch(),
    )
    return search.run(trials, measure=2)
