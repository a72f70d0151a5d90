"""Decoding, clip sampling, data sets, transforms and the built-in synthetic set."""
