"""Inference engines. A new one is a file here and a line below (imported when first asked for)."""
