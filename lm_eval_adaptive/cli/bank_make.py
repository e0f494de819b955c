"""``bank make``: a bank from scratch at a stated price.

This module owns the command's options and what it says; the asking is an adaptive run's without a
bank, ``run.making``'s, the bank is made of the run's own logs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError, UsageError

if TYPE_CHECKING:
    import argparse

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.records.outcome import RunOutcome
    from lm_eval_adaptive.records.ranking import RankingDocument

# Options of ``run`` that are taken as they are.
_PASSED = (
    "metric", "range", "include_path", "num_fewshot", "batch_size", "device", "seed", "gen_kwargs",
    "system_instruction", "resident",
)  # fmt: skip
_FLAGS = ("apply_chat_template", "fewshot_as_multiturn", "trust_remote_code",
          "confirm_run_unsafe_code")  # fmt: skip


def add_make(inner: Any) -> None:
    """Add the command to those of ``bank``."""
    make: argparse.ArgumentParser = inner.add_parser(
        "make",
        help="Have models answer a share of a task's documents, and make a bank of it",
        description="All models answer the same documents, drawn at random and spread over their "
        "lengths: a quarter of the share first, then more while that makes the bank better. The "
        "same command again goes on after an interruption.",
        epilog="example: lm-eval-adaptive bank make --tasks my_task --models models.yaml "
        "--share .2 --output my_task.bank.parquet",
    )
    make.add_argument("--tasks", required=True, metavar="TASK", help="Task name or YAML file")
    make.add_argument("--models", required=True, metavar="FILE", help="YAML list of models")
    make.add_argument(
        "--share", type=float, default=0.2, help="Most of the documents to ask; default: .2"
    )
    make.add_argument("--output", required=True, metavar="FILE", help="Bank file to write")
    make.add_argument(
        "--output_path", default=None, metavar="DIR", help="Run folder; default: beside the bank"
    )
    for name in _PASSED:
        make.add_argument(f"--{name}", default=None, help="As of `run`")
    for name in _FLAGS:
        make.add_argument(f"--{name}", action="store_true", help="As of `run`")
    make.add_argument("--overwrite", action="store_true", help="Replace an existing bank")
    make.set_defaults(func=make_bank)


def make_bank(namespace: argparse.Namespace) -> int:
    """Ask, calibrate, save, say what it cost and how good it is."""
    from lm_eval_adaptive.cli.main import build_parser
    from lm_eval_adaptive.cli.request import read_request
    from lm_eval_adaptive.cli.words import parse
    from lm_eval_adaptive.records.files import check_file

    output = Path(namespace.output)
    if not 0.0 < namespace.share <= 1.0:
        raise UsageError(f"--share must be above 0 and at most 1, got {namespace.share:g}")
    check_file(output, "--output")
    if output.exists() and not namespace.overwrite:
        raise UsageError(f"{output} exists already; choose another --output or add --overwrite")
    folder = Path(namespace.output_path or f"{output}.run")
    parser, _ = build_parser()
    asked = read_request(parse(parser, _words(namespace, folder)))
    if len(asked.candidates) < 3:
        raise UsageError(
            f"--models {namespace.models} has {len(asked.candidates)} model(s); a bank needs 3 at "
            "the least, and is worth having from about 8"
        )
    outcome, said = _run(asked, folder, namespace.share)
    bank = _bank_of(folder, outcome)
    bank.save(output)
    _say(bank, output, outcome, said)
    return 0


def _words(namespace: argparse.Namespace, folder: Path) -> list[str]:
    """The command line of the run that asks."""
    words = ["run", "--adaptive", "--bank", "none", "--tasks", namespace.tasks]
    words += ["--models", namespace.models, "--output_path", str(folder)]
    for name in _PASSED:
        value = getattr(namespace, name)
        if value is not None:
            words += [f"--{name}={value}"]
    return words + [f"--{name}" for name in _FLAGS if getattr(namespace, name)]


def _run(asked: Any, folder: Path, share: float) -> tuple[RunOutcome, list[str]]:
    from dataclasses import replace

    from lm_eval_adaptive.api import perform
    from lm_eval_adaptive.host.registries import register_all
    from lm_eval_adaptive.records.journal import NAME
    from lm_eval_adaptive.run.making import MakingRun

    register_all()
    again = (folder / NAME).is_file()
    run = MakingRun(
        asked.candidates,
        asked.settings,
        replace(asked.adaptive, share=share, grow=False),
        resume=folder if again else None,
    )
    return perform(run), run.said


def _bank_of(folder: Path, outcome: RunOutcome) -> ItemBank:
    """The bank of the answers of all models that were not set aside.

    Raises:
        DataError: They are too few.
    """
    from lm_eval_adaptive.banks.calibrate import calibrate_from
    from lm_eval_adaptive.banks.options import CalibrateOptions

    (task,) = outcome.tasks.values()
    ranking: RankingDocument = task.ranking
    lost = [each.model for each in ranking.set_aside]
    if len(ranking.ranking) < 3:
        raise DataError(
            f"{len(ranking.ranking)} model(s) answered, a bank needs 3 at the least; all answers "
            f"are in {folder}: mend {', '.join(lost) or 'the models'} and give the command again"
        )
    return calibrate_from(
        CalibrateOptions(
            task=ranking.task,
            metric=f"{ranking.metric},{ranking.filter}",
            samples=(str(folder),),
            exclude_model=tuple(name for name in lost if (folder / name).is_dir()),
            score_range=ranking.bank.range,
            clip=True,
            lower_is_better=ranking.higher_is_better is False,
            allow=("partial", "prompts"),
        )
    )


def _say(bank: ItemBank, output: Path, outcome: RunOutcome, said: list[str]) -> None:
    (task,) = outcome.tasks.values()
    for line in said:
        print(line)
    for each in task.ranking.set_aside:
        print(f"{each.model} is not in the bank: {each.reason}")
    print(
        f"wrote {output}: {len(bank.info.models)} models, {len(bank)} documents; "
        f"{task.ranking.items_total} answers, {task.ranking.fraction:.1%} of a full calibration's"
    )
