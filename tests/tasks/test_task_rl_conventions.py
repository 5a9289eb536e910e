"""What the references of the suite `rl` compute: worked examples, `kernelgym_env.credit`, plain loops, and differences.

All run in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from kernelgym_env import credit, rewards
from kernelgym_env.evaluation.result import Evaluation, Status, Timing
from kernelgym_env.tasks import load_task

torch = pytest.importorskip("torch")


class Exact:
    """The reference of a task in float64, at the sizes for a CPU."""

    def __init__(self, name: str, *init: object) -> None:
        self.space: dict = {"__name__": "reference"}
        exec(compile(load_task(f"KernelRL/{name}").for_device("cpu").source, name, "exec"), self.space)
        self.model = self.space["Model"](*(init or self.space["get_init_inputs"]())).double()

    def __call__(self, *inputs: object) -> list:
        with torch.no_grad():
            result = self.model(*[exact(value) for value in inputs])
        return list(result) if isinstance(result, tuple) else [result]

    def draw(self, seed: int = 0) -> list:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return [exact(value) for value in self.space["get_inputs"]()]

    def constant(self, name: str) -> float:
        return self.space[name]


def exact(value: object) -> object:
    """Floats in float64; integers, booleans and tensors of them stay."""
    tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))
    return tensor.double() if tensor.is_floating_point() else tensor


def close(found: object, wanted: object, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=tolerance, atol=tolerance)


# --- advantages against kernelgym_env.credit


def test_gae_is_credits() -> None:
    for name in ("Gae", "GaeLong"):
        exact_one = Exact(name)
        r, v, done, last = exact_one.draw()
        advantages, targets = exact_one(r, v, done, last)
        gamma, lam = exact_one.constant("GAMMA"), exact_one.constant("LAMBDA")
        wanted = credit.gae(r, v, terminated=done, bootstrap=last[:, None], gamma=gamma, lam=lam)
        close(advantages, wanted.advantages)
        close(targets, wanted.targets)


def test_gae_time_first_is_credits() -> None:
    task = Exact("GaeBig")
    r, v, starts, last, last_start = task.draw()
    advantages, returns = task(r, v, starts, last, last_start)
    done = torch.cat([starts[1:], last_start[None]]).T
    wanted = credit.gae(r.T, v.T, terminated=done, bootstrap=last[:, None], gamma=0.99, lam=0.95)
    close(advantages.T, wanted.advantages)
    close(returns.T, wanted.targets)


def test_gae_with_truncation_is_credits() -> None:
    task = Exact("GaeTruncated")
    r, v, final, terminated, truncated, last = task.draw()
    assert (terminated & truncated).any()
    bootstrap = torch.where(truncated, final, last[:, None])
    wanted = credit.gae(
        r, v, terminated=terminated, truncated=truncated & ~terminated, bootstrap=bootstrap, gamma=0.99, lam=0.95
    )
    advantages, targets = task(r, v, final, terminated, truncated, last)
    close(advantages, wanted.advantages)
    close(targets, wanted.targets)


def test_gae_of_packed_sequences_is_credits() -> None:
    task = Exact("GaeRagged")
    r, v, bounds, bootstrap = task.draw()
    advantages, targets = task(r, v, bounds, bootstrap)
    for number, (start, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        if start == end:
            continue
        never = np.zeros(end - start, dtype=bool)
        wanted = credit.gae(
            r[start:end], v[start:end], terminated=never, bootstrap=float(bootstrap[number]), gamma=1.0, lam=0.95
        )
        close(advantages[start:end], wanted.advantages)
        close(targets[start:end], wanted.targets)


def test_gae_gives_kevins_sums() -> None:
    zeros, scores, done = [[0.0] * 3], [[0.0, 1.3, 1.8]], [[False, False, True]]
    close(Exact("Gae", 0.4, 1.0)(scores, zeros, done, [7.0])[0], [[0.808, 2.02, 1.8]])
    close(Exact("GaeLong", 0.4, 1.0)(scores, zeros, done, [7.0])[0], [[0.808, 2.02, 1.8]])
    close(Exact("GaeRagged", 0.4, 1.0)(scores[0], zeros[0], [0, 0, 3], [5.0, 0.0])[0], [0.808, 2.02, 1.8])


@pytest.mark.parametrize(
    ("scores", "returns"),
    [
        ((0, 1.3, 1.8), (0.808, 2.02, 1.8)),
        ((0.9, 4.57, 0, 0, 9.91), (2.981696, 5.20424, 1.5856, 3.964, 9.91)),
        (
            (1.36, 0, 0.91, 1.49, 1.49, 1.49, 2.23, 0),
            (1.6634957, 0.7587392, 1.896848, 2.46712, 2.4428, 2.382, 2.23, 0),
        ),
    ],
)
def test_turn_returns_of_published_episodes(scores: Sequence[float], returns: Sequence[float]) -> None:
    """Each turn of three tokens, the score at the last one, the first one the tool's."""
    turns = len(scores)
    paid = torch.zeros(1, 3 * turns + 2, dtype=torch.float64)
    paid[0, 2 : 3 * turns : 3] = torch.tensor(scores, dtype=torch.float64)
    paid[0, 3 * turns :] = 50.0  # beyond the length
    turn = torch.arange(3 * turns + 2)[None] // 3
    acted = torch.arange(3 * turns + 2)[None] % 3 > 0
    (found,) = Exact("TurnReturns", 0.4)(paid, turn, acted, torch.tensor([3 * turns]))
    wanted = np.repeat(credit.turn_returns(scores, 0.4), 3) * (np.arange(3 * turns) % 3 > 0)
    close(found[0, : 3 * turns], wanted)
    close(found[0, 1 : 3 * turns : 3], returns, 1e-6)
    assert not found[0, 3 * turns :].any()


