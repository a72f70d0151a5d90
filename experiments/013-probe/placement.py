"""What the ratio of the two loops depends on beside other users of the core: where their code lies. See README.md.

python experiments/013-probe/placement.py
"""

import json
import subprocess
import tempfile
from pathlib import Path

from hwbench.runtimes.native.build import SOURCES, Wheel, find_compiler

HERE = Path(__file__).parent
PLACES = range(0, 64, 4)


def main() -> None:
    found: dict[int, list[float]] = {1: [], 16: []}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "placement")
        words = Wheel.installed().command(find_compiler(), program)
        words = [str(HERE / "placement.cpp") if word == str(SOURCES / "runner.cpp") else word for word in words]
        for place in PLACES:
            for times, ratios in found.items():
                options = [f"-I{SOURCES}", f"-DTIMES={times}", f'-DPAD="{place}"', "-fno-align-functions"]
                subprocess.run([*words, *options, "-fno-align-loops"], check=True, stderr=subprocess.DEVNULL)
                ratios.append(float(subprocess.run([program], check=True, capture_output=True).stdout))
    for times, ratios in found.items():
        print(f"{times:2} times in one round: {min(ratios):.3f} to {max(ratios):.3f} over {len(PLACES)} places")
    results = {str(times): ratios for times, ratios in found.items()}
    (HERE / "placement.json").write_text(json.dumps({"bytes": list(PLACES), "ratio": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
