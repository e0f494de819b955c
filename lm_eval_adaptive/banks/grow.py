"""Banks that grow by themselves: the answers of a finished run join its task's bank in the store.

This module owns which bank they join, and what must not join any: answers that failed, answers of a
run in which the bank's alarm rang. Models with other prompts than a bank's join one of their own.
Everything is taken from the run's folder, so what was cut off can be done again: a run that has
joined already changes nothing.

Two processes may let one bank grow at once: each holds the bank's lock from reading it to writing
it, so the second one sees what the first one wrote.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.banks.answers import read_answers, write_answers
from lm_eval_adaptive.banks.at_hand import of_task
from lm_eval_adaptive.banks.of_run import bank_of_run
from lm_eval_adaptive.banks.run_answers import answers_of_run, newest_ranking
from lm_eval_adaptive.banks.shipped import shipped_banks
from lm_eval_adaptive.banks.store import LONG_PATIENCE, Store, usual_name
from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import Provenance, Update
from lm_eval_adaptive.core.calibration import MIN_MODELS
from lm_eval_adaptive.core.growing import extend, levels_of, without_models
from lm_eval_adaptive.errors import AdaptiveError, DataError
from lm_eval_adaptive.records.journal import NAME, read_journal
from lm_eval_adaptive.records.ranking import ALARM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from lm_eval_adaptive.banks.answers import Answers
    from lm_eval_adaptive.banks.run_answers import PromptKind, RunAnswers
    from lm_eval_adaptive.core.bank_info import PromptFacts
    from lm_eval_adaptive.records.journal import JournalFile
    from lm_eval_adaptive.records.ranking import RankingDocument


def grow_from(
    folder: Path, store: Store | None = None, banks: Sequence[str | Path] = ()
) -> list[str]:
    """Let the store's banks grow by a finished run, task by task and metric by metric.

    Args:
        folder: The run's ``--output_path``.
        store: The store; None takes the user's.
        banks: Files in which the run's bank may be, beside those that its command line names.

    Returns:
        What was done and what was not, a line each.

    Raises:
        DataError: The folder holds no run, or what it holds cannot be read.
        UsageError: The store cannot be written to.
    """
    store = store or Store()
    journal = read_journal(folder / NAME)
    told: list[str] = []
    for task in journal.header.config.tasks:
        document = newest_ranking(folder, task)
        if document is None:
            told.append(f"{task}: nothing grows yet, there is no ranking; go on with --resume")
            continue
        keys: list[str | None] = [None, *list(document.rankings)[1:]]
        for key, ranking in zip(keys, [document, *document.further], strict=True):
            lines = _Growth(folder, journal, ranking, key, store, tuple(banks)).lines()
            told += [f"{task}, {ranking.metric}: {line}" for line in lines]
    return told


@dataclass(frozen=True)
class _Growth:
    """How one ranking's answers join the store."""

    folder: Path
    journal: JournalFile
    ranking: RankingDocument
    key: str | None
    store: Store
    banks: tuple[str | Path, ...]

    def lines(self) -> list[str]:
        """Do it, and tell what was done."""
        if ALARM in self.ranking.doubts:
            why = "nothing grows: the models do not bear the bank out in this run"
            return [f"{why}, so its answers would teach the bank what is not so"]
        answers = answers_of_run(self.folder, self.journal, self.ranking, self.key)
        told = list(answers.left_out)
        if not answers.runs:
            return [*told, "nothing grows: no answer counts"]
        base, name, why = self._base()
        if why:
            return [*told, why]
        for kind, names in _by_kind(answers.kinds()):
            group = answers.of_models(names)
            told += self._join(group, kind, base, name)
        return told

    def _base(self) -> tuple[ItemBank | None, str, str]:
        """The run's bank where it may grow, the name that it has in the store, or why neither."""
        stamp, ranking = self.ranking.bank, self.ranking
        usual = usual_name(ranking.task, ranking.metric, ranking.filter)
        if not stamp.exists:
            return None, usual, ""
        name = self.store.name_of_hash(stamp.sha256)
        if name is not None:
            return None, name, ""
        if self.store.file_of(usual).is_file() or self.store.answers_of(usual).is_file():
            return None, usual, ""
        words = [*self.journal.header.command, *(f"--bank={each}" for each in self.banks)]
        bank, _ = bank_of_run(stamp.sha256, "auto", self.folder, words)
        if bank is None:
            why = (
                f"nothing grows: the run's bank (sha256 {stamp.sha256[:12]}) was not found; put it "
                f"into the store with `bank add FILE`, then `bank grow --from {self.folder}`"
            )
            return None, usual, why
        for each in shipped_banks():
            if each.sha256 == bank.sha256:
                # Its models answered another prompt than the task's: these make their own bank.
                own = None if each.prompt else of_task(bank, ranking.task, ranking.filter)
                return own, usual, ""
        return bank, usual, ""

    def _join(
        self, group: RunAnswers, kind: PromptKind, base: ItemBank | None, name: str
    ) -> list[str]:
        """Let models of one kind of prompts join the bank of that name, or one of their own."""
        store = self.store
        with store.changing(name, LONG_PATIENCE):
            there = _bank_there(store, name) or base
            kept = read_answers(store.answers_of(name)) if _has_answers(store, name) else None
            if kept is not None:
                other = kind.differs_from(kept.of.num_fewshot, kept.of.prompts)
            elif there is not None:
                other = _is_other(group, kind, there)
            else:
                other = False
            if not other:
                if kept is None and there is not None:
                    return [self._extended(group, there, name)]
                return [self._made(group, kept, there, name)]
        own = usual_name(self.ranking.task, self.ranking.metric, self.ranking.filter, kind.digest)
        with store.changing(own, LONG_PATIENCE):
            kept = read_answers(store.answers_of(own)) if _has_answers(store, own) else None
            line = self._made(group, kept, _bank_there(store, own), own)
        return [f"their prompts are not those of bank {name}: {line}"]

    def _extended(self, group: RunAnswers, bank: ItemBank, name: str) -> str:
        """Models join a bank that was calibrated; those that come again replace themselves."""
        try:
            matrix, sources = group.by_bank(bank)
        except DataError as error:
            return f"bank {name} does not grow: {error}"
        held = {each.name: row for row, each in enumerate(bank.info.models)}
        again = [each for each in matrix.models if each in held]
        item_of = {key: item for item, key in enumerate(bank.content_hash)}
        columns = [item_of[key] for key in matrix.items]
        if len(again) == len(matrix.models):
            fresh = np.full((len(again), len(bank)), np.nan)
            fresh[:, columns] = bank.info.scale.to_score(matrix.scores)
            if np.allclose(fresh, bank.scores[[held[n] for n in again]], atol=1e-6, equal_nan=True):
                return f"bank {name} has these answers already"
        try:
            rest = without_models(bank, again)
            before = bank.info.provenance or Provenance()
            now = group.provenance(sources)
            provenance = replace(
                now,
                sources=tuple(dict.fromkeys((*before.sources, *now.sources))),
                updates=(*before.updates, Update(bank.sha256, now.date, matrix.models)),
            )
            grown = extend(rest, matrix, clip=True, provenance=provenance)
        except DataError as error:
            return f"bank {name} does not grow: {error}"
        notices = tuple(dict.fromkeys(grown.info.notices))
        grown = replace(grown, info=replace(grown.info, notices=notices))
        self.store.put(grown, name)
        return _told(name, matrix.models, again, len(grown.info.models), len(grown))

    def _made(
        self, group: RunAnswers, kept: Answers | None, bank: ItemBank | None, name: str
    ) -> str:
        """Models join the answers that a bank is made of from nothing."""
        fresh = group.alone()
        again: list[str] = []
        if kept is not None:
            if kept.holds(fresh) and (bank is not None or len(kept.matrix.models) < MIN_MODELS):
                return f"bank {name} has these answers already"
            again = [each for each in fresh.matrix.models if each in kept.matrix.models]
            if bank is not None and self.ranking.bank.exists:
                fresh = replace(fresh, levels=_levels(group, fresh, bank))
        answers = fresh if kept is None else kept.joined(fresh)
        # First what it is made of: should this be cut off here, the next run makes the bank.
        self.store.put_answers(name, write_answers(answers))
        models, items = len(answers.matrix.models), len(answers.matrix.items)
        try:
            grown = answers.bank()
        except DataError as error:
            return (
                f"the answers of {models} model(s) to {items} documents are kept for bank {name}, "
                f"which they do not make yet: {error}"
            )
        self.store.put(grown, name)
        return _told(name, fresh.matrix.models, again, models, items)


