"""The learner of `reward_study.py`: a softmax table over moves, trained by policy gradient on the simulated pool.

- `Move` -- something a policy may do: a directive for the simulated evaluator.
- `World` -- tasks, moves and the tables behind them.
- `Learner` -- the table of logits and its update.
- `Batch`, `rollout` -- episodes of all tasks, played side by side.

A learner knows its task, perhaps its turn, and its level: how far correct earlier turns of the episode have brought it.
It is small on purpose: what it does follows from rewards and advantages alone, not from a network.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.evaluation.submission import Submission
from kernelgym_env.pools.simulated import SimulatedPool
from kernelgym_env.pools.simulated_tasks import SimulatedConfig
from kernelgym_env.tasks import Task

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Move:
    """One move.

    Attributes:
        name: for tables.
        directives: what the source says, by level; the last one also stands for every higher level.
        opens: the level of the episode after a correct one, if it is higher than before.
        prior: its initial probability relative to the other moves.
    """

    name: str
    directives: tuple[str, ...]
    opens: int = 0
    prior: float = 1.0


@dataclass(frozen=True)
class World:
    """Tasks, moves and tables.

    Attributes:
        tasks: the tasks.
        moves: the moves, the same for each task.
        config: what the simulated evaluator knows.
        levels: number of levels.
    """

    tasks: Sequence[Task]
    moves: Sequence[Move]
    config: SimulatedConfig
    levels: int = 1

    def table(self, measure: Callable[[float, float, float, float], float]) -> Floats:
        """A figure of each task and move at level 0, from the true tables, shape [tasks, moves].

        Args:
            measure: of (probability to be credited, true speedup over eager, the same over compile, coverage).
        """
        return np.array([[measure(*self._truth(task, move)) for move in self.moves] for task in self.tasks])

    def _truth(self, task: Task, move: Move) -> tuple[float, float, float, float]:
        entry = self.config.task(task.id)
        over_compile = (entry.compile_us or entry.eager_us) / entry.eager_us
        kind, _, name = move.directives[0].partition("=")
        if kind == "hack":
            hack = self.config.hacks[name]
            return 1 - hack.detection, hack.speedup, hack.speedup * over_compile, hack.coverage
        if kind == "lazy":
            speedup = self.config.lazy_speedup
            return 1.0, speedup, speedup * over_compile, self.config.lazy_coverage
        schedule = entry.schedules[name]
        failures = entry.failures if schedule.failures is None else schedule.failures
        speedup = entry.eager_us / schedule.latency_us
        return 1 - sum(failures.values()), speedup, speedup * over_compile, schedule.coverage

    def hacks(self) -> NDArray[np.bool_]:
        """Which moves are hacks, shape [moves]."""
        return np.array([move.directives[0].startswith("hack=") for move in self.moves])


@dataclass
class Batch:
    """Episodes played side by side: the trajectories of the first task, then those of the second, and so on.

    Attributes:
        tasks: index of the task, shape [trajectories].
        moves: index of the move, shape [trajectories, turns]; 0 where not played.
        levels: level before the move, same shape.
        played: whether the turn was played, same shape.
        evaluations: what came out, None where not played.
    """

    tasks: NDArray[np.int64]
    moves: NDArray[np.int64]
    levels: NDArray[np.int64]
    played: NDArray[np.bool_]
    evaluations: list[list[Evaluation | None]]

    def scores(self, reward: Callable[[Evaluation], float]) -> Floats:
        """The reward of each turn, 0 where not played, shape [trajectories, turns]."""
        return np.array([[0.0 if found is None else reward(found) for found in row] for row in self.evaluations])


@dataclass
class Learner:
    """A softmax over moves for each task, turn and level.

    Attributes:
        world: where it plays.
        turns: turns that it can tell apart; later ones look like the last.
        logits: shape [tasks, turns, levels, moves].
    """

    world: World
    turns: int = 1
    logits: Floats = field(init=False)

    def __post_init__(self) -> None:
        prior = np.log([move.prior for move in self.world.moves])
        self.logits = np.tile(prior, (len(self.world.tasks), self.turns, self.world.levels, 1))

    def probabilities(self) -> Floats:
        """Shape [tasks, turns, levels, moves]."""
        powers = np.exp(self.logits - self.logits.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    def first(self) -> Floats:
        """Probabilities at the first turn and level 0, shape [tasks, moves]."""
        return self.probabilities()[:, 0, 0]

    def update(self, batch: Batch, advantages: Floats, rate: float, mask: NDArray[np.bool_] | None = None) -> None:
        """One step of policy gradient: every turn is a sample of its own, weighted by its advantage.

        Args:
            batch: what was played with the present table.
            advantages: shape [trajectories, turns].
            rate: step for the mean over a task's trajectories.
            mask: turns to learn from, default all that were played.
        """
        rows, turns = np.nonzero(batch.played if mask is None else batch.played & mask)
        places = (batch.tasks[rows], np.minimum(turns, self.turns - 1), batch.levels[rows, turns])
        weights = advantages[rows, turns]
        gradient = np.zeros_like(self.logits)
        np.add.at(gradient, places, -weights[:, None] * self.probabilities()[places])
        np.add.at(gradient, (*places, batch.moves[rows, turns]), weights)
        self.logits += rate * gradient * len(self.world.tasks) / len(batch.tasks)


def rollout(
    learner: Learner,
    pool: SimulatedPool,
    random: np.random.Generator,
    *,
    size: int,
    turns: int = 1,
    lost: float = 0.0,
    stops: Callable[[Evaluation], bool] | None = None,
) -> Batch:
    """Play `size` episodes of each task.

    Args:
        learner: who plays.
        pool: who evaluates.
        random: draws moves and lost episodes.
        size: episodes of each task.
        turns: greatest number of turns.
        lost: probability that an episode ends after a turn, for reasons of its own.
        stops: whether an evaluation ends its episode.
    """
    world = learner.world
    tasks = np.repeat(np.arange(len(world.tasks)), size)
    shape = (len(tasks), turns)
    moves, levels, played = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    evaluations: list[list[Evaluation | None]] = [[None] * turns for _ in tasks]
    chances, level, alive = learner.probabilities(), np.zeros(len(tasks), np.int64), np.ones(len(tasks), bool)
    salt = random.integers(1 << 62)
    number = itertools.count()
    for turn in range(turns):
        heaps = chances[tasks, min(turn, learner.turns - 1), level].cumsum(axis=1)
        drawn = (random.random((len(tasks), 1)) > heaps[:, :-1]).sum(axis=1)
        moves[:, turn], levels[:, turn], played[:, turn] = drawn, level, alive
        for row in np.nonzero(alive)[0]:
            move = world.moves[drawn[row]]
            directive = move.directives[min(level[row], len(move.directives) - 1)]
            source = f"# simulate: {directive} sample={salt:x}.{next(number)}\nclass ModelNew: ..."
            found = pool.submit(Submission(world.tasks[tasks[row]], source)).result()
            evaluations[row][turn] = found
            if found.credited:
                level[row] = max(level[row], move.opens)
            if stops is not None and stops(found):
                alive[row] = False
        alive = alive & (random.random(len(tasks)) >= lost)
    return Batch(tasks, moves, levels, played, evaluations)
