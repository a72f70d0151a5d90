"""Makes this folder again: ``PYTHONPATH=CHECKOUT python make.py FOLDER``, CHECKOUT being a checkout of commit afbb81b.

FOLDER is an empty one, outside of any checkout. Everything but the last step is done by the commands of that commit;
the last one asks its library for the numbers that ``expected.json`` holds.
"""

from __future__ import annotations

import base64
import json
import lzma
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPACE = "kept"
CLASSES = 8
# Samples that are kept of a session.
SAMPLES = 24


def run(*words: str) -> None:
    print("$ hwbench", *words, flush=True)
    subprocess.run([sys.executable, "-m", "hwbench", *words], check=True)


def thin(root: Path) -> None:
    """Leaves of each session its first samples: the store is 12 MB with all of them."""
    with sqlite3.connect(root / ".hwbench/measurements.sqlite") as db:
        for number, samples in db.execute("SELECT id, samples_ns FROM sessions").fetchall():
            short = json.dumps(json.loads(samples)[:SAMPLES], separators=(",", ":"))
            db.execute("UPDATE sessions SET samples_ns = ? WHERE id = ?", (short, number))


def base64_lines(data: bytes) -> str:
    text = base64.b64encode(lzma.compress(data, preset=9)).decode()
    return "\n".join(text[at : at + 120] for at in range(0, len(text), 120)) + "\n"


def commands(root: Path) -> None:
    run("profile", "--space", SPACE, "--precision", "fp32,int8", "--calibrate", "4", "--processes", "1")
    run("search", "--space", SPACE, "--budget", f"{budget_ms(root):.4g}ms", "--trials", "6", "--measure", "2",
        "--seed", "3", "--study", SPACE)  # fmt: skip
    run("train", f"{SPACE}:best", "--epochs", "1", "--batch-size", "32", "--threads", "1", "--workers", "0",
        "--seed", "5", "--device", "cpu", "--out", "runs/kept")  # fmt: skip
    for precision in ("fp32", "int8"):
        run("export", "runs/kept/checkpoint.pt", "--precision", precision, "--out", f"runs/kept/{precision}",
            "--calibration-clips", "4", "--videos", "8", "--threads", "1")  # fmt: skip


def tables(root: Path) -> dict[str, Path]:
    return {("int8" if ".int8." in p.name else "fp32"): p for p in sorted((root / "profiles/local").glob("*.csv"))}


