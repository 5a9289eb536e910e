"""One submission's way: format, build, correctness, timing, verdict."""
