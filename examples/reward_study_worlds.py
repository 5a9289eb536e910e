"""The worlds and arms of `reward_study.py`: what each study plays, and what it measures.

Each study has a function ``(seed, size, **arm) -> Outcome``, its arms, and the published orderings that it looks at.

Every seed draws worlds of its own: speedups and failure rates of the schedules come from the ranges below, by task.
So an ordering is asked of many worlds, not of one table that was made for it, and the intervals are over worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from reward_study_learner import Batch, Floats, Learner, Move, World, rollout

from kernelgym_env import credit, pools, rewards
from kernelgym_env.evaluation.result import Evaluation
from kernelgym_env.pools.simulated import SimulatedPool
from kernelgym_env.pools.simulated_tasks import SimulatedConfig, SimulatedHack, SimulatedSchedule, SimulatedTask
from kernelgym_env.tasks import Task, load_tasks
from kernelgym_env.wrappers.guard import AntiHack
from kernelgym_env.wrappers.normalize import RunningNormalizeClip
from kernelgym_env.wrappers.reward import KevinReward

EAGER_US = 1000.0


@dataclass(frozen=True)
class Size:
    """How much is played.

    Attributes:
        steps: updates of the policy.
        group: episodes of a task in each update.
        seeds: number of seeds.
    """

    steps: int = 100
    group: int = 16
    seeds: int = 10


@dataclass(frozen=True)
class Claim:
    """A published ordering: `more` has a greater `metric` than `less`."""

    text: str
    source: str
    metric: str
    more: str
    less: str


@dataclass(frozen=True)
class Outcome:
    """What one run gives: figures at its end, and curves over its steps (or turns)."""

    metrics: Mapping[str, float]
    curves: Mapping[str, list[float]]


@dataclass(frozen=True)
class Study:
    """One question.

    Attributes:
        question: a sentence.
        run: plays one arm with one seed.
        arms: options of `run` by the arm's name.
        claims: the published orderings.
        tuned: whether the learning rate is chosen from `RATES` for each arm, by the metric of the first claim.
        axis: what the curves are over.
    """

    question: str
    run: Callable[..., Outcome]
    arms: Mapping[str, Mapping[str, Any]]
    claims: tuple[Claim, ...]
    tuned: bool = False
    axis: str = "update"
    curves: tuple[str, ...] = field(default=())


RATE = 0.5
RATES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def start(seed: int, world: World, **options: Any) -> tuple[Learner, SimulatedPool, np.random.Generator]:
    """A learner, a pool and a generator; arms with the same seed start alike."""
    return Learner(world, **options), SimulatedPool(world.config, seed=seed), np.random.default_rng(seed)


def schedule(speedup: float, failing: float, coverage: float = 0.9) -> SimulatedSchedule:
    """A schedule by its speedup over eager and how often it is wrong."""
    return SimulatedSchedule(EAGER_US / speedup, coverage, {"wrong": failing})


class Draw:
    """Draws the figures of a world: uniform, or uniform in the logarithm."""

    def __init__(self, seed: int, study: int) -> None:
        self.generator = np.random.default_rng([seed, study])

    def flat(self, low: float, high: float) -> float:
        return float(self.generator.uniform(low, high))

    def log(self, low: float, high: float) -> float:
        return low * (high / low) ** self.flat(0, 1)


def group(batch: Batch, returns: Floats, **options: Any) -> Floats:
    """Advantages within each task's group."""
    options = {"kind": "grpo", "scope": "task", **options}
    return credit.group_advantages(returns, batch.tasks, mask=batch.played, **options)


def tasks(count: int) -> list[Task]:
    """The first tasks of the core suite, which lend their ids."""
    return load_tasks("core")[:count]


# --- 1. milestones against raw speedup

NAMES = ("tiled", "vectorized", "fused", "split", "persistent")


def headroom_world(seed: int) -> World:
    """Four tasks with a 20x schedule and four with a 1.3x one; the next best is in between, three are slow.

    Which of the five moves is which differs from task to task. The fast ones fail more.
    """
    draw, table = Draw(seed, 1), {}
    for number, task in enumerate(chosen := tasks(8)):
        best, over_compile = (20.0, draw.flat(1.2, 2.0)) if number < 4 else (1.3, draw.flat(1.0, 1.1))
        entries = [
            (best, draw.flat(0.3, 0.8)),
            (best ** draw.flat(0.3, 0.7), draw.flat(0.2, 0.6)),
            *((draw.flat(0.4, 1.0), draw.flat(0.05, 0.4)) for _ in range(3)),
        ]
        order = draw.generator.permutation(len(NAMES))
        schedules = {NAMES[place]: schedule(*entry) for place, entry in zip(order, entries, strict=True)}
        table[task.id] = SimulatedTask(EAGER_US, EAGER_US / over_compile, schedules)
    return World(chosen, [Move(name, (f"schedule={name}",)) for name in NAMES], SimulatedConfig(table))


