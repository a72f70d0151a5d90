"""An adaptive table against networks that were measured after it: those of 018. See README.md.

From the workspace in which the table was taken and 018's networks were measured:

hwbench profile --device local --space x3d-mini --precision int8 --classes 48      # and fp32
python experiments/018-ground-truth/run.py latency
python experiments/015-rows-needed/live.py                                          # live.json
"""

import importlib.util
import json
import statistics
import sys
from pathlib import Path

from scipy.stats import spearmanr

from hwbench.api.prediction import table_predictor
from hwbench.specs import Precision
from hwbench.testing.tables import installed_target
from hwbench.workspace import Workspace

HERE = Path(__file__).resolve().parent
SPACE, CLASSES = "x3d-mini", 48


def main() -> None:
    spec = importlib.util.spec_from_file_location("truth", HERE.parent / "018-ground-truth" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    truth = sys.modules["truth"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(truth)
    workspace, target = Workspace.find(), installed_target()
    measured_ms = json.loads((truth.HERE / "latency.json").read_text())
    results = {}
    for precision in (Precision.INT8, Precision.FP32):
        predictor, _ = table_predictor(workspace, target, precision, SPACE, CLASSES, False, (True, None))
        measured = {key: ms / 1e3 for key, ms in measured_ms[precision.value].items()}
        said = {key: predictor.predict(truth.network_of(key).workload(precision)) for key in measured}
        errors = [said[key].seconds / seconds - 1 for key, seconds in measured.items()]
        inside = [said[key].low_s <= seconds <= said[key].high_s for key, seconds in measured.items()]
        results[precision.value] = {
            "networks": len(errors),
            "median_error": round(statistics.median(map(abs, errors)), 4),
            "bias": round(statistics.median(errors), 4),
            "within_5": round(statistics.fmean(abs(error) <= 0.05 for error in errors), 3),
            "largest_error": round(max(map(abs, errors)), 4),
            "coverage": round(statistics.fmean(inside), 3),
            "interval": round(statistics.median(one.high_s / one.low_s for one in said.values()) - 1, 3),
            "spearman": round(float(spearmanr([said[key].seconds for key in measured], list(measured.values()))[0]), 4),
            "measured_share": round(statistics.fmean(one.measured_share for one in said.values()), 2),
        }
        # Without what all networks are off by: what another occasion changes is in it.
        level = statistics.median(errors)
        rest = [abs((1 + error) / (1 + level) - 1) for error in errors]
        results[precision.value]["median_error_of_differences"] = round(statistics.median(rest), 4)
    (HERE / "live.json").write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
