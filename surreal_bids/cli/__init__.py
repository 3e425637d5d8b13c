"""Command lines: parse, build one frozen configuration, run."""
