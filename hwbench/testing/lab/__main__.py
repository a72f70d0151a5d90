"""Fetches what the laboratory cannot take from installed packages, and says what else is missing."""

import sys

from hwbench.errors import MissingDependency
from hwbench.testing.lab.needs import fetch_busybox, requirements

try:
    fetch_busybox()
except MissingDependency as missing:
    sys.exit(str(missing))
sys.exit("\n".join(requirements()) or None)
