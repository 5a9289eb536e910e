"""The environment ids: one per task, a generic one, and a fake one for tests.

| id | task |
|---|---|
| ``KernelGym/<Name>-v0`` | one task of the core suite |
| ``KernelRL/<Name>-v0`` | one task of the suite of reinforcement learning |
| ``KernelBench/L<level>-<nnn>-v0`` | one task of KernelBench; its data is looked for when the environment is made |
| ``KernelGym/Kernel-v0`` | ``task=…``, or drawn from the core suite at each reset |
| ``KernelGym/Mix-v0`` | drawn from the core suite, each of its three levels equally often |
| ``KernelBench/Mix-v0`` | the same with KernelBench's levels 1 to 3 |
| ``KernelGym/Fake-v0`` | deterministic evaluations without processes |
"""

from __future__ import annotations

from gymnasium.envs.registration import register, registry

from kernelgym_env.tasks import task_ids

__all__ = ["environment_ids", "register_environments"]

_ENTRY = "kernelgym_env.env:KernelEnv"
_VECTOR_ENTRY = "kernelgym_env.vector_env:KernelVectorEnv"
_GENERIC = "KernelGym/Kernel-v0"
_FAKE = "KernelGym/Fake-v0"
_FAKE_TASK = "KernelGym/ElementwiseChain"
_MIXES = {"KernelGym/Mix-v0": "core", "KernelBench/Mix-v0": "KernelBench/250"}
_EQUAL = {"1": 1.0, "2": 1.0, "3": 1.0}  # levels as texts, so that the spec goes through JSON unchanged


def environment_ids() -> list[str]:
    """Every id of this package, generic ones first."""
    return [_GENERIC, *_MIXES, _FAKE, *(f"{task_id}-v0" for task_id in task_ids())]


def register_environments() -> None:
    """Register every id; ids that are registered already are left alone."""
    for env_id in environment_ids():
        if env_id in registry:
            continue
        kwargs: dict[str, object] = {}
        if env_id == _FAKE:
            kwargs = {"task": _FAKE_TASK, "pool": "fake"}
        elif env_id in _MIXES:
            kwargs = {"task": _MIXES[env_id], "level_mix": dict(_EQUAL)}
        elif env_id != _GENERIC:
            kwargs = {"task": env_id.removesuffix("-v0")}
        # A measured time is never the same twice. The fake evaluator's is, but gymnasium's checker compares the NaN
        # that stands for "absent" in `info` with itself and would find a difference.
        register(env_id, entry_point=_ENTRY, vector_entry_point=_VECTOR_ENTRY, kwargs=kwargs, nondeterministic=True)