def test_turn_returns_of_a_draw() -> None:
    task = Exact("TurnReturns")
    r, turns, acted, lengths = task.draw()
    (found,) = task(r, turns, acted, lengths)
    for row, length in enumerate(lengths.tolist()):
        ahead, turn = 0.0, 0
        wanted = np.zeros(r.shape[1])
        for token in reversed(range(length)):
            here = int(turns[row, token])
            ahead = float(r[row, token]) + (0.4 ** (turn - here) * ahead if token < length - 1 else 0.0)
            turn = here
            wanted[token] = ahead if acted[row, token] else 0.0
        close(found[row], wanted)


def test_group_advantages_are_credits() -> None:
    task = Exact("GroupAdvantage")
    r, bounds = task.draw()
    keys = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    close(task(r, bounds)[0], credit.group_advantages(r, keys, ddof=1, eps=1e-6))


def test_group_advantages_of_kevins_group() -> None:
    kevin = torch.tensor([0.808, 2.02, 1.8, 0, 0, 0, 3.0, 2.0, 2.0], dtype=torch.float64)
    (found,) = Exact("GroupAdvantage")(kevin, torch.tensor([0, 6, 6, 7, 9]))
    close(found[:6], [0.039071, 1.330549, 1.096122, -0.821914, -0.821914, -0.821914], 3e-6)
    assert not found[6:].any()  # one alone, and two that are equal


def test_leave_one_out_is_credits() -> None:
    task = Exact("RlooTrloo")
    scores, lengths = task.draw()
    rloo, trloo = task(scores, lengths)
    mask = np.arange(scores.shape[2]) < lengths.numpy()[..., None]
    returns = np.nan_to_num(credit.turn_returns(scores, 0.9, mask=mask))
    keys = np.broadcast_to(np.arange(len(scores))[:, None], lengths.shape)
    close(trloo, credit.group_advantages(returns, keys, kind="trloo", scope="task_turn", mask=mask))
    close(rloo, credit.group_advantages(returns[..., 0], keys, kind="rloo", mask=mask[..., 0]))


@pytest.mark.parametrize(
    ("returns", "advantages"),
    [
        ((0, 0, 0, 2), (-2 / 3, -2 / 3, -2 / 3, 2)),
        ((1, 3), (-2, 2)),
        ((4.66, 2, 0), (3.66, -0.33, -3.33)),
        ((5,), (5,)),
    ],
)
def test_leave_one_out_of_published_groups(returns: Sequence[float], advantages: Sequence[float]) -> None:
    scores = torch.tensor(returns, dtype=torch.float64)[None, :, None]
    rloo, trloo = Exact("RlooTrloo", 1.0)(scores, torch.ones(1, len(returns), dtype=torch.int64))
    close(trloo[0, :, 0], advantages)
    close(rloo[0], advantages if len(returns) > 1 else [0.0])


