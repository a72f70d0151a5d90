"""Every fault at every moment over both transports, on lab devices: what is lost? See README.md.

python experiments/004-device-faults/run.py [--transports ssh adb] [--actions push run pull] [--faults "reboot" ...]
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from hwbench.testing import lab
from hwbench.testing.faults import ACTIONS, FAULTS, Case, run_case
from hwbench.workspace import Workspace

HERE = Path(__file__).parent
DEVICES = {"ssh": lab.ssh_board, "adb": lab.android_phone}


def table(cases: list[Case]) -> str:
    lines = [
        "| transport | during | fault | rows before | after | sessions before | after | wanted | the command | ok |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    order = [fault.name for fault in FAULTS]
    for case in sorted(cases, key=lambda one: (one.transport, order.index(one.fault), ACTIONS.index(one.action))):
        ended = "ended, then again" if case.ended else "went on"
        lines.append(
            f"| {case.transport} | {case.action} | {case.fault} | {case.rows_before} | {case.rows_after} "
            f"| {case.sessions_before} | {case.sessions_after} | {case.sessions_wanted} | {ended} "
            f"| {'yes' if case.ok else 'NO'} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--transports", nargs="+", default=list(DEVICES), choices=list(DEVICES))
    options.add_argument("--actions", nargs="+", default=ACTIONS, choices=ACTIONS)
    options.add_argument("--faults", nargs="+", default=[fault.name for fault in FAULTS])
    options.add_argument("--out", type=Path, default=HERE)
    given = options.parse_args()
    workspace = Workspace.create(Workspace.find().state / "faults")
    given.out.mkdir(parents=True, exist_ok=True)
    path = given.out / "cases.json"
    stored = [Case(**one) for one in json.loads(path.read_text())] if path.exists() else []
    known = {(one.transport, one.action, one.fault): one for one in stored}
    cases = []
    for transport in given.transports:
        with DEVICES[transport]() as device:
            for fault in FAULTS:
                for action in given.actions if fault.name in given.faults else ():
                    case = run_case(device, fault, action, workspace=workspace)
                    cases.append(case)
                    print(
                        f"{transport} {action} {fault.name}: {'ok' if case.ok else case} {case.seconds} s", flush=True
                    )
                    case = replace(case, ended=case.ended.replace(str(workspace.root), "WORKSPACE"))
                    known[transport, action, fault.name] = case
                    path.write_text(json.dumps([asdict(one) for one in known.values()], indent=1) + "\n")
                    (given.out / "table.md").write_text(table(list(known.values())))
    bad = [case for case in cases if not case.ok]
    print(f"{len(cases)} cases, {len(bad)} of them lost or left something")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
