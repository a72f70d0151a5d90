"""Do two tables of one command, taken some time apart, agree within their intervals? See README.md.

python experiments/010-repeat-tables/run.py [--pause 1h] [--out FOLDER] -- --space x3d-tiny --precision int8
python experiments/010-repeat-tables/run.py --tables FIRST SECOND
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from hwbench.api.diff import changes_as_json
from hwbench.errors import InvalidValue
from hwbench.latency import LatencyTable, compare_tables, taken_otherwise
from hwbench.units import parse_duration
from hwbench.workspace import Workspace

ENOUGH = 0.95


def workspace(root: Path, device: str) -> Path:
    """A workspace that knows nothing but the device and the files that were built."""
    made, here = Workspace.create(root), Workspace.find()
    (root / "profiles" / device).mkdir(exist_ok=True)
    shutil.copyfile(here.device(device), root / "profiles" / device / "device.toml")
    here.cache.mkdir(parents=True, exist_ok=True)
    made.cache.symlink_to(here.cache)
    return root


def profile(root: Path, device: str, arguments: list[str]) -> list[Path]:
    """Runs the command; returns its tables."""
    command = [sys.executable, "-P", "-m", "hwbench", "profile", "--device", device, *arguments, "--json"]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return [root / name for name in json.loads(done.stdout)["tables"]]


def twice(device: str, arguments: list[str], pause_s: float, out: Path) -> list[tuple[Path, Path]]:
    """Profiles twice, the pause between the beginnings; the tables are kept in ``out``."""
    kept: list[list[Path]] = []
    with tempfile.TemporaryDirectory() as scratch:
        root = workspace(Path(scratch), device)
        began = time.monotonic()
        for name in ("first", "second"):
            if kept and (left := began + pause_s - time.monotonic()) > 0:
                print(f"waiting for {left:.0f} s", file=sys.stderr, flush=True)
                time.sleep(left)
            tables = profile(root, device, [*arguments, *(["--anew"] if kept else [])])
            (out / name).mkdir(parents=True, exist_ok=True)
            kept.append([Path(shutil.copy(table, out / name / table.name)) for table in tables])
    return list(zip(*kept, strict=True))


def compare(first: Path, second: Path) -> dict[str, object]:
    """What of two tables agrees; ``agreeing`` is what counts."""
    tables = LatencyTable.read(first), LatencyTable.read(second)
    try:
        changes = compare_tables(*tables)
    except InvalidValue as error:  # a machine that is used by others gives noisy rows alone
        raise SystemExit(f"{first}, {second}: {error}") from None
    found = changes_as_json(changes, taken_otherwise(*tables))
    del found["rows"]  # they follow from the tables
    shown = [None if table.aa is None else table.aa.found.largest for table in tables]
    return {
        "tables": [os.path.relpath(path) for path in (first, second)],
        "rows": len(changes.rows),
        "failed": [sum(row.stats is None for row in table) for table in tables],
        "agreeing": changes.agreeing,
        "enough": changes.agreeing >= ENOUGH,
        "consistent": changes.consistent,
        "aa": shown,
        **{key: value for key, value in found.items() if key != "agreeing"},
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--tables", nargs=2, type=Path, help="compare these and measure nothing")
    options.add_argument("--device", default="local")
    options.add_argument("--pause", default="1h", help="between the beginnings of the two; 0: none")
    options.add_argument("--out", type=Path, default=Path(__file__).parent, help="where tables and results.json go")
    options.add_argument("arguments", nargs="*", help="options of hwbench profile, behind --")
    given = options.parse_args()
    if given.tables:
        pairs = [tuple(given.tables)]
    else:
        pause_s = 0.0 if given.pause == "0" else parse_duration(given.pause, name="--pause")
        pairs = twice(given.device, given.arguments, pause_s, given.out)
    found = [compare(*pair) for pair in pairs]
    for one in found:
        print(f"{one['tables'][1]}: {one['agreeing']:.1%} of {one['rows']} rows agree; {one['finding']}")
    if not given.tables:
        results = {"arguments": given.arguments, "device": given.device, "pause": given.pause}
        results |= {"ended_at": datetime.now(UTC).isoformat(timespec="seconds"), "tables": found}
        (given.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    sys.exit(0 if all(one["enough"] for one in found) else 5)


if __name__ == "__main__":
    main()
