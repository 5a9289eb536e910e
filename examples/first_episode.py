"""Plays one episode of four turns on this machine's CPU, with a scripted policy and a live table.

The script answers wrongly, then correctly but slowly, then with code that does not compile, then with C++ that beats
eager PyTorch. Run it with `make demo`, or `python examples/first_episode.py` where the package is installed.
"""

from __future__ import annotations

import argparse
import itertools
import time

import gymnasium as gym
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.text import Text

import kernelgym_env
from kernelgym_env import rendering
from kernelgym_env.policies import first_episode
from kernelgym_env.policies.scripted import FIRST_EPISODE_TASK


def main() -> None:
    """Play the episode and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=4)
    arguments = parser.parse_args()
    console = Console()
    start = time.perf_counter()

    env = gym.make(f"{FIRST_EPISODE_TASK}-v0", device="cpu", turns=arguments.turns)
    policy = first_episode()
    observation, _ = env.reset(seed=0)
    console.print(Panel(Text(kernelgym_env.render_prompt(observation)[:1500] + "\n…"), title="the prompt"))

    first_reward, done = 0.0, False
    with Live(console=console, refresh_per_second=8) as live:
        while not done:
            episode = env.unwrapped.episode
            returns = list(itertools.accumulate(turn.score for turn in episode.played))
            waiting = Spinner("dots", Text(f" turn {episode.turn + 1}: building, checking, timing …"))
            live.update(Group(rendering.table(episode, returns), waiting))
            action = policy.act([observation])[0]
            observation, reward, terminated, truncated, info = env.step(action.text)
            first_reward = first_reward or time.perf_counter() - start
            done = terminated or truncated
            live.console.print(Panel(Text(observation["feedback"]), title=f"feedback of turn {info['turn']}"))
        episode = env.unwrapped.episode
        returns = list(itertools.accumulate(turn.score for turn in episode.played))
        live.update(rendering.table(episode, returns))
    env.close()
    best = info["best_speedup"]
    console.print(f"\nFirst reward after {first_reward:.1f} s, episode in {time.perf_counter() - start:.1f} s.")
    console.print(f"Best speedup over eager PyTorch on this CPU: {best:.2f}x.")


if __name__ == "__main__":
    main()
