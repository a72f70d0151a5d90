"""Conformance suites and fakes, shipped so that extensions can test themselves without a device."""