def test_lambda_returns_are_the_targets_of_gae() -> None:
    task = Exact("LambdaReturns")
    r, following, discounts = task.draw()
    discounts = 0.97 * (discounts > 0).double()
    values = torch.cat([torch.zeros_like(following[:, :1]), following[:, :-1]], 1)
    wanted = credit.gae(
        r, values, terminated=discounts == 0, bootstrap=following[:, -1:], gamma=0.97, lam=task.constant("LAMBDA")
    )
    close(task(r, following, discounts)[0], wanted.targets)


# --- off-policy targets by their definitions


def test_vtrace_by_its_definition() -> None:
    """vs_s = V_s + sum over t >= s of gamma^(t-s) (product of c_i, s <= i < t) rho_t (r_t + gamma V_(t+1) - V_t)."""
    task = Exact("Vtrace")
    behaviour, target, r, v, done, last = (value[:6] for value in task.draw())
    vs, advantages = task(behaviour, target, r, v, done, last)
    ratio = (target - behaviour).clamp(max=20).exp()
    discount = 0.99 * (~done).double()
    ahead = torch.cat([v[:, 1:], last[:, None]], 1)
    delta = ratio.clamp(max=task.constant("RHO")) * (r + discount * ahead - v)
    for start in (0, 1, 50, 99):
        total, weight = v[:, start].clone(), torch.ones(6, dtype=torch.float64)
        for step in range(start, r.shape[1]):
            total += weight * delta[:, step]
            weight = weight * discount[:, step] * ratio[:, step].clamp(max=task.constant("C"))
        close(vs[:, start], total)
    vs_ahead = torch.cat([vs[:, 1:], last[:, None]], 1)
    close(advantages, ratio.clamp(max=task.constant("RHO")) * (r + discount * vs_ahead - v))


def test_vtrace_on_policy_is_gae_with_lambda_one() -> None:
    _, target, r, v, done, last = Exact("Vtrace").draw()
    vs, _ = Exact("Vtrace", 0.99, 1.0, 1.0)(target, target, r, v, done, last)
    close(vs, credit.gae(r, v, terminated=done, bootstrap=last[:, None], gamma=0.99, lam=1.0).targets)


def test_retrace_by_its_definition() -> None:
    """Q + sum over t >= s of gamma^(t-s) (product of c_i, s < i <= t) (r_t + gamma E V_(t+1) - Q_t)."""
    task = Exact("Retrace")
    q, v, r, behaviour, target, done, last = (value[:6] for value in task.draw())
    (found,) = task(q, v, r, behaviour, target, done, last)
    discount = 0.99 * (~done).double()
    ahead = torch.cat([v[:, 1:], last[:, None]], 1)
    c = task.constant("LAMBDA") * (target - behaviour).exp().clamp(max=1.0)
    for start in (0, 1, 50, 99):
        total, weight = q[:, start].clone(), torch.ones(6, dtype=torch.float64)
        for step in range(start, r.shape[1]):
            total += weight * (r[:, step] + discount[:, step] * ahead[:, step] - q[:, step])
            weight = weight * discount[:, step] * (c[:, step + 1] if step + 1 < r.shape[1] else 0.0)
        close(found[:, start], total)


# --- rewards and statistics


def milestone(time: float, eager: float, compiled: float, correct: bool) -> float:
    times = {"candidate": Timing(time), "eager": Timing(eager), "compile": Timing(compiled)}
    return rewards.milestone(Evaluation("a/b", Status.CORRECT if correct else Status.WRONG, times=times))


@pytest.mark.parametrize("bonus", [0.0, 0.3])
def test_reward_pipeline_is_rewards_and_credits(bonus: float) -> None:
    task = Exact("RewardPipeline", 0.05, bonus, 4.0, 0.4)
    time, eager, compiled, correct, lengths = (value[:40] for value in task.draw())
    mask = np.arange(time.shape[1]) < lengths.numpy()[:, None]
    scores = np.vectorize(milestone)(time, eager, compiled, correct)
    scores = scores + bonus * (eager / time).clamp(max=4.0).numpy() * correct.numpy()
    returns = np.nan_to_num(credit.turn_returns(scores, 0.4, mask=mask))
    wanted = credit.group_advantages(returns, np.zeros(mask.shape), mask=mask)
    close(task(time, eager, compiled, correct, lengths)[0], wanted)


