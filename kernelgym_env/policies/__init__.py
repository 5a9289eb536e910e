"""Who acts in an environment.

- `Action`, `Policy` -- the protocol.
- `ScriptedPolicy` -- plays given replies; `first_episode` is the one of the demo.
"""

from kernelgym_env.policies.base import Action, Policy
from kernelgym_env.policies.scripted import ScriptedPolicy, first_episode

__all__ = ["Action", "Policy", "ScriptedPolicy", "first_episode"]
