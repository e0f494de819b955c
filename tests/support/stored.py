"""A task whose YAML names no bank, and banks for it: what the store's tests are made with."""

from __future__ import annotations

from dataclasses import replace

import yaml

from lm_eval_adaptive.api import AdaptiveConfig, simple_evaluate
from lm_eval_adaptive.banks.store import Store
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.host.find_tasks import tasks_folder
from tests.support import toy

TASK = "records_stored"
NAME = f"{TASK}_rougeL"
_RANGES = {"rougeL": [0, 1], "slot_coverage": [0, 1]}


def make_task(folder):
    """The shipped task under another name, without a bank; its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "include": str(tasks_folder() / "records" / "records_to_text.yaml"),
        "task": TASK,
        "metadata": {"version": 1.0, "adaptive": {"metric": "rougeL", "ranges": _RANGES}},
    }
    (folder / f"{TASK}.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return folder


def bank_for(path, toy_bank, **info):
    """The toy bank as one of that task, saved; ``info`` replaces what it says of itself."""
    bank = ItemBank.load(toy_bank)
    return replace(bank, info=replace(bank.info, **{"task": TASK, **info})).save(path)


def rank(tasks, folder, models, **options):
    """A run on the task; what ``simple_evaluate`` gives."""
    harness = {key: options.pop(key) for key in ("num_fewshot", "resume") if key in options}
    return simple_evaluate(
        toy.models(models),
        [TASK],
        AdaptiveConfig(**{"items_per_model": 20, **options}),
        include_path=str(tasks),
        output_path=str(folder),
        **harness,
    )


def models_of(name=NAME):
    """Names of the models of a stored bank."""
    bank = ItemBank.load(Store().file_of(name))
    return [model.name for model in bank.info.models]
