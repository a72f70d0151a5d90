"""All commands: importing this module registers them. One line each, in alphabetical order."""

import hwbench.cli.bench
import hwbench.cli.dashboard
import hwbench.cli.data
import hwbench.cli.devices
import hwbench.cli.diff
import hwbench.cli.doctor
import hwbench.cli.export
import hwbench.cli.init
import hwbench.cli.profile
import hwbench.cli.quickstart
import hwbench.cli.report
import hwbench.cli.scoreboard
import hwbench.cli.search
import hwbench.cli.train
import hwbench.cli.validate
import hwbench.cli.verify
import hwbench.cli.zoo  # noqa: F401
