"""How far a run is that has no ranking yet: its contests rebuilt from journal and banks alone.

A run in progress is shown without loading its task, whose data may be far away or changing.
Documents are taken to have the ids they had in calibration, which their prompts confirm or not.
This module reads only: no model is asked, no task loaded, no file written.
"""

from __future__ import annotations

from glob import escape
from typing import TYPE_CHECKING

from msgspec import structs

from lm_eval_adaptive.banks.check import part_of
from lm_eval_adaptive.banks.of_run import bank_of_run
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.errors import AdaptiveError
from lm_eval_adaptive.host.settings import CandidateSpec
from lm_eval_adaptive.records.files import file_part
from lm_eval_adaptive.records.standing import Standing
from lm_eval_adaptive.run.config import AdaptiveConfig
from lm_eval_adaptive.run.contest import Contest, Terms, View
from lm_eval_adaptive.run.costs import expected_costs
from lm_eval_adaptive.run.opening import known_rows
from lm_eval_adaptive.run.ranking import ranking_document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.records.journal import AnswerRecord, JournalFile


def standings(folder: Path, journal: JournalFile) -> dict[str, Standing]:
    """How far each task of a run is that has no ranking file yet.

    Args:
        folder: The run's folder.
        journal: Its journal.
    """
    ended = journal.stop_reasons()
    return {
        task: _standing(folder, journal, task)
        for task in journal.header.config.tasks
        if task not in ended
        or not any(folder.glob(f"ranking_{escape(file_part(task))}_[0-9]*.json"))
    }


def _standing(folder: Path, journal: JournalFile, task: str) -> Standing:
    head = journal.header.config
    bank, notes = bank_of_run(
        head.tasks[task].bank_sha256,
        str(head.adaptive.get("response_model", "auto")),
        folder,
        journal.header.command,
    )
    if bank is None:
        return Standing(notes=tuple(notes))
    answers = journal.answers(task)
    if not ids_agree(bank, answers):
        said = (
            "The documents' ids are not those of the bank, so nothing is estimated before the run "
            "has finished."
        )
        return Standing(notes=(*notes, said))
    try:
        contest = contest_of_journal(bank, journal, task)
    except (AdaptiveError, TypeError) as error:  # options of another version
        return Standing(notes=(*notes, f"The run's state could not be rebuilt: {error}"))
    contest.replay(answers, journal.stop_reasons().get(task, ""), journal.taken(task))
    ranking = ranking_document(contest)
    ranking = structs.replace(ranking, versions=head.versions or ranking.versions)
    return Standing(ranking, bank, tuple(notes))


def contest_of_journal(bank: ItemBank, journal: JournalFile, task: str) -> Contest:
    """The contest of a journal's task by its first metric, with no answers taken in.

    Raises:
        AdaptiveError: The options cannot be met.
        TypeError: They are of another version.
    """
    head = journal.header.config
    adaptive = AdaptiveConfig(**head.adaptive)
    specs = [CandidateSpec(**each) for _, each in sorted(head.models.items())]
    own = [spec.name for spec in specs]
    known, _ = known_rows(bank, adaptive.against, own)
    repeats = max((len(answer.resps) for answer in journal.answers(task)), default=1) or 1
    info = bank.info
    procedure = Procedure.for_bank(
        bank,
        expected_costs(bank, specs, repeats),
        adaptive.procedure(info.scale.width, 1, 0),
        known,
    )
    terms = Terms(
        key=info.metric,
        metric=info.metric,
        filter=info.filter,
        scale=info.scale,
        bank=bank,
        options=adaptive,
        names=(*own, *(info.models[row].name for row in known)),
        signature=head.tasks[task].signature,
        score_of=part_of(len(bank), head.tasks[task].documents),
    )
    return Contest(task, specs, [View(terms, procedure, bank.doc_id)])


def ids_agree(bank: ItemBank, answers: Sequence[AnswerRecord]) -> bool:
    """Whether the journal's document ids are those of the bank, as far as prompts can tell."""
    item_of = {int(doc): item for item, doc in enumerate(bank.doc_id)}
    if any(answer.doc_id not in item_of for answer in answers):
        return False
    row_of = {prompt: row for row, prompt in enumerate(bank.prompt_hash) if prompt}
    return all(
        row_of.get(answer.prompt_hash, item_of[answer.doc_id]) == item_of[answer.doc_id]
        for answer in answers
    )