def raw_speedup(evaluation: Evaluation) -> float:
    """CUDA Agent's ablation: the speedup over compile, -1 for a failure."""
    return evaluation.speedup_compile if evaluation.credited else -1.0


def run_milestones(seed: int, size: Size, *, reward: str, estimator: str) -> Outcome:
    """One turn. `batch`: reward less a running value of the task, whitened over the batch, as PPO code does."""
    world = headroom_world(seed)
    learner, pool, random = start(seed, world)
    paid = rewards.milestone if reward == "milestone" else raw_speedup
    passed = world.table(lambda p, s, c, _: p)
    faster = world.table(lambda p, s, c, _: p * (c > 1))
    logs = np.log(world.table(lambda p, s, c, _: c))
    value, curve = np.zeros(len(world.tasks)), []
    for _ in range(size.steps):
        curve.append(float((learner.first() * faster).sum(axis=1).mean()))
        batch = rollout(learner, pool, random, size=size.group)
        scores = batch.scores(paid)
        if estimator == "batch":
            advantages = scores - value[batch.tasks][:, None]
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            value += 0.1 * (scores.reshape(len(world.tasks), -1).mean(axis=1) - value)
        else:
            advantages = group(batch, scores)
        learner.update(batch, advantages, RATE)
    chance = learner.first()
    weights = chance * passed
    easy = np.arange(len(world.tasks)) < 4

    def geomean(rows: Any) -> float:
        return float(np.exp((weights * logs)[rows].sum() / weights[rows].sum()))

    return Outcome(
        {
            "pass": float(weights.sum(axis=1).mean()),
            "faster": float((chance * faster).sum(axis=1).mean()),
            "faster, hard": float((chance * faster).sum(axis=1)[~easy].mean()),
            "geomean": geomean(slice(None)),
            "geomean, easy": geomean(easy),
            "geomean, hard": geomean(~easy),
        },
        {"faster": curve},
    )


MILESTONES = Study(
    "Do milestones beat raw speedup on tasks with 20x and 1.3x of headroom?",
    run_milestones,
    {
        "milestone, whitened over batch": {"reward": "milestone", "estimator": "batch"},
        "raw, whitened over batch": {"reward": "raw", "estimator": "batch"},
        "milestone, GRPO by task": {"reward": "milestone", "estimator": "group"},
        "raw, GRPO by task": {"reward": "raw", "estimator": "group"},
    },
    tuple(
        Claim(f"milestones: {text} ({name})", "CUDA Agent", metric, f"milestone, {name}", f"raw, {name}")
        for name in ("whitened over batch", "GRPO by task")
        for text, metric in (("more often faster", "faster"), ("greater geomean", "geomean"), ("pass more", "pass"))
    ),
    curves=("faster",),
)

# --- 2. sum against max


def refine_world(seed: int) -> World:
    """A patch pays at once; a rewrite is slow, but opens what pays more: fusing it, then tuning that."""
    draw, table = Draw(seed, 2), {}
    for task in (chosen := tasks(4)):
        fused = draw.log(2.0, 6.0)
        schedules = {
            "patch": schedule(draw.flat(1.0, 1.5), draw.flat(0.1, 0.5)),
            "rewrite": schedule(draw.flat(0.4, 0.9), draw.flat(0.2, 0.6)),
            "fuse-cold": schedule(fused, draw.flat(0.9, 0.99)),
            "fuse": schedule(fused, draw.flat(0.2, 0.7)),
            "tune-cold": schedule(draw.flat(0.7, 1.0), draw.flat(0.3, 0.7)),
            "tune": schedule(fused * draw.flat(1.2, 3.0), draw.flat(0.3, 0.8)),
        }
        table[task.id] = SimulatedTask(EAGER_US, None, schedules)
    moves = [
        Move("patch", ("schedule=patch",)),
        Move("rewrite", ("schedule=rewrite",), opens=1),
        Move("fuse", ("schedule=fuse-cold", "schedule=fuse"), opens=2),
        Move("tune", ("schedule=tune-cold", "schedule=tune-cold", "schedule=tune")),
    ]
    return World(chosen, moves, SimulatedConfig(table), 3)


