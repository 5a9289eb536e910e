"""Plays one episode of four turns on this machine's CPU, with a scripted policy and a live table.

The script answers wrongly, then correctly but slowly, then with code that does not compile, then with C++ that beats
eager PyTorch. Run it with `make demo`, or `python examples/first_episode.py` where the package is installed.
"""
# ruff: noqa: E402

from __future__ import annotations

import time

START = time.perf_counter()  # before the imports: whoever waits for the first reward waits for them too

import argparse
import itertools
import math
import re
import textwrap

import gymnasium as gym
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

import kernelgym_env
from kernelgym_env import rendering
from kernelgym_env.episode import Episode
from kernelgym_env.policies import first_episode
from kernelgym_env.policies.scripted import FIRST_EPISODE_TASK

PROMPT_ROWS = 22
REFERENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Waiting:
    """A spinner with the seconds since it was made."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.spinner = Spinner("dots")
        self.start = time.perf_counter()

    def __rich__(self) -> Spinner:
        self.spinner.update(text=Text(f"{self.text} {time.perf_counter() - self.start:.0f} s"))
        return self.spinner


def shortened(prompt: str, columns: int) -> str:
    """The first lines of a prompt, without the source of the reference."""
    prompt = REFERENCE.sub(lambda found: f"[{found[1].count(chr(10))} lines of Python: the reference]", prompt, count=1)
    lines = prompt.splitlines()
    heights = itertools.accumulate(max(1, len(textwrap.wrap(line, columns))) for line in lines)
    shown = sum(height < PROMPT_ROWS for height in heights)
    rest = f"[{len(lines) - shown} more lines: kernelgym show {FIRST_EPISODE_TASK} --prompt]"
    return "\n".join([*lines[:shown], rest] if shown < len(lines) else lines)


def progress(episode: Episode, *, running: bool) -> Table:
    """The turns so far, each with the sum of the rewards up to it."""
    returns = list(itertools.accumulate(turn.score for turn in episode.played))
    return rendering.table(episode, returns, running=running)


def main() -> None:
    """Play the episode and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=4)
    arguments = parser.parse_args()
    console = Console(highlight=False)

    env = gym.make(f"{FIRST_EPISODE_TASK}-v0", device="cpu", turns=arguments.turns)
    policy = first_episode()
    observation, info = env.reset(seed=0)
    prompt = shortened(kernelgym_env.render_prompt(observation), console.width - 4)
    console.print(Panel(Text(prompt), title="the prompt"))

    first_reward, done = 0.0, False
    with Live(console=console, refresh_per_second=8) as live:
        while not done:
            turn = info["turn"] + 1
            action = policy.act([observation])[0]
            said = action.text.strip().partition("\n")[0]
            live.console.print(Text.assemble((f"reply of turn {turn}: ", "bold"), said))
            waiting = Waiting(f"turn {turn} of {arguments.turns}: building, checking, timing …")
            live.update(Group(progress(env.unwrapped.episode, running=True), waiting))
            observation, reward, terminated, truncated, info = env.step(action.text)
            first_reward = first_reward or time.perf_counter() - START
            done = terminated or truncated
            said = "\n".join(filter(None, [observation["feedback"], info["fault"]]))
            live.console.print(Panel(Text(said), title=f"feedback of turn {turn}"))
        live.update(progress(env.unwrapped.episode, running=False))
    env.close()
    seconds = time.perf_counter() - START
    console.print(f"\nFirst reward {first_reward:.1f} s after the start, whole episode {seconds:.1f} s.")
    if not math.isnan(info["best_speedup"]):
        console.print(f"Best speedup over eager PyTorch on this CPU: {info['best_speedup']:.2f}x.")


if __name__ == "__main__":
    main()
