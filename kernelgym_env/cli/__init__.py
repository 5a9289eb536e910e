"""The command ``kernelgym``.

- `main` -- run it; returns the exit code.

Exit codes: 0 done, 1 a negative verdict, 2 a mistake in the call, 3 a fault of the infrastructure.
"""

from kernelgym_env.cli.command import main

__all__ = ["main"]
