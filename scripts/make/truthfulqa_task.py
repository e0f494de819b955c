"""Write task files that run the harness's truthfulqa-multi generation tasks from local documents.

    python scripts/make/truthfulqa_task.py OUTPUT_DIR [--documents DIR]

The files keep the harness's task names, so that logs of the original tasks fit them; use them with
``--include_path OUTPUT_DIR``. The documents are optional data beside the repository
(``../shared/datasets/truthfulqa-multi``).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

LANGUAGES = ("en", "es")
DOCUMENTS = Path(__file__).resolve().parents[3] / "shared" / "datasets" / "truthfulqa-multi"


def task_file(language: str, documents: Path, harness_tasks: Path) -> str:
    """Text of the YAML file of one language."""
    name = f"truthfulqa-multi_gen_{language}"
    files = {
        split: str((documents / language / f"{split}.jsonl").resolve())
        for split in ("train", "validation")
    }
    config = {
        "include": str(harness_tasks / "truthfulqa-multi" / f"{name}.yaml"),
        "task": name,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": files},
        "num_fewshot": 6,
    }
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


def write_tasks(output: Path, documents: Path = DOCUMENTS) -> list[Path]:
    """Write the task file of each language whose documents are there; return their paths."""
    import lm_eval.tasks

    harness_tasks = Path(lm_eval.tasks.__file__).parent
    output.mkdir(parents=True, exist_ok=True)
    written = []
    for language in LANGUAGES:
        if not (documents / language / "validation.jsonl").is_file():
            continue
        path = output / f"truthfulqa-multi_gen_{language}.yaml"
        path.write_text(task_file(language, documents, harness_tasks), encoding="utf-8")
        written.append(path)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="directory for the YAML files")
    parser.add_argument("--documents", type=Path, default=DOCUMENTS, help="truthfulqa-multi data")
    options = parser.parse_args()
    written = write_tasks(options.output, options.documents)
    if not written:
        parser.error(f"no documents under {options.documents}, expected en/validation.jsonl")
    for path in written:
        print(path)


if __name__ == "__main__":
    main()
