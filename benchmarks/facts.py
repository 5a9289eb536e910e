"""What a benchmark ran on, for its results."""

from __future__ import annotations

import os
from typing import Any

from kernelgym_env.devices import cpu_name
from kernelgym_env.pools.software import software

VERSIONS = ("kernelgym_env", "python", "gymnasium", "numpy")


def facts() -> dict[str, Any]:
    """The machine, how busy it was with other work, and versions."""
    import gymnasium

    versions = {**software(), "gymnasium": gymnasium.__version__}
    return {
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "load_average_1min": round(os.getloadavg()[0], 2),
        "versions": {name: versions[name] for name in VERSIONS},
    }
