"""``python -m kernelgym_env.cli``."""

import sys

from kernelgym_env.cli.command import main

sys.exit(main())
