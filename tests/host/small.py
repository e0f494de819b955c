"""Small tasks on texts of our own, run plainly by the harness and adaptively by us."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import LM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ANIMALS = ("otter", "heron", "beetle", "pike", "hare", "newt")
PLACES = ("river", "moor", "orchard", "harbour")


def documents() -> list[dict[str, Any]]:
    """24 questions, each with its answer and three wrong ones."""
    return [
        {
            "question": f"Where does the {animal} of the {place} live?",
            "right": f"near the old {place}",
            "wrong": [f"near the old {other}" for other in PLACES if other != place],
        }
        for animal in ANIMALS
        for place in PLACES
    ]


class WordLM(LM):
    """Repeats the words of the right answer but for every ``miss``-th document; 0 misses none."""

    def __init__(self, miss=0, batch_size=None, device=None, max_batch_size=None):
        super().__init__()
        self.miss = int(miss)
        self.prompts = []

    def generate_until(self, requests, disable_tqdm=False):
        found = []
        for request in requests:
            self.prompts.append(request.args[0])
            wrong = self.miss and request.doc_id % self.miss == 0
            found.append("nowhere at all" if wrong else request.doc["right"])
        return found

    def loglikelihood(self, requests, disable_tqdm=False):
        raise NotImplementedError

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError


def register() -> None:
    """Make the model known to the harness."""
    import lm_eval.models  # noqa: F401  the harness's own models have to be registered first
    from lm_eval.api.registry import model_registry

    if "word" not in model_registry:
        model_registry.register("word", target=WordLM)


SCORE = """
def words_right(doc, results):
    want, got = doc["right"].split(), str(results[0]).split()
    return {"score": sum(a == b for a, b in zip(want, got)) / len(want)}
"""


def write_task(
    folder: Path,
    yaml: str,
    code: str = "",
    *,
    name: str = "small",
    docs: Sequence[dict[str, Any]] | None = None,
) -> Path:
    """Write a task's YAML, its ``util.py`` and its data; the YAML's path.

    ``yaml`` is what the task has besides data, output type and target; the metric is ``score``
    unless it says otherwise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(doc) for doc in (documents() if docs is None else docs)]
    (folder / "docs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / f"{name}_util.py").write_text(SCORE + code, encoding="utf-8")
    parts = [
        f"task: {name}",
        "dataset_path: json",
        f"dataset_kwargs: {{data_files: {{test: {folder / 'docs.jsonl'}}}}}",
        "test_split: test",
        "output_type: generate_until",
        'generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 16, do_sample: false}',
        "metadata: {version: 1.0, adaptive: {metric: score, range: [0, 1]}}"
        if "metadata:" not in yaml
        else "",
        "" if "doc_to_text:" in yaml else 'doc_to_text: "{{question}}"',
        "" if "doc_to_target:" in yaml else 'doc_to_target: "{{right}}"',
    ]
    if "metric_list:" not in yaml:
        parts += [
            f"process_results: !function {name}_util.words_right",
            "metric_list:",
            "  - {metric: score, aggregation: mean, higher_is_better: true}",
        ]
    text = "\n".join([*filter(None, parts), yaml.replace("UTIL", f"{name}_util")]) + "\n"
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def config_of(path: Path) -> dict[str, Any]:
    """The task's configuration as the harness's command line loads it."""
    from lm_eval.tasks._yaml_loader import load_yaml

    return dict(load_yaml(str(path), resolve_func=True))


def run_plainly(
    *paths: Path, seeds: tuple[int, int] = (0, 1234), miss: int = 0, **options: Any
) -> dict[str, Any]:
    """The harness's own results on one model."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    return simple_evaluate(
        model=WordLM(miss),
        tasks=[config_of(path) for path in paths],
        task_manager=TaskManager(include_defaults=False),
        random_seed=seeds[0],
        numpy_random_seed=seeds[1],
        bootstrap_iters=0,
        log_samples=True,
        **options,
    )


def run_adaptively(
    folder: Path,
    *paths: Path,
    seeds: tuple[int, int] = (0, 1234),
    misses: Sequence[int] = (0, 2),
    resume: Path | None = None,
    adaptive: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Our run of models that miss every n-th document, without a bank unless told otherwise."""
    from lm_eval_adaptive import AdaptiveConfig, simple_evaluate

    register()
    models = [
        {"name": f"miss-{miss}", "model": "word", "model_args": {"miss": miss}} for miss in misses
    ]
    return simple_evaluate(
        models,
        [str(path) for path in paths],
        AdaptiveConfig(**{"bank": "none", "items_per_model": 24, **(adaptive or {})}),
        resume=resume,
        output_path=None if resume else str(folder),
        random_seed=seeds[0],
        numpy_random_seed=seeds[1],
        **options,
    )
