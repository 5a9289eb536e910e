"""Wrappers around `KernelEnv`.

The reward-shaping, guard, observation, action and recording wrappers build on what every step puts into `info`.
"""
