"""What a search finds in the space of each family within 2, 1.5 and 1 ms, beside the draws of 014. See README.md.

python experiments/038-families-search/run.py train      # rows/: as many processes as there are cores share the work
python experiments/038-families-search/run.py time       # together.json: all of them in int8, in turn
python experiments/038-families-search/run.py summary    # results.json and the tables of README.md, in seconds
"""

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hwbench.spaces import resolve
from hwbench.testing.experiments import neighbour
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
ROWS, RESULTS, TOGETHER, README = (HERE / name for name in ("rows", "results.json", "together.json", "README.md"))
SEARCHED, DRAWN, SEARCHED_MIDDLE, MIDDLE, SEARCHED_HALF, HALF = (
    "search",
    "draw",
    "search-middle",
    "middle",
    "search-half",
    "half",
)
# The budgets of 014 whose draws are compared: its machine took twice as long as that of the searches.
DRAWN_MS = {DRAWN: 4.0, MIDDLE: 3.0, HALF: 2.0}
# The files that `hwbench search --json` wrote, by what found the network: within 2, 1.5 and 1 ms.
STUDIES = {
    SEARCHED: "search-{}.json",
    SEARCHED_MIDDLE: "search-1.5ms-{}.json",
    SEARCHED_HALF: "search-1ms-{}.json",
}
# What half of the time costs was asked in two spaces before any was searched within it.
HALVED = ("i3d-mobile", "slow-mobile")
WORDS = {
    SEARCHED: "the search's, within 2 ms",
    DRAWN: "drawn, for 2 ms",
    SEARCHED_MIDDLE: "the search's, within 1.5 ms",
    MIDDLE: "drawn, for 1.5 ms",
    SEARCHED_HALF: "the search's, within 1 ms",
    HALF: "drawn, for 1 ms",
}
# The network found within the same time as a draw.
SAME_TIME = {DRAWN: SEARCHED, MIDDLE: SEARCHED_MIDDLE, HALF: SEARCHED_HALF}
EPOCHS = 4
# The studies chose their winners with seed 0, and 014 its draws.
SEEDS = (1, 2)
# What ends a table of README.md that the summary writes.
END = "<!-- end -->"

families, recipes = neighbour(HERE.parent / "014-families"), neighbour(HERE.parent / "031-recipes")
equal_ms = neighbour(HERE.parent / "019-equal-ms")
truth = recipes.truth


@dataclass(frozen=True)
class Compared:
    """A network of a space: what a search found within 2, 1.5 or 1 ms, or one of 014's draws that takes as long."""

    space: str
    role: str
    architecture: str

    @property
    def name(self) -> str:
        return f"{self.space.removesuffix('-mobile')}-{self.role}"

    @property
    def jobs(self) -> list[Any]:
        network = {"name": self.name, "space": self.space, "architecture": self.architecture}
        return [recipes.Job(network, seed, EPOCHS, ROWS) for seed in SEEDS]

    @property
    def trainings(self) -> list[dict[str, Any]]:
        return [json.loads(job.row.read_text()) for job in self.jobs if job.row.is_file()]


@cache
def compared() -> list[Compared]:
    """Those of each space that has a study here, in the order of their names."""
    found = []
    for path in sorted(families.NETWORKS.glob("*.json")):
        studies = {role: study for role in STUDIES if (study := study_of(path.stem, role))}
        found += [Compared(path.stem, role, study["best"]["architecture"]) for role, study in studies.items()]
        roles = [role for role, same in SAME_TIME.items() if same in studies or (role == HALF and path.stem in HALVED)]
        drawn = json.loads(path.read_text())
        best = {role: families.best(drawn, DRAWN_MS[role]) for role in roles}
        found += [Compared(path.stem, role, one["architecture"]) for role, one in best.items() if one]
    return found


def study_of(space: str, role: str) -> dict[str, Any] | None:
    path = HERE / STUDIES[role].format(space)
    return json.loads(path.read_text()) if path.is_file() else None


def jobs() -> Iterator[Any]:
    """Every network with the first seed before any has the second."""
    for of_seed in zip(*(one.jobs for one in compared()), strict=True):
        yield from of_seed


