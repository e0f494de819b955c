"""What becomes of each option of the harness's ``run`` in an adaptive run.

This module owns the decision, one for every option of every supported version: honoured as the
harness has it, read by this package's own rules, or refused with the reason. An option that stands
in no table is refused by name, so that a newer harness's option never does nothing in silence; a
test walks the harness's parser and its configuration file against these tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Options that would change which documents are asked, with the reason to refuse.
REFUSED = {
    "limit": "it cuts the documents an adaptive run chooses from; use --max_items",
    "samples": "it fixes the documents that an adaptive run chooses; use plain lm-eval for that",
    "predict_only": "an adaptive run needs every answer's score to choose the next document",
    "cache_requests": (
        "the harness's request cache does not know which documents were chosen and would serve "
        "wrong prompts; use --use_cache, which caches answers"
    ),
    "check_integrity": "it tests the harness's own checkout; use `validate`",
}

# As the harness has them, and what they mean to several models and tasks.
HONOURED = {
    "tasks": "names, groups, tags, patterns, YAML files and folders, in any mix",
    "num_fewshot": "for all models",
    "batch_size": "for all models; a model of --models may have its own",
    "max_batch_size": "for all models",
    "device": "for all models; a model of --models may have its own",
    "use_cache": "a database for each model",
    "system_instruction": "for all models; a model of --models may have its own",
    "apply_chat_template": "for all models; a model of --models may have its own",
    "fewshot_as_multiturn": "for all models that a chat template is applied to",
    "gen_kwargs": "for all models; a model's own in --models update them",
    "output_path": "the run's folder; a path that ends like a file's is refused",
    "include_path": "folders of tasks that are looked in besides",
    "seed": "of random, numpy, torch and the few-shot draws",
    "metadata": "for all tasks, over the model arguments that all models share",
    "write_out": "the first document asked of each task is shown as it was sent",
    "show_config": "each model's results are printed whole",
    "confirm_run_unsafe_code": "for all tasks",
    "wandb_args": "a tracker run for each model, and one of the ranking",
    "wandb_config_args": "for each of those",
    "trackio_args": "a tracker run for each model, and one of the ranking",
    "hf_hub_log_args": "for each model's files",
}

# Read by rules of this package's own.
OURS = {
    "config": "a file of options; those of adaptive runs may stand in it too",
    "model": "opens a candidate each time it is given",
    "model_args": "of the --model before it",
    "log_samples": "an adaptive run always keeps its samples",
    "trust_remote_code": "for data sets, and for every model that does not say otherwise",
    "verbosity": "the level of the harness's log, as LMEVAL_LOG_LEVEL",
}


def refuse_options(given: Mapping[str, Any]) -> None:
    """Refuse what an adaptive run cannot do, or does not know.

    Args:
        given: Options of the harness that were given, by name.

    Raises:
        UsageError: One is refused, or stands in no table here.
    """
    for name, value in given.items():
        if name in REFUSED and value is not None and value is not False:
            raise UsageError(f"--{name} does not go with --adaptive: {REFUSED[name]}")
    for name, value in given.items():
        if name not in {*REFUSED, *HONOURED, *OURS} and value:
            raise UsageError(
                f"--{name} is no option that adaptive runs know; leave it out, or run the harness "
                "without --adaptive"
            )
