"""All that a run imports, so that processes forked from a server of processes start at once."""

import aiohttp  # noqa: F401
import lm_eval.models.openai_completions  # noqa: F401
from lm_eval.evaluator import simple_evaluate  # noqa: F401

import lm_eval_adaptive.run.loop  # noqa: F401
from lm_eval_adaptive.host.registries import register_all

register_all()
