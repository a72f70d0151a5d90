"""Does the interval of a prediction hold what the quickstart measures in the end? See README.md.

python experiments/001-quickstart/interval.py --seeds 0-9      # interval.json; goes on with what it lacks
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hwbench.api.prediction import table_predictor
from hwbench.api.quickstart import SPACE
from hwbench.spaces import load_space
from hwbench.specs import Architecture, Precision
from hwbench.testing.tables import installed_target
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
OUT = HERE / "interval.json"


def one(seed: int) -> dict[str, object]:
    """The whole loop in a workspace of its own, and what its table says of its network."""
    with tempfile.TemporaryDirectory() as folder:
        Workspace.create(Path(folder))
        command = [sys.executable, "-P", "-m", "hwbench", "quickstart", "--seed", str(seed), "--json"]
        # A lease of its own: other runs may use the device at the same time.
        environment = {**os.environ, "XDG_STATE_HOME": f"{folder}/state"}
        done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if not done.stdout:
            return {"seed": seed, "status": done.returncode}
        result = json.loads(done.stdout)
        workspace, target = Workspace.find(Path(folder)), installed_target()
        predictor, classes = table_predictor(workspace, target, Precision.INT8, SPACE)
        network = load_space(workspace, SPACE).network(Architecture.parse(result["architecture"]), classes)
        said = predictor.predict(network.workload(Precision.INT8))
        apart = predictor.calibration.uncertainty.spread(predictor.calibration.promised)
    low_ms, high_ms = said.low_s * 1e3, said.high_s * 1e3
    kept = ("architecture", "budget_ms", "predicted_ms", "measured_ms", "top1_fp32", "top1_int8", "seconds")
    return {
        "seed": seed,
        "status": done.returncode,
        **{key: result[key] for key in kept},
        "low_ms": round(low_ms, 4),
        "high_ms": round(high_ms, 4),
        "spread_of_calibration": round(apart, 4),
        "inside": low_ms <= result["measured_ms"] <= high_ms,
        "load": round(os.getloadavg()[2], 1),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", default="0-9", help="first and last")
    options.add_argument("--out", type=Path, default=OUT)
    given = options.parse_args()
    first, last = map(int, given.seeds.split("-"))
    runs = json.loads(given.out.read_text()) if given.out.exists() else []
    for seed in range(first, last + 1):
        if seed not in [run["seed"] for run in runs]:
            runs.append(one(seed))
            given.out.write_text(json.dumps(runs, indent=1) + "\n")
            print(runs[-1], flush=True)
    print(f"{sum(bool(run.get('inside')) for run in runs)} of {len(runs)} inside")


if __name__ == "__main__":
    main()
