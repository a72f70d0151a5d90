"""From how many trainings, and of what length, the model of ``--evaluator fitted`` ranks networks. See README.md.

python experiments/018-ground-truth/learned.py   # learned.json from rows/, half a minute

It learns from draws of the networks that were trained least often, and is held against the mean top-1 of the others, of
which it sees nothing: neither their trainings nor variances that these have part in.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from curves import smoothed

from hwbench.spaces import read_space
from hwbench.spaces.sums import SpaceSums
from hwbench.specs import Architecture
from hwbench.studies.fidelities import ScoreObservation
from hwbench.studies.ground_truth import GroundTruth, TrainedNetwork, Training
from hwbench.studies.posterior import Layout, Posterior
from hwbench.studies.ranking import rank_correlation, rank_interval, regret
from hwbench.workspace import shipped, write_text

HERE = Path(__file__).resolve().parent
# Networks that the model learns from, and epochs of their trainings.
COUNTS, EPOCHS = (8, 12, 16, 24, 32, 48, 64, 96), (1, 2, 3, 6, 12)
DRAWS = 12

Score = Callable[[Training], float]


def top1_after(epochs: int) -> Score:
    return lambda training: training.top1 if epochs == len(training.curve) else training.curve[epochs - 1]


def loss_of(epochs: int) -> Score:
    """The mean training loss of the last epoch, negated."""
    return lambda training: -smoothed(training, epochs)


def learned(layout: Layout, networks: Sequence[TrainedNetwork], score: Score) -> Posterior:
    return Posterior.fit(
        layout,
        [ScoreObservation(Architecture.parse(one.architecture), score(one.trainings[0])) for one in networks],
    )


def predicted(posterior: Posterior, networks: Sequence[TrainedNetwork]) -> list[float]:
    return [float(mean) for mean in posterior.predict([Architecture.parse(one.architecture) for one in networks])[0]]


def draws(networks: Sequence[TrainedNetwork], count: int) -> Iterator[list[TrainedNetwork]]:
    """As many of each band."""
    rng = np.random.default_rng([18, count])
    bands = list(dict.fromkeys(one.band for one in networks))
    for _ in range(DRAWS):
        drawn = []
        for band in bands:
            of_band = [one for one in networks if one.band == band]
            chosen = rng.choice(len(of_band), count // len(bands), replace=False)
            drawn += [of_band[place] for place in chosen]
        yield drawn


def main() -> None:
    truth = GroundTruth.read(HERE)
    space = read_space(shipped() / "search_spaces" / "x3d-mini.toml")
    layout = Layout(SpaceSums.of(space, lambda block, x: 0.0, num_classes=truth.num_classes))
    judged = truth.judged
    others = [one for one in truth.networks if one not in judged and one.architecture.startswith(f"{space.name}:")]
    truths, bands = [one.top1 for one in judged], [one.band for one in judged]
    result: dict[str, object] = {"judged": len(judged), "others": len(others)}
    whole = rank_interval(predicted(learned(layout, others, top1_after(EPOCHS[-1])), judged), truths, bands)
    result["all others"] = {name: round(getattr(whole, name), 3) for name in ("value", "low", "high")}
    print("all others", result["all others"], flush=True)
    for name, score_of in (("top-1", top1_after), ("loss", loss_of)):
        rows = {}
        for epochs in EPOCHS:
            for count in COUNTS:
                taus, lost = [], []
                for drawn in draws(others, count):
                    guessed = predicted(learned(layout, drawn, score_of(epochs)), judged)
                    taus.append(rank_correlation(guessed, truths, bands))
                    lost.append(regret(guessed, truths, bands))
                rows[f"{count} x {epochs}"] = {
                    "epochs": count * epochs,
                    "tau": round(fmean(taus), 3),
                    "deviation": round(stdev(taus), 3),
                    "regret": round(fmean(lost), 4),
                }
                print(name, f"{count} x {epochs}", rows[f"{count} x {epochs}"], flush=True)
        result[name] = rows
    write_text(HERE / "learned.json", json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