def test_milestones_of_published_times() -> None:
    """Six episodes of one turn: rewards 3, 3, 2, 1, 1 and -1, normalised by their mean 1.5 and deviation."""
    time, eager, compiled = [0.5, 1, 1, 1, 5, 0.5], [10, 1.3, 1.3, 1.04, 1, 10], [1, 1.06, 1.05, 2, 1, 1]
    inputs = [torch.tensor(values, dtype=torch.float64)[:, None] for values in (time, eager, compiled)]
    correct = torch.tensor([True] * 5 + [False])[:, None]
    (found,) = Exact("RewardPipeline", 0.05, 0.0, 4.0, 0.4)(*inputs, correct, torch.ones(6, dtype=torch.int64))
    levels = np.array([3, 3, 2, 1, 1, -1.0])
    close(found[:, 0], (levels - levels.mean()) / levels.std(), 1e-7)


def test_masked_whitening() -> None:
    task = Exact("MaskedWhiten")
    x, mask = task.draw()
    (found,) = task(x, mask)
    kept = x[mask].numpy()
    close(found[mask], (kept - kept.mean()) / np.sqrt(kept.var(ddof=1) + 1e-8))
    assert not found[~mask].any()
    close(Exact("MaskedWhiten")([[1.0, 2.0, 9.0, 3.0]], [[True, True, False, True]])[0], [[-1, 0, 0, 1]], 1e-7)


def test_running_statistics_are_those_of_all_data() -> None:
    before, batch = torch.randn(300, 7, dtype=torch.float64) + 2.0, 3.0 * torch.randn(500, 7, dtype=torch.float64)
    task = Exact("RunningNormalize", 1.0)
    out, mean, variance = task(batch, before.mean(0), before.var(0, correction=0), torch.tensor(300.0))
    everything = torch.cat([before, batch])
    close(mean, everything.mean(0))
    close(variance, everything.var(0, correction=0))
    close(out, ((batch - mean) / (variance + 1e-8).sqrt()).clamp(-1.0, 1.0))


def test_prioritised_draw_by_a_loop() -> None:
    priorities = [0, 3, 0, 5, 1, 0, 7, 0]
    numbers = [0, 65535, 30000, 12345]
    indices, weights = Exact("PrioritizedSample")(priorities, numbers, 0.5)
    shares = []
    for place, number in enumerate(numbers):
        aim = (place * 65536 + number) * sum(priorities) // (len(numbers) * 65536)
        item = next(item for item in range(8) if sum(priorities[: item + 1]) > aim)
        assert int(indices[place]) == item and priorities[item] > 0
        shares.append((8 * priorities[item] / sum(priorities)) ** -0.5)
    close(weights, np.array(shares) / max(shares))


def test_top_entropy_by_sorting() -> None:
    entropy = [[5.0, 1.0, 4.0, 9.0], [4.0, 2.0, 0.5, 9.0], [9.0, 9.0, 9.0, 9.0]]
    (kept,) = Exact("TopEntropyMask")(entropy, [3, 3, 0])  # of six the two greatest, and one that is equal
    assert kept.tolist() == [[True, False, True, False], [True, False, False, False], [False] * 4]
    (kept,) = Exact("TopEntropyMask")(entropy, [1, 0, 0])
    assert kept.nonzero().tolist() == [[0, 0]]


def test_action_values_by_loops() -> None:
    task = Exact("RbfQ")
    states, dictionary, scales, alpha, precision = task.draw()
    values, variance = task(states, dictionary, scales, alpha, precision)
    for row in (0, 17, 199):
        k = np.exp(-0.5 * (((states[row] - dictionary) / scales) ** 2).sum(1).numpy())
        close(values[row], k @ alpha.numpy())
        close(variance[row], max(0.0, 1.0 - k @ precision.numpy() @ k))


# --- losses: worked examples, and gradients as differences of the loss


def test_log_probabilities_of_three_tokens() -> None:
    logits = torch.log(torch.tensor([[1.0, 2.0, 5.0], [1.0, 1.0, 0.0]], dtype=torch.float64))
    logp, entropy = Exact("TokenLogpEntropy")(logits, [1, 0], [1.0, 1.0])
    close(logp, [math.log(0.25), math.log(0.5)])
    close(entropy, [-(0.125 * math.log(0.125) + 0.25 * math.log(0.25) + 0.625 * math.log(0.625)), math.log(2)])
    close(Exact("TokenLogp")(logits[:1], [1], [0.5])[0], [math.log(4 / 30)])  # squares, by a temperature of a half


