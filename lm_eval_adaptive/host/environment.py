"""The process around a run: how loud it is, whether it is alone, what a null answer looks like.

This module owns the environment variables and the global switches of the harness that a run sets
for its time; it imports the standard library only.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.host.noise import Noise

if TYPE_CHECKING:
    from collections.abc import Iterator

# What the harness's API models are told to put where a server's content is null, in place of "".
NULL_ANSWER = "\ufdd0null"


def silenced() -> bool:
    """Whether ``LMEVAL_LOG_LEVEL`` asks for nothing but errors."""
    level = logging.getLevelName(os.environ.get("LMEVAL_LOG_LEVEL", "").upper())
    return isinstance(level, int) and level >= logging.ERROR


def hush_bars() -> bool:
    """Turn progress bars off unless asked for; they read this when tqdm is first imported.

    Returns:
        Whether they are to be off.
    """
    quiet = silenced() or not os.environ.get("LMEVAL_LOG_LEVEL")
    if quiet:
        os.environ["TQDM_DISABLE"] = "1"
    return quiet


@contextmanager
def quiet_harness() -> Iterator[None]:
    """Keep the harness's progress bars and info lines out of the way unless asked for."""
    logger = logging.getLogger("lm_eval")
    before = logger.level
    bars = os.environ.get("TQDM_DISABLE")
    if hush_bars():
        logger.setLevel(logging.WARNING if Noise.kept else logging.ERROR)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        yield
    finally:
        logger.setLevel(before)
        if bars is None:
            os.environ.pop("TQDM_DISABLE", None)


def refuse_several_processes() -> None:
    """Under accelerate launch or torchrun every process would ask and write for itself.

    Raises:
        UsageError: This process is one of several.
    """
    count = os.environ.get("WORLD_SIZE", "1")
    if count.isdecimal() and int(count) > 1:
        raise UsageError(
            f"adaptive runs take one process, this is one of {count} (accelerate launch or "
            "torchrun): start lm-eval-adaptive by itself and use the back end's own parallelism "
            "(hf: parallelize=True, vllm: tensor_parallel_size), or a server with several GPUs "
            "behind local-completions: docs/serving.md and docs/clusters.md say how"
        )


@contextmanager
def null_answers_told_apart() -> Iterator[None]:
    """Have API models mark null content, which they would pass on as an empty answer."""
    name = "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER"
    if os.environ.get(name):  # the user's own choice of what stands for null is an answer
        yield
        return
    os.environ[name] = NULL_ANSWER
    module = sys.modules.get("lm_eval.models.api_models")
    if module is not None:
        setattr(module, name, NULL_ANSWER)
    try:
        yield
    finally:
        del os.environ[name]
        module = sys.modules.get("lm_eval.models.api_models")
        if module is not None:
            setattr(module, name, "")
