"""The space of sources, prompts and feedback.

- `UnicodeText` -- any string whose length lies within bounds.

Gymnasium's `Text` admits only the characters of a set that it holds in memory. A set with all of Unicode takes seconds
to build; one with ASCII alone refuses a source with an ``é`` in a comment. `UnicodeText` looks at the length only.

Importing this module also tells Gymnasium how to treat the space:

- Vector environments batch it as they batch `Text`, into a tuple of strings.
- Shared memory refuses it. `Text` comes back from there as garbage, and without an error.
- Flattening leaves it as it is, since a string has no fixed set of characters to count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from gymnasium import Space
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Text, Tuple
from gymnasium.spaces.utils import flatdim, flatten, flatten_space, is_space_dtype_shape_equiv, unflatten
from gymnasium.vector.utils import (
    batch_differing_spaces,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)
from numpy.typing import NDArray

from kernelgym_env.errors import InvalidOptionError

__all__ = ["UnicodeText"]

_SAMPLED_CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))
_SAMPLED_LENGTH = 256


class UnicodeText(Text):
    """Every `str` of `min_length` to `max_length` characters, both inclusive.

    A sample is noise of printable ASCII and line feeds, at most 256 characters long unless `min_length` asks for more.
    It costs well under a millisecond and does no harm as an action: it defines no model, so an environment answers
    with a format error and starts nothing.

    Args:
        max_length: greatest length in characters.
        min_length: least length in characters.
        seed: seed of the samples.

    Raises:
        InvalidOptionError: unless both bounds are integers and 0 <= min_length <= max_length.

    >>> space = UnicodeText(10)
    >>> space
    UnicodeText(0, 10)
    >>> "“naïve”" in space, "" in space, "x" * 11 in space, b"bytes" in space
    (True, True, False, False)
    """

    def __init__(self, max_length: int, *, min_length: int = 0, seed: int | np.random.Generator | None = None) -> None:
        integers = all(isinstance(bound, int | np.integer) for bound in (min_length, max_length))
        if not integers or not 0 <= min_length <= max_length:
            raise InvalidOptionError(
                "UnicodeText needs integers with 0 <= min_length <= max_length, "
                f"got min_length={min_length!r}, max_length={max_length!r}."
            )
        super().__init__(max_length, min_length=min_length, charset=_SAMPLED_CHARACTERS, seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether `x` is a string whose length lies within the bounds."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def sample(
        self,
        mask: tuple[int | None, NDArray[np.int8] | None] | None = None,
        probability: tuple[int | None, NDArray[np.float64] | None] | None = None,
    ) -> str:
        """Draw a string.

        Args:
            mask: the length to draw (None: any), and 0 or 1 for each of the 96 characters of `character_list`, int8
                (None: all).
            probability: the same with a probability for each character, float64, that sum to 1.

        Raises:
            ValueError: if both are given.
            AssertionError: if one has another form, from Gymnasium.
        """
        if mask is None and probability is None:
            mask = (None, None)
        return super().sample(mask=self._with_length(mask), probability=self._with_length(probability))

    def _with_length(self, drawn: Any) -> Any:
        """Put a drawn length where `drawn` leaves it open: Gymnasium would draw up to the greatest one."""
        if isinstance(drawn, tuple) and len(drawn) == 2 and drawn[0] is None:
            longest = max(self.min_length, min(self.max_length, _SAMPLED_LENGTH))
            return int(self.np_random.integers(self.min_length, longest + 1)), drawn[1]
        return drawn

    @property
    def is_np_flattenable(self) -> bool:
        """False: no numpy array of fixed size stands for a string."""
        return False

    def __repr__(self) -> str:
        return f"UnicodeText({self.min_length}, {self.max_length})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, UnicodeText)
            and self.min_length == other.min_length
            and self.max_length == other.max_length
        )

    def __hash__(self) -> int:
        return hash((UnicodeText, self.min_length, self.max_length))


@create_shared_memory.register(UnicodeText)
@read_from_shared_memory.register(UnicodeText)
@write_to_shared_memory.register(UnicodeText)
def _refuse_shared_memory(space: UnicodeText, *args: Any, **kwargs: Any) -> NoReturn:
    # AsyncVectorEnv turns this class of error into a ValueError that names the same remedy, with this one as its cause.
    raise CustomSpaceError(
        f"{space} does not fit into shared memory, since its characters are not a closed set. "
        "Use shared_memory=False, e.g. gymnasium.make_vec(..., vectorization_mode='async', "
        "vector_kwargs={'shared_memory': False})."
    )


# Gymnasium looks this one up by the exact class of the members, so the registration of `Text` does not serve. It is
# declared for a list of spaces and registered for the class of one, which a type checker cannot follow.
@batch_differing_spaces.register(UnicodeText)
def _batch_differing(spaces: Sequence[UnicodeText]) -> Tuple:  # type: ignore[misc]
    members = batch_differing_spaces.dispatch(Text)(spaces)
    assert isinstance(members, Tuple)
    return members


@flatdim.register(UnicodeText)
def _flatdim(space: UnicodeText) -> NoReturn:
    raise ValueError(f"{space} has no flat size. Drop or encode text before flattening, e.g. with FilterObservation.")


@flatten_space.register(UnicodeText)
def _flatten_space(space: UnicodeText) -> UnicodeText:
    return space


@flatten.register(UnicodeText)
@unflatten.register(UnicodeText)
def _flatten(space: UnicodeText, x: str) -> str:  # type: ignore[misc]  # `unflatten` is declared for any Space[T]
    return x


@is_space_dtype_shape_equiv.register(UnicodeText)
def _is_equivalent(space_1: UnicodeText, space_2: Space[Any]) -> bool:
    return isinstance(space_2, UnicodeText) and space_1.max_length == space_2.max_length
