"""Building and timing: ``builder`` (artifacts), ``runner`` (a process on the device), ``campaign``, ``store``."""
