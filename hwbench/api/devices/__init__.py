"""Devices through the API: what ``hwbench devices`` does, one module a command."""
