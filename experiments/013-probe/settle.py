"""How long the clock takes to come back after a model, which is why the probe waits. See README.md.

python experiments/013-probe/settle.py [--times 300]
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from hwbench.measure.builder import Builder, BuildFailure
from hwbench.runtimes.native.build import SOURCES, Wheel, find_compiler
from hwbench.spaces import load_space
from hwbench.specs import Precision
from hwbench.workspace import Workspace

HERE = Path(__file__).parent
SPACE, BLOCKS, SEED = "x3d-mobile", 8, 13


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--times", type=int, default=300, help="of each block")
    given = options.parse_args()
    workspace = Workspace.find()
    results: dict[str, object] = {}
    with Builder("executorch", workspace.cache) as builder, tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "settle")
        source = str(HERE / "settle.cpp")
        words = Wheel.installed().command(find_compiler(), program)
        words = [source if word == str(SOURCES / "runner.cpp") else word for word in words]
        subprocess.run([*words, f"-I{SOURCES}"], check=True)
        for precision in Precision:
            parts = list(load_space(workspace, SPACE).parts(precision, num_classes=400))
            drawn = [parts[at] for at in np.random.default_rng(SEED).choice(len(parts), BLOCKS, replace=False)]
            built = [one for one in builder.build(drawn) if not isinstance(one, BuildFailure)]
            found = []
            for artifact in built:
                said = subprocess.run([program, artifact.path, str(given.times)], check=True, capture_output=True)
                found.append(np.array([line.split() for line in said.stdout.decode().splitlines()], dtype=float))
            usual = float(np.median(np.concatenate(found)[:, -8:]))
            slower = np.concatenate(found) / usual
            started = np.concatenate([[0.0], np.cumsum(np.median(np.concatenate(found), axis=0))[:-1]]) / 1e3
            results[precision.value] = {
                "after_us": [round(float(at), 1) for at in started],
                **{f"p{q}": [round(float(v), 3) for v in np.quantile(slower, q / 100, axis=0)] for q in (10, 50, 90)},
                "by_block": [round(float(np.median(one[:, :4]) / usual), 3) for one in found],
            }
            print(f"{precision}: the clock's time relative to the last pieces, by microseconds after the model")
            for at, middle in zip(started, np.median(slower, axis=0)):
                print(f"  {at:5.1f} us {middle:.3f}")
            print(f"  first four pieces, block by block: {results[precision.value]['by_block']}")
    (HERE / "settle.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
