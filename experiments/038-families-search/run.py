"""What a search finds in the space of each family within 2 ms, beside the draws of 014. See README.md.

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
SEARCHED, DRAWN, HALF = "search", "draw", "half"
# The budgets of 014 whose draws are compared: its machine took twice as long as that of the searches.
DRAWN_MS = {DRAWN: 4.0, HALF: 2.0}
# What half of the time costs was asked in two spaces.
HALVED = ("i3d-mobile", "slow-mobile")
WORDS = {SEARCHED: "the search's", DRAWN: "drawn, for 2 ms", HALF: "drawn, for 1 ms"}
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
    """A network of a space: what its search found, or one of 014's draws, as long or half as long."""

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
    for path in sorted(HERE.glob("search-*.json")):
        name = path.stem.removeprefix("search-")
        drawn = json.loads((families.NETWORKS / f"{name}.json").read_text())
        found.append(Compared(name, SEARCHED, json.loads(path.read_text())["best"]["architecture"]))
        roles = [role for role in DRAWN_MS if role != HALF or name in HALVED]
        found += [Compared(name, role, families.best(drawn, DRAWN_MS[role])["architecture"]) for role in roles]
    return found


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
    rows = [of_space(*those, timed=timed) for those in by_space.values() if all(one.trainings for one in those)]
    truth.write(RESULTS, {"spaces": rows})
    table = "\n".join(table_of(rows))
    before_it, mark, after = README.read_text().partition("<!-- accuracy -->\n")
    README.write_text(f"{before_it}{mark}{table}\n{END}{after.partition(END)[2]}")
    print(table)


def of_space(searched: Compared, *drawn: Compared, timed: Mapping[str, float]) -> dict[str, Any]:
    """The networks of a space, and by how much the searched one is better, with its interval over videos and seeds."""
    study = json.loads((HERE / f"search-{searched.space}.json").read_text())
    ours = [hits(searched.trainings)]
    better = {one.role: equal_ms.apart(ours, hits(one.trainings)) for one in drawn}
    return {
        "space": searched.space,
        "feasible": study["feasible"],
        "trials": study["trials"],
        "predicted_ms": study["best"]["predicted_ms"][families.DEVICE],
        "measured_ms": study["best"]["measured_ms"][families.DEVICE],
        **{one.role: of_network(one, timed) for one in (searched, *drawn)},
        "better_by": {role: [round(one, 4) for one in values] for role, values in better.items()},
    }


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
            one, better = row[role], row["better_by"].get(role)
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
