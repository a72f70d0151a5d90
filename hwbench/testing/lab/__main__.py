"""Fetches what the laboratory cannot take from installed packages, and says what else devices need, by their transport.

Exit status 1 where no device can be made.
"""

import sys

from hwbench.devices.laboratory import requirements
from hwbench.devices.virtual import OVER
from hwbench.errors import MissingDependency
from hwbench.testing.lab.needs import fetch_busybox

try:
    fetch_busybox()
except MissingDependency as missing:
    sys.exit(str(missing))
lacking = {over: requirements(over) for over in OVER}
for over, needs in lacking.items():
    for need in needs:
        print(f"over {over} {need}", file=sys.stderr)
sys.exit(int(all(lacking.values())))