def _by_kind(kinds: dict[str, PromptKind]) -> list[tuple[PromptKind, list[str]]]:
    """Models by the kind of their prompts."""
    found: dict[str, tuple[PromptKind, list[str]]] = {}
    for name, kind in kinds.items():
        found.setdefault(kind.digest, (kind, []))[1].append(name)
    return list(found.values())


def _has_answers(store: Store, name: str) -> bool:
    return store.answers_of(name).is_file()


def _bank_there(store: Store, name: str) -> ItemBank | None:
    """The bank of that name as it is now, None where there is none."""
    file = store.file_of(name)
    return ItemBank.load(file) if file.is_file() else None


def _is_other(group: RunAnswers, kind: PromptKind, bank: ItemBank) -> bool:
    """Whether a group's prompts are others than a bank's."""
    facts: PromptFacts = bank.info.prompts
    if kind.differs_from(bank.info.num_fewshot, facts):
        return True
    try:
        return any(group.prompts_differ(bank, name) for name in group.runs)
    except DataError:  # it has none of the documents, which is told later
        return False


def _levels(group: RunAnswers, fresh: Answers, bank: ItemBank) -> NDArray[np.float64]:
    """Levels of models by the bank as it is now, without themselves; else as the run gave them."""
    try:
        rest = without_models(bank, fresh.matrix.models)
        matrix, _ = group.by_bank(rest)
        item_of = {key: item for item, key in enumerate(rest.content_hash)}
        added = np.full((len(matrix.models), len(rest)), np.nan)
        added[:, [item_of[key] for key in matrix.items]] = fresh.of.scale.to_score(matrix.scores)
        found = dict(zip(matrix.models, levels_of(rest, added), strict=True))
    except AdaptiveError:
        return fresh.levels
    # One that was asked most of them needs no estimate.
    pairs = zip(fresh.matrix.models, fresh.levels, strict=True)
    return np.array([found.get(name, level) for name, level in pairs], dtype=np.float64)


def _told(name: str, models: Sequence[str], again: Sequence[str], count: int, items: int) -> str:
    replaced = f", of which {', '.join(again)} replaced itself" if again else ""
    return (
        f"bank {name} of the store took in {', '.join(models)}{replaced}; it has {count} models "
        f"and {items} documents now"
    )