def test_divergences_of_two_tokens() -> None:
    one, two = torch.log(torch.tensor([[[0.5, 0.5]], [[0.25, 0.75]]], dtype=torch.float64))
    kl, gradient = Exact("FullKl")(one, two, [1.0])
    wanted = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    close(kl, [wanted])
    close(gradient, [[0.5 * (math.log(2) - wanted), 0.5 * (math.log(2 / 3) - wanted)]])
    middle, _ = Exact("JsdDistill", 0.5)(one, two, [1.0])
    swapped, _ = Exact("JsdDistill", 0.5)(two, one, [1.0])
    close(middle, swapped)
    mixture = (0.375, 0.625)
    pairs = ((0.5, 0.5), (0.25, 0.75))
    halves = [sum(p * math.log(p / m) for p, m in zip(pair, mixture, strict=True)) for pair in pairs]
    close(middle, [0.5 * sum(halves)])


def test_ppo_at_equal_policies_and_beyond_each_bound() -> None:
    """Two equal tokens, so the slope of logp is (1/2, -1/2); ratios 1, 2 with A > 0, 1/2 with A < 0, 4 with A < 0."""
    logits = torch.zeros(5, 2, dtype=torch.float64)
    ratio = torch.tensor([1.0, 2.0, 0.5, 4.0, 2.0], dtype=torch.float64)
    advantage = torch.tensor([2.0, 2.0, -2.0, -2.0, -2.0], dtype=torch.float64)
    old = math.log(0.5) - ratio.log()
    ones = torch.ones(5, dtype=torch.float64)
    loss, logp, gradient = Exact("PpoClipLogits")(logits, [0] * 5, ones, old, advantage, ones)
    close(logp, [math.log(0.5)] * 5)
    close(loss, [-2.0, -2.56, 1.6, 6.0, 4.0])  # plain, 1 + HIGH, 1 - LOW, dual clip, plain
    close(gradient[:, 0], [-1.0, 0.0, 0.0, 0.0, 2.0])
    close(gradient.sum(1), [0.0] * 5)


def test_cispo_keeps_the_gradient_of_capped_tokens() -> None:
    logits, old = torch.zeros(2, 2, dtype=torch.float64), [math.log(0.5), math.log(0.5) - 3.0]
    loss, gradient = Exact("CispoLogits")(logits, [0, 0], old, [2.0, 2.0], [1.0, 1.0])
    close(loss, [2.0 * math.log(2), 1.5 * 2.0 * math.log(2)])
    close(gradient[:, 0], [-1.0, -1.5])


def test_k3_is_bounded() -> None:
    logits, logp = torch.zeros(3, 2, dtype=torch.float64), math.log(0.5)
    ref = [logp, logp + 1.0, logp + 4.0]
    task = Exact("GrpoKlEntropy", 0.2, 0.28, 1.0, 0.0)
    loss, gradient = task(logits, [0] * 3, [logp] * 3, ref, [0.0] * 3, [1.0] * 3)
    close(loss, [0.0, math.e - 2.0, 10.0])
    close(gradient[:, 0], [0.0, 0.5 * (1.0 - math.e), 0.0])


def test_four_normalisers() -> None:
    """Ratio 1 and no KL: every token's loss is -A. Lengths 1, 3, 0 of 4."""
    same = torch.full((3, 4), -1.0, dtype=torch.float64)
    losses, gradient, share = Exact("GrpoElementwise")(same, same, same, [1.0, -2.0, 9.0], [1, 3, 0])
    close(losses, [(-1.0 + 2.0) / 3, 5.0 / 4, 5.0 / 12, 5.0 / 4])
    close(gradient[0], [-0.25, 0, 0, 0])
    close(gradient[1], [0.5, 0.5, 0.5, 0])
    assert share == 0


def test_dpo_of_equal_margins() -> None:
    logits, ids = torch.zeros(2, 2, 2, dtype=torch.float64), [[0, 0], [1, 0]]
    loss, gradient = Exact("DpoLogits")(logits, ids, [2, 0], [2 * math.log(0.5), 0.0])
    close(loss, [math.log(2)])
    close(gradient[0], [[-0.025, 0.025]] * 2)  # beta 0.1, sigmoid 1/2, slope 1/2
    assert not gradient[1].any()


