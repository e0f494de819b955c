"""What a finished run leaves for a bank to grow by: its answers that count, by model and document.

This module owns which answers those are. Scores come from the journal, where it stands which
failed; what the documents are comes from the samples that the run wrote. It asks nobody and loads
no task.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from glob import escape
from typing import TYPE_CHECKING

import numpy as np

from lm_eval_adaptive.banks.answers import Answers, Measured
from lm_eval_adaptive.banks.log_scores import score_matrix
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.banks.prompts import shared_prompts
from lm_eval_adaptive.banks.sources import provenance_of
from lm_eval_adaptive.banks.update import newest_of_each, scores_by_bank
from lm_eval_adaptive.core.calibration import completed_means
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.logs import find_runs
from lm_eval_adaptive.host.scoring import document_score
from lm_eval_adaptive.records.files import file_part, folders_of
from lm_eval_adaptive.records.ranking import read_ranking

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.bank_info import PromptFacts, Provenance
    from lm_eval_adaptive.host.logs import LoggedRun
    from lm_eval_adaptive.records.journal import JournalFile
    from lm_eval_adaptive.records.ranking import RankingDocument

# Share of prompts that may be others where all that is known of them is the same.
MAX_OTHER_PROMPTS = 0.05
_ALLOWED = ("task_version", "few_shot", "prompts", "partial")


@dataclass(frozen=True)
class PromptKind:
    """What a model's prompts were like.

    Attributes:
        num_fewshot: Few-shot examples, None where not known.
        facts: What else they have in common.
        examples: What decides the examples, as text; "" where there are none.
    """

    num_fewshot: int | None
    facts: PromptFacts
    examples: str = ""

    @property
    def digest(self) -> str:
        """Eight digits that tell it from other kinds; chat templates are the models' own."""
        told = asdict(replace(self.facts, chat_template=None))
        text = json.dumps([self.num_fewshot, told, self.examples], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def differs_from(self, num_fewshot: int | None, facts: PromptFacts) -> bool:
        """Whether these are other prompts than those, as far as is known of both."""
        pairs = [
            (self.num_fewshot, num_fewshot),
            *(
                (getattr(self.facts, name), getattr(facts, name))
                for name in ("system_instruction", "description", "doc_to_text")
            ),
        ]
        return any(None not in (one, other) and one != other for one, other in pairs)


def newest_ranking(folder: Path, task: str) -> RankingDocument | None:
    """A task's ranking in a run's folder, the newest; None where there is none.

    Raises:
        DataError: It cannot be read.
    """
    found = sorted(folder.glob(f"ranking_{escape(file_part(task))}_[0-9]*.json"))
    return read_ranking(found[-1]) if found else None


@dataclass(frozen=True)
class RunAnswers:
    """The answers of a run on one task that count, by one metric.

    Attributes:
        ranking: The ranking by the metric.
        scores: Raw scores by model and document id; models that were set aside are not here.
        runs: What the run logged of each model.
        left_out: Why some models' answers do not count, a line each.
    """

    ranking: RankingDocument
    scores: Mapping[str, Mapping[int, float]]
    runs: Mapping[str, LoggedRun]
    left_out: tuple[str, ...] = ()

    def kinds(self) -> dict[str, PromptKind]:
        """What each model's prompts were like."""
        return {
            name: PromptKind(
                run.n_shot,
                shared_prompts([run]),
                json.dumps(run.few_shot, sort_keys=True, default=str) if run.n_shot else "",
            )
            for name, run in self.runs.items()
        }

    def of_models(self, names: list[str]) -> RunAnswers:
        """The same of some models."""
        return replace(
            self,
            scores={name: self.scores[name] for name in names},
            runs={name: self.runs[name] for name in names},
        )

    def by_bank(self, bank: ItemBank) -> tuple[ScoreMatrix, list[tuple[str, str]]]:
        """Scores by a bank's items, without documents that it does not have; and their files.

        Raises:
            DataError: No document is one of the bank's.
        """
        runs = [replace(run, model=name) for name, run in self.runs.items()]
        matrix, sources, _ = scores_by_bank(runs, CalibrateOptions(allow=_ALLOWED), bank)
        matrix = self._by_journal(matrix)
        known = set(bank.content_hash)
        matrix = matrix.select_items(np.array([name in known for name in matrix.items]))
        scored: NDArray[np.bool_] = np.asarray(np.isfinite(matrix.scores).any(axis=1))
        if not scored.any():
            raise DataError("none of the documents that were asked is in the bank")
        named = [name for name, has in zip(matrix.models, scored, strict=True) if has]
        return matrix.select_models(named), sources

    def prompts_differ(self, bank: ItemBank, name: str) -> bool:
        """Whether a model's prompts are others than the bank's by their hashes."""
        run, told = self.runs[name], bank.info.prompts.chat_template
        if told is None or run.chat_template != told:
            return False  # they differ by the template alone, or nobody can tell
        only = self.of_models([name])
        matrix, _ = only.by_bank(bank)
        own = (matrix.item_attributes or {})["prompt_hash"]
        place = {key: item for item, key in enumerate(bank.content_hash)}
        pairs = [
            (bank.prompt_hash[place[key]], str(now))
            for key, now in zip(matrix.items, own, strict=True)
        ]
        compared = [then != now for then, now in pairs if then and now]
        return sum(compared) > MAX_OTHER_PROMPTS * len(compared)

    def alone(self) -> Answers:
        """The answers by themselves, with the levels that the run's bank gave the models.

        Raises:
            DataError: The samples do not tell the documents.
        """
        ranking = self.ranking
        runs = [replace(run, model=name) for name, run in self.runs.items()]
        found = score_matrix(
            runs, ranking.metric, ranking.filter, to_number=document_score, allow=_ALLOWED
        )
        matrix = self._by_journal(found.matrix)
        asked: NDArray[np.bool_] = np.asarray(np.isfinite(matrix.scores).any(axis=0))
        matrix = matrix.select_items(asked)
        first = found.runs[0]
        kinds = self.kinds()
        low, high = ranking.bank.range
        of = Measured(
            task=ranking.task,
            metric=ranking.metric,
            filter=ranking.filter,
            lo=low,
            hi=high,
            higher_is_better=ranking.higher_is_better is not False,
            task_version=str(first.task_version or ""),
            dataset_path=first.facts.dataset_path,
            dataset_name=first.facts.dataset_name,
            split=first.facts.split,
            num_fewshot=kinds[matrix.models[0]].num_fewshot,
            prompts=shared_prompts(found.runs),
        )
        levels = np.full(len(matrix.models), np.nan)
        if ranking.bank.exists:  # documents were chosen for the models
            raw = [ranking.entry_of(name).score for name in matrix.models]
            levels = _of_these(of.scale.to_score(raw), of.scale.to_score(matrix.scores))
        return Answers(of, matrix, levels, self.provenance([(r.path.name, r.sha256) for r in runs]))

    @staticmethod
    def provenance(sources: list[tuple[str, str]]) -> Provenance:
        """Where the answers come from."""
        return provenance_of(sources)

    def _by_journal(self, matrix: ScoreMatrix) -> ScoreMatrix:
        """The matrix with the scores that the journal has, and no others."""
        doc_ids = [int(each) for each in (matrix.item_attributes or {})["doc_id"]]
        scores = [
            [self.scores[name].get(doc_id, np.nan) for doc_id in doc_ids] for name in matrix.models
        ]
        return ScoreMatrix(
            matrix.models,
            matrix.items,
            np.array(scores).reshape(matrix.scores.shape),
            matrix.item_attributes,
        )


def _of_these(levels: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Levels of models on the documents that were asked, from those on the whole benchmark.

    What the run's bank knows is how far the models lie apart; where its benchmark lies is another
    thing than where these documents do.
    """
    apart = levels - levels.mean()
    return np.asarray(np.clip(apart + completed_means(scores)[0].mean(), 0.0, 1.0))


def answers_of_run(
    folder: Path, journal: JournalFile, ranking: RankingDocument, key: str | None
) -> RunAnswers:
    """The answers of a run on a task that count.

    Args:
        folder: The run's folder.
        journal: Its journal.
        ranking: The ranking by the metric.
        key: What the metric is called among several, None for the first.

    Raises:
        DataError: The run's samples are missing or damaged.
    """
    task, excluded = ranking.task, {each.doc_id for each in ranking.excluded}
    aside = {each.model for each in journal.failures(task)}
    aside |= {each.model for each in ranking.set_aside}
    scores: dict[str, dict[int, float]] = {}
    for answer in journal.answers(task):
        found = answer.first if key is None else answer.scores.get(key, answer.first)
        if found.raw_score is None or found.problem or not answer.answered:
            continue
        if answer.doc_id not in excluded and answer.model not in aside:
            scores.setdefault(answer.model, {})[answer.doc_id] = found.raw_score
    told = [f"{name} was set aside, and its answers do not count" for name in sorted(aside)]
    runs: dict[str, LoggedRun] = {}
    if scores:
        names = list(journal.header.config.models)
        model_of = {part: name for name, part in folders_of(names).items()}
        for run in newest_of_each(find_runs((str(folder),), task)):
            name = model_of.get(run.path.parent.name, run.base_model)
            if name in scores:
                runs[name] = run
    told += [
        f"the samples of {name} are not there: --resume {folder} writes them"
        for name in sorted(set(scores) - set(runs))
    ]
    kept = {name: scores[name] for name in sorted(runs)}
    return RunAnswers(ranking, kept, {name: runs[name] for name in sorted(runs)}, tuple(told))
