"""Threads of linear algebra: no more than are allowed, and none that wait for each other.

This module owns how two halves of a computation go side by side; it imports threadpoolctl when it
is used. A library of linear algebra splits every small product among its threads, which then wait
for each other longer than they work. Where more than one thread is allowed (``OMP_NUM_THREADS``,
or the machine's cores), whole halves go side by side instead, each with one thread, so that numbers
do not hang on how many there are.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Given = TypeVar("Given")
Found = TypeVar("Found")


@lru_cache(maxsize=1)
def _controller() -> Any:
    """The libraries of linear algebra of this process; looking for them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def allowed() -> int:
    """How many threads linear algebra may use now; 1 where no library tells."""
    return max((int(each["num_threads"]) for each in _controller().info()), default=1)


def side_by_side(make: Callable[[Given], Found], given: Iterable[Given]) -> list[Found]:
    """Make something of each thing given, in threads where more than one is allowed.

    Linear algebra has one thread meanwhile.

    >>> side_by_side(abs, [-1, 2])
    [1, 2]
    """
    things = list(given)
    threads = min(allowed(), len(things))
    with _controller().limit(limits=1):
        if threads < 2:
            return [make(each) for each in things]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(make, things))
