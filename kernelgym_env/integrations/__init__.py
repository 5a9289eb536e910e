"""Adapters for training libraries. Each module needs its library, which is an extra of this package.

- `kernelgym_env.integrations.sb3` -- stable-baselines3 and sb3-contrib.
"""
