"""``hwbench devices``: what can be measured on; a subcommand each to add, look at, check and remove one."""

from hwbench.cli.devices import add, check, group, listing, prepare, remove, show, trust  # noqa: F401  # registers them
