"""What a policy is shown.

- `HistoryPrompt` -- earlier kernels, their summaries and results within a token budget (Kevin's context).
- `Exemplars` -- two scored kernels of different speed to compare (CUDA-L1's prompt).
- `ChatObservation` -- the observation as chat messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from kernelgym_env.errors import InvalidOptionError
from kernelgym_env.limits import MAX_PROMPT_CHARS, MAX_SOURCE_CHARS, clip
from kernelgym_env.prompts import messages, render_prompt
from kernelgym_env.prompts.conversation import summary_request
from kernelgym_env.prompts.reply import fenced, parse_reply, summary_of
from kernelgym_env.spaces import UnicodeText
from kernelgym_env.store import Store
from kernelgym_env.wrappers.base import KernelWrapper, load_function, needs, number, whole
from kernelgym_env.wrappers.exemplars import Kernel, draw

__all__ = ["ChatObservation", "Exemplars", "HistoryPrompt", "estimate_tokens"]

_SUMMARY_CHARS = 2_000


def estimate_tokens(text: str) -> int:
    """A cheap estimate of the number of tokens: a third of the bytes in UTF-8, rounded up.

    Byte-pair vocabularies of current models put about 3 to 4 characters of code, about 4 of English, and about 1 of
    Chinese or Japanese (3 bytes) into a token, so this errs on the high side.

    >>> estimate_tokens("x = 1"), estimate_tokens("")
    (2, 0)
    """
    return -(-len(text.encode("utf-8", errors="replace")) // 3)


class HistoryPrompt(KernelWrapper):
    """Shows of earlier turns what Kevin shows: kernel, own summary and result, without the reasoning.

    Each entry of ``history`` keeps its result; of the reply it keeps the summary that the model wrote between
    ``<summary>`` tags (outside of thinking) and the code. Everything else is dropped: reasoning of tens of thousands
    of tokens a turn would fill any context. The prompt asks for the summary.

    The oldest turns are dropped until the text of the observation (`kernelgym_env.render_prompt`) fits the budget. If
    the newest turn alone does not fit, its code and result are cut in the middle, visibly. The prompt is never cut.

    The observation keeps its form, so `kernelgym_env.messages` and `ChatObservation` work on it. ``info`` gets
    ``context_tokens`` (of that text; a chat template adds a few tokens a message) and ``context_dropped`` (turns that
    are not shown).

    Place: outside `Exemplars`, inside `ChatObservation` and `RecordTrajectory`. With `ExtractCode` on either side.

    Args:
        env: what to wrap; its observations are a `KernelEnv`'s.
        token_budget: greatest number of tokens of the context, at least 1.
        counter: ``"module:function"`` that counts the tokens of a text; None takes `estimate_tokens`.
        ask: whether the prompt asks for a summary.

    Raises:
        InvalidOptionError: for an argument outside its range or another form of observations; in `reset`, if the
            prompt alone exceeds the budget.

    >>> import gymnasium as gym
    >>> env = HistoryPrompt(gym.make("kernelgym_env:KernelGym/Fake-v0"), token_budget=2000)
    >>> observation, info = env.reset()
    >>> reply = "```python\\nclass ModelNew: ...\\n```\\n<summary>A first try.</summary>"
    >>> observation, *_, info = env.step("<think>" + 9000 * "Hmm. " + "</think>" + reply)
    >>> print(observation["history"][0]["action"])
    A first try.
    <BLANKLINE>
    ```python
    class ModelNew: ...
    ```
    >>> info["context_tokens"] < 2000
    True
    """

    place: ClassVar[str | None] = "history"

    def __init__(
        self, env: gym.Env[Any, Any], token_budget: int = 16_384, counter: str | None = None, ask: bool = True
    ) -> None:
        super().__init__(env, token_budget=token_budget, counter=counter, ask=ask)
        _require(self, ("prompt", "history", "turns_left"))
        self.token_budget = whole("HistoryPrompt", "token_budget", token_budget, low=1)
        self._count: Callable[[str], int] = estimate_tokens if counter is None else load_function(counter, "counter")
        self.ask = bool(ask)
        # both by the text that the history has: what a restored state shows is found again, or read anew
        self._summaries: dict[str, str] = {}
        self._condensed: dict[str, str] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._summaries, self._condensed = {}, {}
        shown, more = self._context(observation)
        return shown, {**info, **more}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if isinstance(action, str) and observation["history"] and (summary := summary_of(action)):
            # an `ExtractCode` inside leaves the code alone in the history
            key = observation["history"][-1]["action"]
            self._summaries[key] = summary
            self._condensed.pop(key, None)
        shown, more = self._context(observation)
        return shown, reward, terminated, truncated, {**info, **more}

    def _context(self, observation: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        prompt = observation["prompt"]
        if self.ask:
            request = summary_request()
            prompt = f"{clip(prompt, MAX_PROMPT_CHARS - len(request) - 2)}\n\n{request}"
        history = observation["history"]

        def entries(count: int) -> list[dict[str, str]]:
            return [self._entry(entry) for entry in history[len(history) - count :]]

        def tokens(shown: Sequence[Mapping[str, str]]) -> int:
            return int(self._count(render_prompt({**observation, "prompt": prompt, "history": shown})))

        # more turns are more tokens: the greatest number that fits, by halving
        shown, low, high = entries(len(history)), 0, len(history)
        used = tokens(shown)
        if used > self.token_budget:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if tokens(entries(middle)) <= self.token_budget else (low, middle)
            shown = entries(low)
            if not shown and history:
                shown = _cut(self._entry(history[-1]), lambda entry: tokens([entry]) <= self.token_budget)
            used = tokens(shown)
        if used > self.token_budget:
            raise InvalidOptionError(
                f"The prompt alone has {used} tokens, more than token_budget={self.token_budget}; give a greater one."
            )
        more = {"context_tokens": used, "context_dropped": len(history) - len(shown)}
        return {**observation, "prompt": prompt, "history": tuple(shown)}, more

    def _entry(self, entry: Mapping[str, str]) -> dict[str, str]:
        key = entry["action"]
        if key not in self._condensed:
            reply = parse_reply(key)
            summary = self._summaries.get(key, reply.summary)
            code = fenced(reply.source) if reply.source.strip() else "(The reply held no code.)"
            parts = [clip(summary, _SUMMARY_CHARS), code] if summary else [code]
            self._condensed[key] = clip("\n\n".join(parts), MAX_SOURCE_CHARS)
        return {"action": self._condensed[key], "feedback": entry["feedback"]}


def _cut(entry: Mapping[str, str], fits: Callable[[Mapping[str, str]], bool]) -> list[dict[str, str]]:
    """The longest cut of an entry that fits, or nothing."""
    low, high, best = 0, 64, None  # in 64ths of its length
    while high - low > 1:
        share = (low + high) // 2
        shorter = {key: clip(text, len(text) * share // 64) for key, text in entry.items()}
        low, high, best = (share, high, shorter) if fits(shorter) else (low, share, best)
    return [] if best is None else [best]


class Exemplars(KernelWrapper):
    """Adds scored kernels of different speed for the same task to the prompt: CUDA-L1's contrastive prompt.

    Kernels are sorted into buckets by speedup. At reset so many different buckets are drawn, with the softmax of their
    mean speedups (mean-centred, divided by `temperature`) as probabilities, and one kernel from each; the slowest is
    shown first. The prompt asks what makes the difference. Only correct kernels with a measured speed serve.

    They come from a file of `kernelgym_env.store.Store`, which is read at the first reset, and with `collect` from the
    turns played in this environment. With `collect` the prompt depends on what was played before; where all members of
    a group must see the same prompt, switch it off.

    ``info["exemplar_speedups"]``, float64 [count], has the speedups shown, NaN where there was nothing to show.

    Place: inside `HistoryPrompt`, whose budget counts them.

    Args:
        env: what to wrap; its observations are a `KernelEnv`'s.
        path: a file of trajectories, or None.
        count: how many kernels to show, at least 1.
        edges: speedups that separate the buckets, rising.
        temperature: of the softmax, above 0; higher is closer to a uniform choice.
        collect: whether kernels of this environment's own turns are added.

    Attributes:
        kernels: what there is to draw from, by task id.

    Raises:
        InvalidOptionError: for an argument outside its range, another form of observations, or if there is no source
            of kernels.

    >>> import gymnasium as gym
    >>> env = Exemplars(gym.make("kernelgym_env:KernelGym/Fake-v0", turns=3))
    >>> observation, info = env.reset(seed=0)
    >>> for speedup in (0.7, 1.2, 2.5):
    ...     step = env.step(f"# fake: speedup={speedup}\\nclass ModelNew: ...")
    >>> observation, info = env.reset(seed=0)
    >>> info["exemplar_speedups"].tolist()
    [1.2, 2.5]
    >>> "speedup 1.20x:" in observation["prompt"]
    True
    """

    place: ClassVar[str | None] = "exemplars"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        path: str | None = None,
        count: int = 2,
        edges: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0),
        temperature: float = 1.0,
        collect: bool = True,
    ) -> None:
        super().__init__(env, path=path, count=count, edges=edges, temperature=temperature, collect=collect)
        _require(self, ("prompt", "history"))
        if path is not None and not isinstance(path, str):
            raise InvalidOptionError(f"path must be the path of a file, or None, got {path!r:.200}.")
        if path is None and not collect:
            raise InvalidOptionError("Exemplars needs a source of kernels: give a path, or collect=True.")
        if path is not None and not Path(path).expanduser().is_file():
            raise InvalidOptionError(
                f"Exemplars: there is no file {path!r}. Record trajectories first, or leave path out."
            )
        self.path = path
        self.count = whole("Exemplars", "count", count, low=1)
        self.edges = tuple(number("Exemplars", "an edge", edge, above=0) for edge in edges)
        if list(self.edges) != sorted(set(self.edges)):
            raise InvalidOptionError(f"edges must rise, got {edges!r:.200}.")
        self.temperature = number("Exemplars", "temperature", temperature, above=0)
        self.collect = bool(collect)
        self.kernels: dict[str, list[Kernel]] = {}
        self._read = path is None
        self._rng = np.random.default_rng()
        self._shown = ""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        needs(self, info, "task_id")
        if seed is not None:
            self._rng = np.random.default_rng([seed, 0xE8E])  # a stream of its own: the environment's stays as it is
        if not self._read:
            self._load()
        chosen = draw(self.kernels.get(info["task_id"], ()), self.count, self.edges, self.temperature, self._rng)
        self._shown = _exemplar_text(chosen)
        speedups = np.full(self.count, np.nan)
        speedups[: len(chosen)] = [kernel.speedup for kernel in chosen]
        return self._observation(observation), {**info, "exemplar_speedups": speedups}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.collect:
            needs(self, info, "correct", "speedup")
        if self.collect and info["correct"] and observation["history"]:
            self._add(info["task_id"], observation["history"][-1]["action"], info["speedup"])
        info = {**info, "exemplar_speedups": np.full(self.count, np.nan)}
        return self._observation(observation), reward, terminated, truncated, info

    def _load(self) -> None:
        assert self.path is not None
        for record in Store(self.path).records():
            if record.evaluation.get("credited") and isinstance(record.action, str):
                self._add(record.task_id, record.action, record.evaluation["speedup"])
        self._read = True

    def _add(self, task_id: str, reply: str, speedup: float) -> None:
        kernel = Kernel(parse_reply(reply).source, float(speedup))
        if kernel.source and math.isfinite(kernel.speedup) and kernel not in self.kernels.setdefault(task_id, []):
            self.kernels[task_id].append(kernel)

    def _observation(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        return {**observation, "prompt": clip(observation["prompt"] + self._shown, MAX_PROMPT_CHARS)}


_EXEMPLAR_CHARS = 16_384


def _exemplar_text(kernels: Sequence[Kernel]) -> str:
    if not kernels:
        return ""
    shown = [
        f"Kernel {place}, speedup {kernel.speedup:.2f}x:\n{fenced(clip(kernel.source, _EXEMPLAR_CHARS))}"
        for place, kernel in enumerate(kernels, 1)
    ]
    ask = (
        "First work out what makes the faster one faster and what both leave undone."
        if len(kernels) > 1
        else "First work out what it leaves undone."
    )
    return "\n\n".join(
        [
            "\n\nEarlier kernels for this task, with their speedups over eager PyTorch:",
            *shown,
            f"{ask} Then write a faster one.",
        ]
    )


class ChatObservation(KernelWrapper):
    """Replaces the observation by chat messages: a tuple of ``{"role", "content"}``.

    The messages are those of `kernelgym_env.messages`: the task, then each reply and its result, ending with the
    user's. What the dict had besides is in ``info`` (``turn``, ``turns_left``).

    Place: outside the other wrappers of observations, inside `RecordTrajectory`.

    Args:
        env: what to wrap; its observations are a `KernelEnv`'s.
        system: a system message to begin with, or None.

    Raises:
        InvalidOptionError: for another form of observations, or a system message that is no text or too long.

    >>> import gymnasium as gym
    >>> env = ChatObservation(gym.make("kernelgym_env:KernelGym/Fake-v0"), system="You write Triton.")
    >>> observation, info = env.reset()
    >>> [message["role"] for message in env.step("class ModelNew: ...")[0]]
    ['system', 'user', 'assistant', 'user']
    """

    place: ClassVar[str | None] = "chat"

    def __init__(self, env: gym.Env[Any, Any], system: str | None = None) -> None:
        super().__init__(env, system=system)
        _require(self, ("prompt", "history", "turns_left"))
        if system is not None and not isinstance(system, str):
            raise InvalidOptionError(f"system must be a text or None, got {system!r:.200}.")
        limit = max(MAX_PROMPT_CHARS, MAX_SOURCE_CHARS)
        if system is not None and len(system) > limit:
            raise InvalidOptionError(f"system has {len(system)} characters; at most {limit} are allowed.")
        self.system = system
        self.observation_space = spaces.Sequence(spaces.Dict({"role": UnicodeText(16), "content": UnicodeText(limit)}))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._chat(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._chat(observation), reward, terminated, truncated, info

    def _chat(self, observation: Mapping[str, Any]) -> tuple[dict[str, str], ...]:
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        return (*first, *messages(observation))


def _require(wrapper: KernelWrapper, keys: Sequence[str]) -> None:
    """Check that observations are dicts with these keys."""
    space = wrapper.env.observation_space
    if not isinstance(space, spaces.Dict) or not set(keys) <= set(space.spaces):
        raise InvalidOptionError(
            f"{type(wrapper).__name__} needs observations that are dicts with {', '.join(keys)}, as a KernelEnv gives; "
            f"this environment has {space!r:.200}."
        )
