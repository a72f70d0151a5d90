"""``python -m hwbench`` is the program ``hwbench``."""

from hwbench.cli.main import main

main()