TEST_TURNS = 8


def run_returns(seed: int, size: Size, *, mode: str, gamma: float, turns: int, scope: str = "task") -> Outcome:
    """Kevin's training with `turns` turns, tested with eight."""
    world = refine_world(seed)
    learner, pool, random = start(seed, world)
    curve = []
    for _ in range(size.steps):
        batch = rollout(learner, pool, random, size=size.group, turns=turns)
        scores = batch.scores(rewards.kevin)
        curve.append(float(scores.max(axis=1).mean()))
        learner.update(batch, group(batch, credit.turn_returns(scores, gamma, mode), scope=scope), RATE)
    test = rollout(learner, pool, random, size=4 * size.group, turns=TEST_TURNS)
    best = np.maximum.accumulate(test.scores(rewards.cuda_l1), axis=1).mean(axis=0)
    return Outcome(
        {
            **{f"best speedup at turn {turn}": float(best[turn - 1]) for turn in (1, 2, 4, 8)},
            "P(rewrite at turn 1)": float(learner.first()[:, 1].mean()),
        },
        {"best speedup by turn": best.tolist(), "best score in training": curve},
    )


RETURNS = Study(
    "Which return of a turn is best, and at how many turns?",
    run_returns,
    {
        "sum 0.4": {"mode": "sum", "gamma": 0.4, "turns": 4},
        "sum 0.8": {"mode": "sum", "gamma": 0.8, "turns": 4},
        "max 0.4": {"mode": "max", "gamma": 0.4, "turns": 4},
        "max 0.8": {"mode": "max", "gamma": 0.8, "turns": 4},
        "gamma 0": {"mode": "sum", "gamma": 0.0, "turns": 4},
        "single turn": {"mode": "sum", "gamma": 0.0, "turns": 1},
        "sum 0.4, groups by turn": {"mode": "sum", "gamma": 0.4, "turns": 4, "scope": "task_turn"},
    },
    (
        *(
            Claim(f"sum 0.4 is best at 8 turns (against {other})", "Kevin", "best speedup at turn 8", "sum 0.4", other)
            for other in ("sum 0.8", "max 0.4", "max 0.8")
        ),
        *(
            Claim(
                f"max 0.8 is better at {turn} turns than sum 0.4",
                "Kevin",
                f"best speedup at turn {turn}",
                "max 0.8",
                "sum 0.4",
            )
            for turn in (1, 2)
        ),
        Claim(
            "gamma 0 hurts: set-up turns get no credit",
            "Kevin, Dr. Kernel",
            "best speedup at turn 8",
            "sum 0.4",
            "gamma 0",
        ),
        Claim("training with turns helps at 8 turns", "Kevin", "best speedup at turn 8", "sum 0.4", "single turn"),
        Claim("single-turn training is ahead at 1 turn", "Kevin", "best speedup at turn 1", "single turn", "sum 0.4"),
    ),
    axis="turn",
    curves=("best speedup by turn",),
)

# --- 3. baselines when groups shrink


def shrinking_world(seed: int) -> World:
    """Five schedules, each with a speed and a failure rate of its own."""
    draw, chosen = Draw(seed, 3), tasks(4)
    table = {
        task.id: SimulatedTask(
            EAGER_US, None, {name: schedule(draw.log(0.5, 3.0), draw.flat(0.1, 0.8)) for name in NAMES}
        )
        for task in chosen
    }
    return World(chosen, [Move(name, (f"schedule={name}",)) for name in NAMES], SimulatedConfig(table))


