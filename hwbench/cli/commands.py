"""All commands: importing this module registers them. One line each, in alphabetical order."""

import hwbench.cli.doctor
import hwbench.cli.init  # noqa: F401