def budget_ms(root: Path) -> float:
    """The median of what the networks of the space are predicted to take."""
    seconds = sorted(one["seconds"] for one in predictions(root, "int8").values())
    return 1e3 * seconds[len(seconds) // 2]


def predictions(root: Path, precision: str) -> dict[str, dict[str, float]]:
    from hwbench.latency import AdditivePredictor, LatencyTable
    from hwbench.spaces import load_space
    from hwbench.specs import Precision
    from hwbench.workspace import Workspace

    predictor = AdditivePredictor.fit(LatencyTable.read(tables(root)[precision]), space=SPACE)
    space = load_space(Workspace(root), SPACE)
    found = {}
    for architecture in space.architectures():
        workload = space.network(architecture, CLASSES).workload(Precision.parse(precision))
        estimate = predictor.predict(workload)
        found[architecture.key] = {"seconds": estimate.seconds, "low_s": estimate.low_s, "high_s": estimate.high_s}
    return found


def store_rows(root: Path) -> list[dict[str, object]]:
    from hwbench.measure.store import MeasurementStore
    from hwbench.workspace import Workspace

    found = []
    with MeasurementStore(Workspace(root).store) as store:
        for target in store.targets("local"):
            for row in store.rows(target):
                one = row.measurement
                found.append(
                    {
                        "workload": one.workload.key,
                        "target": one.target.key,
                        "outcome": one.outcome.value,
                        "sessions": len(one.sessions),
                        "median_s": one.stats.median_s,
                        "p10_s": one.stats.p10_s,
                        "p90_s": one.stats.p90_s,
                        "ci_low_s": one.stats.ci_low_s,
                        "ci_high_s": one.stats.ci_high_s,
                        "build": row.build,
                        "finished_at": row.finished_at,
                    }
                )
    return found


def store_knowledge(root: Path) -> list[dict[str, object]]:
    """What the store knows beyond rows: by conditions the clock, how far it is followed, and the quietest sessions."""
    from hwbench.measure.store import MeasurementStore
    from hwbench.workspace import Workspace

    found = []
    with MeasurementStore(Workspace(root).store) as store:
        digests = [digest for (digest,) in store.database.select("SELECT fingerprint FROM conditions ORDER BY 1")]
        for digest in digests:
            conditions = store.conditions_of(digest)
            assert conditions is not None
            undisturbed = store.undisturbed(conditions)
            found.append(
                {
                    "conditions": digest,
                    "clock": store.clock(conditions),
                    "followed": store.followed(conditions),
                    "crowding": undisturbed.crowding.usual,
                    "memory": undisturbed.memory.usual,
                    "counts": store.counts(),
                }
            )
    return found


def keys(root: Path) -> dict[str, object]:
    """Keys of the build cache, by what they are digests of."""
    from hwbench.measure.cache import ArtifactCache, installed_version, sources_digest
    from hwbench.specs import Workload
    from hwbench.workspace import Workspace

    packages = ("executorch", "torchao", "torch")
    cache = ArtifactCache(Workspace(root).cache, "executorch")
    workloads = sorted({str(row["workload"]) for row in store_rows(root)})
    return {
        "sources": sources_digest(),
        "versions": {name: installed_version(name) for name in packages},
        "keys": {key: cache.key(Workload.parse(key)) for key in workloads},
    }


def digests(root: Path) -> dict[str, str]:
    from hwbench.search.latencies import choices_digest

    from hwbench.spaces import load_space
    from hwbench.workspace import Workspace

    return {name: choices_digest(load_space(Workspace(root), name)) for name in (SPACE, "x3d-tiny", "x3d-mobile")}


def logits(root: Path) -> list[list[float]]:
    import torch
    from hwbench.train.checkpoint import build, load_checkpoint

    checkpoint, weights = load_checkpoint(root / "runs/kept/checkpoint.pt")
    module = build(checkpoint, weights)
    _, c, t, h, w = checkpoint.network.input.shape
    clip = torch.arange(2 * c * t * h * w, dtype=torch.float32).mul_(0.37).sin_().reshape(2, c, t, h, w)
    with torch.no_grad():
        return module(clip).tolist()


def best(root: Path) -> dict[str, object]:
    from hwbench.spaces.resolve import resolve
    from hwbench.workspace import Workspace

    network = resolve(Workspace(root), f"{SPACE}:best", CLASSES)
    return {"name": network.name, "blocks": [block.key for block in network.blocks], "input": network.input.key}


def keep(root: Path) -> None:
    thin(root)
    for path in tables(root).values():
        shutil.copy(path, HERE / path.name)
    with sqlite3.connect(root / ".hwbench/measurements.sqlite") as db:
        pragmas = [f"PRAGMA {name} = {db.execute(f'PRAGMA {name}').fetchone()[0]};"
                   for name in ("application_id", "user_version")]  # fmt: skip
        HERE.joinpath("measurements.sql").write_text("\n".join([*db.iterdump(), *pragmas]) + "\n")
    study = root / ".hwbench/studies" / SPACE
    HERE.joinpath("study").mkdir(exist_ok=True)
    for name in ("journal.log", "result.json"):
        shutil.copy(study / name, HERE / "study" / name)
    data = (root / "runs/kept/checkpoint.pt").read_bytes()
    HERE.joinpath("checkpoint.base64").write_text(base64_lines(data))
    shutil.copy(root / "runs/kept/metrics.jsonl", HERE / "metrics.jsonl")
    for precision in ("fp32", "int8"):
        shutil.copy(root / "runs/kept" / precision / "manifest.json", HERE / f"manifest-{precision}.json")
    cache = root / ".hwbench/cache"
    shutil.copy(sorted(cache.glob("*.json"))[0], HERE / "build.json")
    expected = {
        "predictions": {precision: predictions(root, precision) for precision in ("fp32", "int8")},
        "rows": store_rows(root),
        "knowledge": store_knowledge(root),
        "cache": keys(root),
        "digests": digests(root),
        "logits": logits(root),
        "best": best(root),
    }
    HERE.joinpath("expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    if not (root / "search_spaces").is_dir():
        subprocess.run([sys.executable, "-m", "hwbench", "init", str(root)], check=True)
        shutil.copy(HERE / "space.toml", root / "search_spaces" / f"{SPACE}.toml")
    os.chdir(root)
    commands(root)
    keep(root)


main()
