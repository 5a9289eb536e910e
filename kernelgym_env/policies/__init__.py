"""Who acts in an environment.

- `Action`, `Policy` -- the protocol.
- `ScriptedPolicy` -- plays given replies; `first_episode` is the one of the demo.
- `TemplatePolicy` -- renders kernels from templates, with another schedule each turn.
"""

from kernelgym_env.policies.base import Action, Policy
from kernelgym_env.policies.scripted import ScriptedPolicy, first_episode
from kernelgym_env.policies.template import TemplatePolicy

__all__ = ["Action", "Policy", "ScriptedPolicy", "TemplatePolicy", "first_episode"]
