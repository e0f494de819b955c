"""Many large files read on several cores: helper processes read, this one puts together.

A helper is a Python of its own that gets its files by pipe and sends each back as columns, in
order. It runs none of the user's program, as a pool of ``multiprocessing`` would where that is not
guarded by its name.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any

from lm_eval_adaptive.errors import AdaptiveError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_WORTH_IT = 200_000_000  # bytes in all, from which starting helpers pays
_MOST = 8
_CODE = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from lm_eval_adaptive.host.logs.side_by_side import serve; serve()"
)


def helpers_for(sizes: Sequence[int], cores: int | None = None) -> int:
    """How many helpers files of these sizes are worth; 0 for reading them here.

    >>> helpers_for([10, 20], 8), helpers_for([150_000_000] * 3, 2), helpers_for([10**9], 8)
    (0, 2, 0)
    """
    if cores is None:
        affinity = getattr(os, "sched_getaffinity", None)
        cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    if cores < 2 or len(sizes) < 2 or sum(sizes) < _WORTH_IT:
        return 0
    return min(cores, len(sizes), _MOST)


def read_side_by_side(read: Callable[[Any], Any], jobs: Sequence[Any], count: int) -> Iterator[Any]:
    """What a function makes of each job, in the jobs' order.

    Args:
        read: A function of a module, called with a job.
        jobs: Its arguments; they and the results can be pickled.
        count: How many helpers.

    Raises:
        AdaptiveError: As the function raises it.
        DataError: A helper ended without an answer.
    """
    helpers = [
        subprocess.Popen(  # noqa: S603  our own interpreter and words
            [sys.executable, "-c", _CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(count)
    ]
    try:
        for number, helper in enumerate(helpers):
            pipe: Any = helper.stdin
            pickle.dump(sys.path, pipe)
            pickle.dump((read, jobs[number::count]), pipe)
            pipe.close()
        for number in range(len(jobs)):
            answers: Any = helpers[number % count].stdout
            try:
                answer = pickle.load(answers)  # noqa: S301  from our own helper
            except (EOFError, pickle.UnpicklingError) as error:
                raise DataError(
                    f"a helper that reads {jobs[number]} ended early; is there memory left?"
                ) from error
            if isinstance(answer, AdaptiveError):
                raise answer
            yield answer
    finally:
        for helper in helpers:
            helper.kill()
            helper.wait()
            if helper.stdout is not None:
                helper.stdout.close()


def serve(source: IO[bytes] | None = None, sink: IO[bytes] | None = None) -> None:
    """What a helper does: read each of its jobs, write what comes of it, stop at an error."""
    source, sink = source or sys.stdin.buffer, sink or sys.stdout.buffer
    read, jobs = pickle.load(source)  # noqa: S301  from the process that started it
    for job in jobs:
        try:
            answer = read(job)
        except AdaptiveError as error:
            answer = error
        pickle.dump(answer, sink, protocol=pickle.HIGHEST_PROTOCOL)
        sink.flush()
        if isinstance(answer, AdaptiveError):
            return