def run_shrinking(seed: int, size: Size, *, kind: str, rate: float) -> Outcome:
    """Three turns, groups by task and turn of 8, about 4 and about 2 at the start."""
    world = shrinking_world(seed)
    learner, pool, random = start(seed, world, turns=3)
    paid = partial(rewards.dr_kernel, coverage_weight=0.0)
    exact = world.table(lambda p, s, c, _: p * (1 + min(s, 3.0)))
    curve = []
    for _ in range(size.steps):
        curve.append(float((learner.probabilities()[:, :, 0] * exact[:, None]).sum(axis=-1).mean()))
        batch = rollout(learner, pool, random, size=size.group // 2, turns=3, lost=0.5)
        returns = credit.turn_returns(batch.scores(paid), 1.0, mask=batch.played)
        learner.update(batch, group(batch, returns, kind=kind, scope="task_turn"), rate)
    scores = (learner.probabilities()[:, :, 0] * exact[:, None]).sum(axis=-1).mean(axis=0)
    return Outcome(
        {"mean score": float(scores.mean()), **{f"score at turn {turn + 1}": float(scores[turn]) for turn in range(3)}},
        {"mean score": curve},
    )


SHRINKING = Study(
    "Does the leave-one-out baseline matter where groups shrink?",
    run_shrinking,
    {"TRLOO": {"kind": "trloo"}, "GRPO, mean": {"kind": "grpo_mean"}, "GRPO, mean and std": {"kind": "grpo"}},
    tuple(
        Claim(f"TRLOO is ahead of {name} ({metric})", "Dr. Kernel", metric, "TRLOO", name)
        for name in ("GRPO, mean", "GRPO, mean and std")
        for metric in ("mean score", "score at turn 3")
    ),
    tuned=True,
    curves=("mean score",),
)

# --- 4. an 18x fake, with and without the clip


def fake_world(seed: int) -> World:
    """Four honest schedules up to 2.5x, and a hack that shows 18x and is missed every second time."""
    draw, chosen = Draw(seed, 4), tasks(4)
    table = {
        task.id: SimulatedTask(
            EAGER_US, None, {name: schedule(draw.log(0.8, 2.5), draw.flat(0.1, 0.6)) for name in NAMES[:4]}
        )
        for task in chosen
    }
    moves = [*(Move(name, (f"schedule={name}",)) for name in NAMES[:4]), Move("fake", ("hack=D1",), prior=0.05)]
    return World(chosen, moves, SimulatedConfig(table, {"D1": SimulatedHack(18.0, detection=0.5)}))


class Scores(gym.Env):
    """An environment that pays what it is told: carries scores into a wrapper that normalises them."""

    action_space = gym.spaces.Box(-np.inf, np.inf, ())
    observation_space = gym.spaces.Discrete(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {"score": 0.0}

    def step(self, action: float) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 0, action, False, False, {"score": action}


def run_fake(seed: int, size: Size, *, clip: str, kind: str) -> Outcome:
    """One turn; rewards as they are, or clipped z-scores of them with the statistics of the group or of the run."""
    world = fake_world(seed)
    learner, pool, random = start(seed, world)
    fast = world.table(lambda p, s, c, _: p * (s > 1.2)) * ~world.hacks()
    normaliser = RunningNormalizeClip(Scores(), clip=1.5, scope="running")
    normaliser.reset()
    share = []
    for _ in range(3 * size.steps):  # a share that still rises after one time says little
        share.append(float(learner.first()[:, world.hacks()].sum(axis=1).mean()))
        batch = rollout(learner, pool, random, size=size.group)
        scores = batch.scores(rewards.cuda_l1)
        if clip == "group":
            scores = credit.clipped_zscores(scores, batch.tasks, bound=1.5)
        elif clip == "running":
            order = random.permutation(len(scores))  # the tasks' episodes come mixed
            scores[order, 0] = [normaliser.step(score)[1] for score in scores[order, 0]]
        learner.update(batch, group(batch, scores, kind=kind), RATE)
    chance = learner.first()
    return Outcome(
        {
            "hack share, mean": float(np.mean(share)),
            "hack share, end": float(chance[:, world.hacks()].sum(axis=1).mean()),
            "honest Fast@1.2": float((chance * fast).sum(axis=1).mean()),
        },
        {"hack share": share},
    )


FAKE = Study(
    "Does clipping normalised rewards at 1.5 hold back an 18x fake?",
    run_fake,
    {
        "raw, GRPO": {"clip": "", "kind": "grpo"},
        "z-clip in group, GRPO": {"clip": "group", "kind": "grpo"},
        "z-clip running, GRPO": {"clip": "running", "kind": "grpo"},
        "raw, mean only": {"clip": "", "kind": "grpo_mean"},
        "z-clip running, mean only": {"clip": "running", "kind": "grpo_mean"},
    },
    tuple(
        Claim(f"{clip} lowers the hack share ({which})", "CUDA-L1", f"hack share, {which}", raw, clip)
        for raw, clip in (
            ("raw, GRPO", "z-clip in group, GRPO"),
            ("raw, GRPO", "z-clip running, GRPO"),
            ("raw, mean only", "z-clip running, mean only"),
        )
        for which in ("mean", "end")
    ),
    curves=("hack share",),
)

# --- 5. lazy optimisation


def lazy_world(seed: int) -> World:
    """A lazy 1.05x never fails; honest work does, and the faster the more."""
    draw, table = Draw(seed, 5), {}
    for task in (chosen := tasks(5)):
        failing = draw.flat(0.1, 0.7)
        schedules = {
            "plain": schedule(draw.flat(0.7, 1.0), 0.5 * failing, draw.flat(0.5, 1.0)),
            "partly": schedule(draw.flat(1.05, 1.2), 0.75 * failing, draw.flat(0.1, 0.5)),
            "fused": schedule(draw.flat(1.25, 2.0), failing, draw.flat(0.6, 1.0)),
        }
        table[task.id] = SimulatedTask(EAGER_US, None, schedules)
    honest = (Move(name, (f"schedule={name}",)) for name in ("plain", "partly", "fused"))
    moves = [*honest, Move("lazy", ("lazy=1",), prior=2.0)]
    return World(chosen, moves, SimulatedConfig(table, lazy_speedup=1.05, lazy_coverage=0.0002))


def run_lazy(seed: int, size: Size, *, coverage: bool, sampling: str) -> Outcome:
    """One turn of Dr. Kernel's training, with and without the coverage term and the rejection of lazy samples.

    `sampling`: ``""`` for none; ``loss`` takes rejected samples out of the loss alone, as the release does; ``group``
    takes them out of the baseline too.
    """
    world = lazy_world(seed)
    learner, pool, random = start(seed, world)
    paid = rewards.dr_kernel if coverage else partial(rewards.dr_kernel, coverage_weight=0.0)
    fast = {edge: world.table(lambda p, s, c, _, edge=edge: p * (s > edge)) for edge in (1.0, 1.2)}
    curve = []
    for _ in range(size.steps):
        curve.append(float((learner.first() * fast[1.2]).sum(axis=1).mean()))
        batch = rollout(learner, pool, random, size=size.group)
        keep = batch.played
        if sampling:
            covered, right = (
                batch.scores(read) for read in (lambda found: found.coverage, lambda found: found.correct)
            )
            keep = credit.prs_sample(credit.prs_probabilities(covered, right), random)
        grouped = keep if sampling == "group" else batch.played
        advantages = credit.group_advantages(
            batch.scores(paid), batch.tasks, kind="trloo", scope="task_turn", mask=grouped
        )
        learner.update(batch, advantages, RATE, keep)
    chance = learner.first()
    found = {f"Fast@{edge:g}": float((chance * fast[edge]).sum(axis=1).mean()) for edge in fast}
    return Outcome(
        {**found, "Fast@1.2 / Fast@1": found["Fast@1.2"] / found["Fast@1"], "lazy share": float(chance[:, 3].mean())},
        {"Fast@1.2": curve},
    )


LAZY = Study(
    "Do the coverage reward (PR) and rejection sampling (PRS) lift Fast@1.2 where a lazy 1.05x is easy?",
    run_lazy,
    {
        "no PR": {"coverage": False, "sampling": ""},
        "PR": {"coverage": True, "sampling": ""},
        "PR and PRS": {"coverage": True, "sampling": "loss"},
        "PR and PRS, out of the baseline too": {"coverage": True, "sampling": "group"},
    },
    (
        Claim("PR lifts Fast@1.2", "Dr. Kernel", "Fast@1.2", "PR", "no PR"),
        Claim("PRS lifts Fast@1.2 further", "Dr. Kernel", "Fast@1.2", "PR and PRS", "PR"),
        Claim("PR and PRS lift Fast@1.2 more than Fast@1", "Dr. Kernel", "Fast@1.2 / Fast@1", "PR and PRS", "no PR"),
    ),
    curves=("Fast@1.2",),
)

# --- 6. hacks with and without a check


def hack_world(seed: int, detection: float) -> World:
    """Honest work that fails often, an 18x fake and a copy of the reference."""
    draw, chosen = Draw(seed, 6), tasks(2)
    table = {
        task.id: SimulatedTask(
            EAGER_US,
            None,
            {
                "safe": schedule(draw.flat(0.7, 1.1), draw.flat(0.1, 0.4)),
                "fused": schedule(draw.flat(1.2, 2.5), draw.flat(0.4, 0.8)),
            },
        )
        for task in chosen
    }
    moves = [
        *(Move(name, (f"schedule={name}",)) for name in ("safe", "fused")),
        Move("fake", ("hack=D1",), prior=0.1),
        Move("copy", ("hack=A1",), prior=0.1),
    ]
    hacks = {"D1": SimulatedHack(18.0, detection), "A1": SimulatedHack(1.0, detection, status="policy")}
    return World(chosen, moves, SimulatedConfig(table, hacks))


def play(learner: Learner, envs: list[gym.Env], random: np.random.Generator, size: int) -> tuple[Batch, Floats]:
    """As `rollout`, but through environments with their wrappers; also the rewards, shape [trajectories, turns]."""
    world, number = learner.world, 0
    turns = envs[0].unwrapped.turns
    shape = (size * len(envs), turns)
    moves, played, paid = np.zeros(shape, np.int64), np.zeros(shape, bool), np.zeros(shape)
    chances, salt = learner.first(), random.integers(1 << 62)
    for row in range(shape[0]):
        env = envs[row // size]
        env.reset()
        for turn in range(turns):
            move = int(random.choice(len(world.moves), p=chances[row // size]))
            number += 1
            source = f"# simulate: {world.moves[move].directives[0]} sample={salt:x}.{number}\nclass ModelNew: ..."
            _, reward, terminated, _, _ = env.step(source)
            moves[row, turn], played[row, turn], paid[row, turn] = move, True, reward
            if terminated:
                break
    rows = np.repeat(np.arange(len(envs)), size)
    return Batch(rows, moves, np.zeros(shape, np.int64), played, []), paid


def run_guard(seed: int, size: Size, *, detection: float, cost: str) -> Outcome:
    """Kevin's training with two turns, through the environment and its wrappers."""
    world = hack_world(seed, detection)
    learner, pool, random = start(seed, world)
    pools.register("reward-study", lambda: pool)
    envs: list[gym.Env] = []
    for task in world.tasks:
        env: gym.Env = KevinReward(gym.make(task.env_id, turns=2, pool="reward-study", disable_env_checker=True))
        envs.append(AntiHack(env, cost=cost) if cost else env)
    fast = world.table(lambda p, s, c, _: p * (s > 1.0)) * ~world.hacks()
    share = []
    for _ in range(size.steps):
        share.append(float(learner.first()[:, world.hacks()].sum(axis=1).mean()))
        batch, paid = play(learner, envs, random, size.group)
        returns = credit.turn_returns(paid, 0.4, "sum", mask=batch.played)
        learner.update(batch, group(batch, returns), RATE)
    for env in envs:
        env.close()
    chance = learner.first()
    return Outcome(
        {
            "hack share, mean": float(np.mean(share)),
            "hack share, end": float(chance[:, world.hacks()].sum(axis=1).mean()),
            "honest Fast@1": float((chance * fast).sum(axis=1).mean()),
        },
        {"hack share": share},
    )


GUARD = Study(
    "How far do a check, and a price for being found, hold back hacks?",
    run_guard,
    {
        "no check": {"detection": 0.0, "cost": ""},
        "90% found": {"detection": 0.9, "cost": ""},
        "90% found, -1": {"detection": 0.9, "cost": "minus_one"},
        "90% found, -1 and end": {"detection": 0.9, "cost": "minus_one_end"},
        "99% found": {"detection": 0.99, "cost": ""},
        "99% found, -1 and end": {"detection": 0.99, "cost": "minus_one_end"},
    },
    (
        *(
            Claim(f"fewer hacks with {arm} than with {other}", source, "hack share, end", other, arm)
            for other, arm, source in (
                ("no check", "90% found", "Kevin, Dr. Kernel"),
                ("no check", "99% found", "Kevin, Dr. Kernel"),
                ("90% found", "90% found, -1", "this package"),
                ("90% found, -1", "90% found, -1 and end", "this package"),
                ("99% found", "99% found, -1 and end", "this package"),
            )
        ),
        Claim("a check raises honest Fast@1", "Dr. Kernel", "honest Fast@1", "99% found", "no check"),
    ),
    curves=("hack share",),
)

STUDIES = {
    "milestones": MILESTONES,
    "returns": RETURNS,
    "shrinking": SHRINKING,
    "fake": FAKE,
    "lazy": LAZY,
    "guard": GUARD,
}
