"""The command line, one file per command group; each command imports what it needs when it runs."""
