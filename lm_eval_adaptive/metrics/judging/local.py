"""Asking a model of the harness as judge."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import AdaptiveError, ModelError, UsageError
from lm_eval_adaptive.metrics.judging.reply import Reply
from lm_eval_adaptive.redact import hide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.metrics.judging.config import JudgeSettings
    from lm_eval_adaptive.metrics.judging.server import Messages


@functools.lru_cache(maxsize=1)
def harness_model(name: str, model_args: str) -> Any:
    """A model of the harness, loaded once.

    Raises:
        UsageError: It does not load.
    """
    import lm_eval.models
    from lm_eval.api.registry import get_model

    assert lm_eval.models
    try:
        return get_model(name).create_from_arg_string(model_args)
    except Exception as error:  # any back end's
        raise UsageError(
            f"judge {name}({hide(model_args)}) does not load: {_first_line(error)}; check "
            "metadata.metrics.judge.harness and model_args"
        ) from error


def _first_line(error: Exception) -> str:
    lines = hide(str(error)).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def ask_harness_model(asked: Sequence[Messages], settings: JudgeSettings) -> list[Reply]:
    """Replies of a harness model, in one call, and in a second one for those that were cut.

    Its chat template is used where it has one.

    Raises:
        UsageError: The model does not load.
        ModelError: It fails.
    """
    replies = _generate(asked, settings, settings.max_tokens)
    cut = [place for place, reply in enumerate(replies) if reply.cut]
    if cut and settings.max_tokens_again > settings.max_tokens:
        again = _generate([asked[place] for place in cut], settings, settings.max_tokens_again)
        for place, reply in zip(cut, again, strict=True):
            replies[place] = reply
    return replies


def _generate(asked: Sequence[Messages], settings: JudgeSettings, limit: int) -> list[Reply]:
    from lm_eval.api.instance import Instance

    model = harness_model(settings.harness, settings.model_args)
    options = {"until": [], "do_sample": False, "temperature": 0.0, "max_gen_toks": limit}
    if settings.reasoning_effort:
        options["reasoning_effort"] = settings.reasoning_effort
    requests = []
    for place, messages in enumerate(asked):
        try:
            prompt = model.apply_chat_template(messages)
        except (NotImplementedError, AttributeError, ValueError):
            prompt = "\n\n".join(each["content"] for each in messages)
        requests.append(
            Instance(
                request_type="generate_until",
                doc={},
                arguments=(prompt, dict(options)),
                idx=0,
                metadata=("judge", place, 1),
            )
        )
    try:
        replies = model.generate_until(requests, disable_tqdm=True)
    except AdaptiveError:
        raise
    except Exception as error:  # any back end's
        raise ModelError(
            f"judge {settings.name} failed: {_first_line(error)}; verdicts so far are cached"
        ) from error
    return [Reply(str(reply or ""), "", limit) for reply in replies]
