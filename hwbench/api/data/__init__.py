"""What ``hwbench data`` does with videos: list, check, prepare, time and show them."""