GRADIENTS: list[tuple[str, int, int, Callable[[list, list], torch.Tensor]]] = [
    # task, place of the input, place of its gradient, what the gradient is of (from outputs and inputs)
    ("PpoClipLogits", 0, 2, lambda outputs, _: outputs[0].sum()),
    ("GrpoKlEntropy", 0, 1, lambda outputs, _: outputs[0].sum()),
    ("GspoLogits", 0, 1, lambda outputs, _: outputs[0].sum()),
    ("DpoLogits", 0, 1, lambda outputs, _: outputs[0].mean()),
    ("FullKl", 0, 1, lambda outputs, inputs: (outputs[0] * inputs[2]).sum()),
    ("JsdDistill", 0, 1, lambda outputs, inputs: (outputs[0] * inputs[2]).sum()),
    ("LinearGrpo", 0, 1, lambda outputs, _: outputs[0].sum()),
    ("GrpoElementwise", 0, 1, lambda outputs, _: outputs[0][1]),
    ("ValueLossClip", 0, 1, lambda outputs, _: outputs[0]),
    ("RewardToLoss", 1, 1, lambda outputs, _: outputs[0].sum()),
]


@pytest.mark.parametrize(("name", "place", "result", "loss"), GRADIENTS, ids=[case[0] for case in GRADIENTS])
def test_gradients_are_differences_of_the_loss(name: str, place: int, result: int, loss: Callable) -> None:
    task = Exact(name)
    inputs = task.draw(3)
    gradient = task(*inputs)[result]
    for seed in range(3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            direction = torch.randn_like(inputs[place])
        step = 1e-6
        ends = []
        for sign in (1, -1):
            moved = list(inputs)
            moved[place] = inputs[place] + sign * step * direction
            ends.append(float(loss(task(*moved), inputs)))
        along = float((gradient * direction).nan_to_num(0.0).sum())
        assert abs((ends[0] - ends[1]) / (2 * step) - along) < 1e-6 * max(float(gradient.norm()), abs(along), 1e-3)


def test_backward_pass_is_the_difference_of_the_forward_pass() -> None:
    logits, ids, temperature, grad_logp, grad_entropy = Exact("LogpBackward").draw()
    (gradient,) = Exact("LogpBackward")(logits, ids, temperature, grad_logp, grad_entropy)
    direction, step = torch.randn(logits.shape, dtype=torch.float64), 1e-6
    ends = []
    for sign in (1, -1):
        logp, entropy = Exact("TokenLogpEntropy")(logits + sign * step * direction, ids, temperature)
        ends.append(float((logp * grad_logp + entropy * grad_entropy).sum()))
    along = float((gradient * direction).sum())
    assert abs((ends[0] - ends[1]) / (2 * step) - along) < 1e-6 * float(gradient.norm())


def test_gradient_of_the_output_layer() -> None:
    task = Exact("LinearGrpo")
    inputs = task.draw()
    gradient = task(*inputs)[2]
    direction, step = torch.randn(gradient.shape, dtype=torch.float64), 1e-6
    ends = []
    for move in (step, -2 * step):
        with torch.no_grad():
            task.model.head += move * direction
        ends.append(float(task(*inputs)[0].sum()))
    assert abs((ends[0] - ends[1]) / (2 * step) - float((gradient * direction).sum())) < 1e-6 * float(gradient.norm())


def test_the_chain_is_its_parts() -> None:
    """KL penalty and score into `credit.gae`, whitening, and the loss of each sequence by hand."""
    task = Exact("RewardToLoss")
    scores, logp, old, ref, values, lengths = task.draw()
    _, _, advantages, returns = task(scores, logp, old, ref, values, lengths)
    raw, kept = [], []
    for row, length in enumerate(lengths.tolist()):
        if not length:
            continue
        r = -0.05 * (old - ref)[row, :length].numpy()
        r[-1] += float(scores[row])
        done = np.arange(length) == length - 1
        wanted = credit.gae(r, values[row, :length], terminated=done, gamma=1.0, lam=0.95)
        close(returns[row, :length], wanted.targets)
        raw.append(wanted.advantages)
        kept.append(advantages[row, :length].numpy())
        assert not advantages[row, length:].any() and not returns[row, length:].any()
    everything = np.concatenate(raw)
    whitened = (everything - everything.mean()) / np.sqrt(everything.var(ddof=1) + 1e-8)
    close(np.concatenate(kept), whitened)
    valid = np.arange(logp.shape[1]) < lengths.numpy()[:, None]
    ratio = np.exp((logp - old).numpy()[valid])
    clipped = np.minimum(whitened * ratio, whitened * np.clip(ratio, 0.8, 1.2))
    close(task(scores, logp, old, ref, values, lengths)[0].sum(), -clipped.mean())