def time_all() -> None:
    """All of them in int8 as ours, in turn in one process: milliseconds of the session that was disturbed least."""
    workspace = Workspace.find()
    networks = {one.name: resolve(workspace, one.architecture, families.CLASSES) for one in compared()}
    ms = families.measured(list({network.name: network for network in networks.values()}.values()))
    truth.write(TOGETHER, {name: ms[network.name] for name, network in networks.items()})


def summary() -> None:
    """results.json, and the table of README.md between its marks."""
    timed = json.loads(TOGETHER.read_text()) if TOGETHER.is_file() else {}
    by_space = {one.space: [other for other in compared() if other.space == one.space] for one in compared()}
    trained = {space: [one for one in those if one.trainings] for space, those in by_space.items()}
    rows = [of_space(those, timed) for those in trained.values() if any(one.role == SEARCHED for one in those)]
    truth.write(RESULTS, {"spaces": rows})
    table = "\n".join(table_of(rows))
    before_it, mark, after = README.read_text().partition("<!-- accuracy -->\n")
    README.write_text(f"{before_it}{mark}{table}\n{END}{after.partition(END)[2]}")
    print(table)


def of_space(compared: Sequence[Compared], timed: Mapping[str, float]) -> dict[str, Any]:
    """The networks of a space, and by how much those searched are better, with intervals over videos and seeds."""
    by_role = {one.role: one for one in compared}
    space = compared[0].space
    return {
        "space": space,
        **told(space, SEARCHED),
        **({"within_1.5ms": told(space, SEARCHED_MIDDLE)} if SEARCHED_MIDDLE in by_role else {}),
        **({"within_1ms": told(space, SEARCHED_HALF)} if SEARCHED_HALF in by_role else {}),
        **{one.role: of_network(one, timed) for one in compared},
        "better_by": {role: apart(by_role[SEARCHED], by_role[role]) for role in DRAWN_MS if role in by_role},
        "better_by_in_the_same_time": {
            role: apart(by_role[same], by_role[role])
            for role, same in SAME_TIME.items()
            if role in by_role and same in by_role
        },
    }


def told(space: str, role: str) -> dict[str, Any]:
    """What the search said of itself and of its network."""
    study = study_of(space, role)
    assert study is not None
    return {
        "feasible": study["feasible"],
        "trials": study["trials"],
        "predicted_ms": study["best"]["predicted_ms"][families.DEVICE],
        "measured_ms": study["best"]["measured_ms"][families.DEVICE],
    }


def apart(ours: Compared, other: Compared) -> list[float]:
    """By how much top-1 of the first is higher, and the bounds of the interval."""
    return [round(float(value), 4) for value in equal_ms.apart([hits(ours.trainings)], hits(other.trainings))]


def of_network(one: Compared, timed: Mapping[str, float]) -> dict[str, Any]:
    network = resolve(Workspace.find(), one.architecture, families.CLASSES)
    seeds = [row["top1"] for row in one.trainings]
    return {**families.facts(network), "ms": timed.get(one.name), "top1": statistics.fmean(seeds), "seeds": seeds}


def hits(trainings: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Whether the last evaluation had each video right: (seeds, videos)."""
    return np.array([[int(digit) for digit in one["hits"]] for one in trainings])


def table_of(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| space | network | int8, ms | clip | GMAC | parameters | top-1 | seeds | the search better by |"]
    lines.append("| --- " * 9 + "|")
    for row in rows:
        for role, words in ((role, words) for role, words in WORDS.items() if role in row):
            one, better = row[role], row["better_by_in_the_same_time"].get(role)
            ms = f"{one['ms']:.2f}" if one["ms"] else "?"
            seeds = ", ".join(f"{100 * seed:.1f}" for seed in one["seeds"])
            by = "{:.1f} ({:.1f} to {:.1f})".format(*(100 * value for value in better)) if better else ""
            lines.append(
                f"| {row['space']} | {words} | {ms} | {families.clip_of(one)} | {one['gmacs']:.3f} | "
                f"{1e-6 * one['parameters']:.2f} M | {one['top1']:.1%} | {seeds} | {by} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train")
    train.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    train.add_argument("--until", type=float, default=float("inf"), help="seconds after which no training is begun")
    for name in ("time", "summary"):
        commands.add_parser(name)
    given = parser.parse_args()
    torch.set_num_threads(1)
    match given.command:
        case "train":
            recipes.train_all(jobs(), given.device, given.until, last=1)
        case "time":
            time_all()
        case "summary":
            summary()


if __name__ == "__main__":
    main()
