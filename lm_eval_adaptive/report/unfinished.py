"""The standing of a run that has no ranking yet, from its journal and its bank.

This module owns making a ranking of an unfinished run by the state and the ranking document of the
run itself. It reads only, asks no model and loads no task.
"""

from __future__ import annotations

from glob import escape
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from lm_eval_adaptive.banks.of_run import bank_of_run
from lm_eval_adaptive.errors import AdaptiveError
from lm_eval_adaptive.host.settings import CandidateSpec
from lm_eval_adaptive.records.journal import JournalFile, as_data
from lm_eval_adaptive.records.standing import Standing
from lm_eval_adaptive.run.config import AdaptiveConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.procedure import RunState
    from lm_eval_adaptive.host.candidate import Candidate
    from lm_eval_adaptive.run.session import Session


def standings(folder: Path, journal: JournalFile) -> dict[str, Standing]:
    """How far each task of a run is that has no ranking file yet.

    Args:
        folder: The run's folder.
        journal: Its journal.
    """
    records = [as_data(each) for each in (journal.header, *journal.records)]
    ended = journal.stop_reasons()
    return {
        task: _standing(folder, records, task)
        for task in journal.header.config.tasks
        if task not in ended or not any(folder.glob(f"ranking_{escape(task)}_[0-9]*.json"))
    }


def _standing(folder: Path, records: Sequence[Mapping[str, Any]], task: str) -> Standing:
    from lm_eval_adaptive.run.outputs import ranking_document, run_warnings
    from lm_eval_adaptive.run.session import as_far_as

    header = records[0]["config"]
    mine = [record for record in records[1:] if record.get("task") == task]
    answers = [record for record in mine if record["type"] == "answer"]
    words = list(records[0].get("command") or [])
    bank, notes = bank_of_run(
        header["tasks"][task]["bank_sha256"],
        str(header["adaptive"].get("response_model", "auto")),
        folder,
        words,
    )
    if bank is not None and not _ids_agree(bank, answers):
        bank = None
        notes.append(
            "The documents' ids are not those of the bank, so nothing is estimated before the run "
            "has finished."
        )
    if bank is None:
        return Standing(notes=tuple(notes))
    repeats = max((len(record["resps"]) for record in answers), default=1) or 1
    try:
        held = _JournalledSession(bank, header, task, repeats)
    except (AdaptiveError, TypeError) as error:  # options of another version
        notes.append(f"The run's state could not be rebuilt: {error}")
        return Standing(notes=tuple(notes))
    session = cast("Session", held)
    run = as_far_as(session, mine)
    candidates = [cast("Candidate", SimpleNamespace(spec=spec)) for spec in held.specs]
    ranking = ranking_document(session, run, candidates, run_warnings(session, run))
    ranking = replace(ranking, versions=header.get("versions", ranking.versions))
    return Standing(ranking, bank, tuple(notes))


class _JournalledSession:
    """What a run's state and its ranking document need of a session, from journal and bank alone.

    A run in progress is shown without loading its task, whose data may be far away or changing.
    Documents are taken to have the ids they had in calibration; :func:`_ids_agree` checks it.
    """

    def __init__(self, bank: ItemBank, header: Mapping[str, Any], task: str, repeats: int) -> None:
        from lm_eval_adaptive.core.procedure import Procedure
        from lm_eval_adaptive.run.session import expected_costs, known_rows

        self.bank = bank
        self.docs = SimpleNamespace(name=task)
        self.adaptive = AdaptiveConfig(**header["adaptive"])
        self.specs = [CandidateSpec(**each) for _, each in sorted(header["models"].items())]
        own = [spec.name for spec in self.specs]
        known, _ = known_rows(bank, self.adaptive.against, own)
        self.names = [*own, *(bank.info.models[row].name for row in known)]
        self.metric, self.filter = bank.info.metric, bank.info.filter
        self.scale = bank.info.scale
        self.doc_ids = bank.doc_id
        self.item_of = {int(doc): item for item, doc in enumerate(bank.doc_id)}
        self.notices: list[str] = []
        self.followers: list[Session] = []
        self.prices = {spec.name: spec.cost for spec in self.specs}
        self.recipe = header["tasks"][task]["signature"]
        self.procedure = Procedure(
            bank,
            expected_costs(bank, self.specs, repeats),
            self.adaptive.procedure(self.scale.width, 1, 0),
            known,
        )

    def start(self) -> RunState:
        """No answers yet."""
        return self.procedure.start()


def _ids_agree(bank: ItemBank, answers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the journal's document ids are those of the bank, as far as prompts can tell."""
    item_of = {int(doc): item for item, doc in enumerate(bank.doc_id)}
    if any(int(record["doc_id"]) not in item_of for record in answers):
        return False
    row_of = {prompt: row for row, prompt in enumerate(bank.prompt_hash) if prompt}
    return all(
        row_of.get(record["prompt_hash"], item_of[int(record["doc_id"])])
        == item_of[int(record["doc_id"])]
        for record in answers
    )
