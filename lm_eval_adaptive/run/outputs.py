"""The files of a finished run: the ranking, and results and samples as the harness writes them.

This module owns file shapes; it imports the core's verdicts and, inside functions, the harness. It
computes nothing about models: numbers come from the task's run.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import lm_eval_adaptive
from lm_eval_adaptive.errors import ModelError
from lm_eval_adaptive.host.settings import folder_name
from lm_eval_adaptive.host.task import build_instances
from lm_eval_adaptive.records.ranking import (
    BankStamp,
    Entry,
    Excluded,
    PairVerdict,
    RankingDocument,
    Recipe,
    SetAside,
    SummaryDocument,
    SummaryRow,
    TraceStep,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.core.ranker import Pair
    from lm_eval_adaptive.host.candidate import Candidate
    from lm_eval_adaptive.run.session import Session, TaskRun

log = logging.getLogger(__name__)


def ranking_document(
    session: Session, run: TaskRun, candidates: Sequence[Candidate], warnings: Sequence[str]
) -> RankingDocument:
    """The content of a ranking file; the same for the same answers.

    Args:
        session: The task.
        run: Its final state.
        candidates: The models, sorted by name.
        warnings: What the reader of the ranking has to know.
    """
    procedure, state, scale = session.procedure, run.state, session.scale
    estimates = procedure.estimate(state)
    pairs = procedure.pairs(state, estimates)
    names = session.names
    active = [row for row in range(len(names)) if not state.failed[row]]
    ranked = _ranked(pairs, active)
    tied = _ties(pairs, active)
    asked = state.administered
    cost = state.spent
    raw = scale.to_raw(estimates.score)
    raw_se = estimates.score_se * scale.width
    half = estimates.score_half_interval * scale.width
    bank = session.bank
    items_full = len(bank) * int((~procedure.known).sum())

    def estimate(row: int) -> dict[str, Any]:
        return {
            "model": names[row],
            "score": float(raw[row]),
            "score_se": float(raw_se[row]),
            "score_ci": _interval(raw[row], half[row], scale.lo, scale.hi),
            "ability": float(estimates.theta[row]),
            "ability_se": float(estimates.theta_se[row]),
            "items": int(asked[row]),
            "cost": float(cost[row]),
            "known": bool(procedure.known[row]),
        }

    return RankingDocument(
        task=session.docs.name,
        metric=session.metric,
        filter=session.filter,
        higher_is_better=scale.higher_is_better,
        bank=BankStamp(
            path=Path(bank.path).name,
            sha256=bank.sha256,
            items=len(bank),
            response_model=bank.info.response_model,
            range=(scale.lo, scale.hi),
            models=tuple(model.name for model in bank.info.models),
        ),
        config=Recipe(
            adaptive=session.adaptive.choices(),
            models=tuple(asdict(candidate.spec) for candidate in candidates),
        ),
        signature=session.recipe,
        versions=versions(),
        ranking=tuple(
            Entry(
                rank=place,
                **estimate(row),
                tied_with=tuple(names[other] for other in ranked if other in tied[row]),
            )
            for place, row in enumerate(ranked, start=1)
        ),
        set_aside=tuple(
            SetAside(**estimate(names.index(name)), reason=reason)
            for name, reason in run.failed.items()
        ),
        pairs=tuple(
            PairVerdict(
                a=names[pair.a],
                b=names[pair.b],
                p_a_better=pair.p_a_better,
                verdict=pair.verdict,
                required=pair.required,
            )
            for pair in pairs
        ),
        stop_reason=run.stop_reason,
        items_total=int(state.answered.sum()),
        items_full=items_full,
        fraction=float(state.answered.sum() / items_full),
        cost_total=float(cost.sum()),
        cost_full=float(procedure.item_costs.sum()),
        excluded=tuple(
            Excluded(doc_id=doc_id, reason=reason) for doc_id, reason in run.excluded.items()
        ),
        warnings=tuple(warnings),
        trace=tuple(TraceStep(**step) for step in run.trace),
    )


def summary_document(
    rankings: Mapping[str, RankingDocument], banks: Mapping[str, ItemBank], date: str
) -> SummaryDocument:
    """Several tasks together: mean rank, and mean standardised score with its error.

    A task's scores are standardised by its bank's calibration models, z = (score - mean) / sd of
    their full scores, flipped where lower is better, so that every task weighs the same. The error
    of the mean over T tasks is sqrt(sum se_t^2) / T, their samples being independent.

    Args:
        rankings: Ranking documents by task.
        banks: Banks by task.
        date: When it is written.

    Returns:
        The summary file's content: a row per model, best mean z first; a model that was set aside
        on a task is averaged over the others.
    """
    found: dict[str, list[tuple[int, float, float]]] = {}
    for task, ranking in rankings.items():
        raw = np.array([model.mean_raw for model in banks[task].info.models])
        if not len(raw):  # without a bank the ranked models are all there is
            raw = np.array([entry.score for entry in ranking.ranking])
        spread = float(raw.std(ddof=1)) if len(raw) > 1 else 0.0
        spread = spread or 1.0
        sign = 1.0 if ranking.higher_is_better else -1.0
        for entry in ranking.ranking:
            z = sign * (entry.score - float(raw.mean())) / spread
            found.setdefault(entry.model, []).append((entry.rank, z, entry.score_se / spread))
    rows = []
    for model, each in found.items():
        ranks, zs, errors = (np.array(column, dtype=float) for column in zip(*each, strict=True))
        rows.append(
            SummaryRow(
                model=model,
                mean_rank=float(ranks.mean()),
                mean_z=float(zs.mean()),
                mean_z_se=float(np.sqrt((errors**2).sum()) / len(each)),
                tasks=len(each),
            )
        )
    rows.sort(key=lambda row: (-row.mean_z, row.model))
    return SummaryDocument(tasks=tuple(rankings), summary=tuple(rows), date=date)


def versions() -> dict[str, str]:
    """Versions of the tools that made a file."""
    from importlib.metadata import version

    return {"lm_eval_adaptive": lm_eval_adaptive.__version__, "lm_eval": version("lm_eval")}


def _ranked(pairs: Sequence[Pair], active: Sequence[int]) -> list[int]:
    """Rows best first: a row is beaten by as many as stand before it."""
    worse = Counter(pair.b for pair in pairs)
    return sorted(active, key=lambda row: worse[row])


def _ties(pairs: Sequence[Pair], active: Sequence[int]) -> dict[int, set[int]]:
    tied: dict[int, set[int]] = {row: set() for row in active}
    for pair in pairs:
        if pair.verdict in ("undecided", "equivalent"):
            tied[pair.a].add(pair.b)
            tied[pair.b].add(pair.a)
    return tied


def _interval(score: float, half: float, lo: float, hi: float) -> tuple[float, float]:
    """95 % interval of a score, within the metric's range."""
    return float(np.clip(score - half, lo, hi)), float(np.clip(score + half, lo, hi))


def run_warnings(session: Session, run: TaskRun) -> list[str]:
    """What the answers themselves give reason to say."""
    found = list(session.notices)
    found += _random_bank(session)
    counts: Counter[str] = Counter()
    empty: Counter[str] = Counter()
    clipped: Counter[str] = Counter()
    for record in run.answers:
        counts[record["model"]] += 1
        empty[record["model"]] += all(not str(resp).strip() for resp in record["resps"])
        clipped[record["model"]] += bool(record["clipped"])
    for model in sorted(counts):
        if empty[model]:
            found.append(f"{model}: {empty[model]} of {counts[model]} answers are empty")
        if clipped[model]:
            found.append(
                f"{model}: {clipped[model]} of {counts[model]} scores lie outside the bank's range "
                f"[{session.scale.lo:g}, {session.scale.hi:g}] and were clipped"
            )
    unscored = sum(record["raw_score"] is None for record in run.answers)
    if unscored:
        found.append(f"{unscored} of {len(run.answers)} answers have no {session.metric}")
    if run.excluded:
        found.append(
            f"{len(run.excluded)} document(s) were left out for all models, see `excluded`"
        )
    guessed = sorted(
        {
            record["model"]
            for record in run.answers
            if isinstance(session.prices[record["model"]], dict) and not record["tokens_counted"]
        }
    )
    if guessed:
        found.append(
            f"{', '.join(guessed)}: no tokenizer to count with, costs are by characters / 4"
        )
    found += _misfits(session, run)
    found += _given_up(session, run)
    prompts = _prompt_mismatch(session, run)
    if prompts:
        found.append(prompts)
    return found


def _random_bank(session: Session) -> list[str]:
    chosen = session.procedure.config.sampler == "auto"
    if not chosen or session.bank.info.selector != "random":
        return []
    said = (
        "documents were drawn at random, the same for all models: what told the bank's calibration "
        "models apart did not carry over to held-out ones; calibrating with more models, or with "
        "more different ones, may change that"
    )
    return [said]


def _misfits(session: Session, run: TaskRun) -> list[str]:
    """Models whose answers are unlike what the bank expects of any model."""
    estimates = session.procedure.estimate(run.state)
    found = []
    for row in session.procedure.misfitting(run.state, estimates):
        assert estimates.misfit is not None
        asked = int(run.state.administered[row])
        found.append(
            f"{session.names[row]}: its {asked} answers do not fit the bank (squared residuals are "
            f"{estimates.misfit[row]:.1f} times what is expected; its error was widened for that, "
            "and may still be too small): look at its answers and prompts; ask more of it with "
            "--min_items, or recalibrate the bank with models like it"
        )
    return found


def _given_up(session: Session, run: TaskRun) -> list[str]:
    """Pairs that were left undecided before ``max_items``, for want of a chance."""
    if run.stop_reason != "max_items":
        return []
    procedure = session.procedure
    estimates = procedure.estimate(run.state)
    found = []
    for pair in procedure.pairs(run.state, estimates):
        least = int(run.state.administered[[pair.a, pair.b]].min())
        if not (pair.required and pair.verdict == "undecided" and least < procedure.max_items):
            continue
        chance = procedure.chance(run.state, estimates, pair)
        if chance < procedure.config.futility:
            found.append(
                f"{session.names[pair.a]} and {session.names[pair.b]} were given up after {least} "
                f"items: {procedure.max_items} each would tell them apart with a chance of "
                f"{chance:.1%} only; --equivalence D says how small a difference counts as none"
            )
    return found


def _prompt_mismatch(session: Session, run: TaskRun) -> str:
    """Whether prompts differ from those the bank was calibrated with."""
    known = [
        (session.bank.prompt_hash[session.item_of[record["doc_id"]]], record["prompt_hash"])
        for record in run.answers
    ]
    compared = [(then, now) for then, now in known if then]
    other = sum(then != now for then, now in compared)
    if not other:
        return ""
    return (
        f"{other} of {len(compared)} prompts differ from the bank's calibration prompts (another "
        "num_fewshot, template or instruction): difficulties may have shifted"
    )


def recorded_lm(candidate: Candidate, task: Any, responses: dict[int, tuple[str, ...]]) -> Any:
    """An ``LM`` that repeats a candidate's recorded answers, by document id.

    Everything else (tokenizer, chat template, model information) is the live model's.
    """
    from lm_eval.api.model import LM

    class RecordedLM(LM):  # type: ignore[misc]  # the harness is untyped
        def __init__(self) -> None:
            super().__init__()
            self._served: Counter[int] = Counter()

        def generate_until(self, requests: list[Any]) -> list[str]:
            found = []
            for request in requests:
                doc_id = int(request.doc_id)
                found.append(responses[doc_id][self._served[doc_id]])
                self._served[doc_id] += 1
            return found

        def loglikelihood(self, requests: list[Any]) -> list[Any]:
            raise ModelError(f"{len(requests)} recorded answers are texts, not likelihoods")

        def loglikelihood_rolling(self, requests: list[Any]) -> list[Any]:
            raise ModelError(f"{len(requests)} recorded answers are texts, not likelihoods")

        def apply_chat_template(self, *args: Any, **kwargs: Any) -> Any:
            return candidate.lm.apply_chat_template(*args, **kwargs)

        def chat_template(self, chat_template: bool | str = False) -> Any:
            return candidate.lm.chat_template(chat_template)

        @property
        def tokenizer_name(self) -> str:
            return str(candidate.lm.tokenizer_name)

        def __getattr__(self, name: str) -> Any:
            live = candidate.loaded
            if name.startswith("_") or live is None:
                raise AttributeError(name)
            return getattr(live, name)

    del task
    return RecordedLM()


def write_results(
    session: Session,
    run: TaskRun,
    candidate: Candidate,
    task: Any,
    task_manager: Any,
    output_path: Path,
    block: dict[str, Any],
) -> tuple[dict[str, Any], list[Path]]:
    """Write one model's results and samples files by one stock call of the harness.

    The call is given the chosen documents, the recorded answers and the recorded metric values, so
    that nothing is asked or computed again. The plain means over chosen documents are biased;
    ``results[task]`` holds the estimate of the whole benchmark's score in their place.

    Args:
        session: The task.
        run: Its final state.
        candidate: The model.
        task: The model's served task.
        task_manager: The harness's task manager.
        output_path: The run's folder.
        block: What goes under the top-level key ``adaptive``.

    Returns:
        The harness's results, and the files written.

    Raises:
        ModelError: The harness could not write them; the journal holds everything.
    """
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker

    records = [record for record in run.answers if record["model"] == candidate.name]
    records = [record for record in records if record["doc_id"] not in run.excluded]
    if not records:
        return {}, []
    doc_ids = sorted(int(record["doc_id"]) for record in records)
    task.choose(doc_ids)
    task.recorded = {
        (int(record["doc_id"]), name): values
        for record in records
        for name, values in record["metrics"].items()
    }
    responses = {int(record["doc_id"]): tuple(record["resps"]) for record in records}
    settings = candidate.settings
    tracker = EvaluationTracker(**{**settings.hf_hub_log_args, "output_path": str(output_path)})
    seeds = settings.seed
    results = simple_evaluate(
        model=recorded_lm(candidate, task, responses),
        model_args=dict(candidate.spec.model_args),
        tasks=[task],
        num_fewshot=settings.num_fewshot,
        batch_size=settings.batch_size,
        device=settings.device,
        use_cache=None,
        bootstrap_iters=0,
        log_samples=True,
        evaluation_tracker=tracker,
        system_instruction=settings.system_instruction,
        apply_chat_template=settings.apply_chat_template,
        fewshot_as_multiturn=bool(settings.fewshot_as_multiturn),
        gen_kwargs=settings.gen_kwargs or None,
        task_manager=task_manager,
        random_seed=seeds[0],
        numpy_random_seed=seeds[1],
        torch_random_seed=seeds[2],
        fewshot_random_seed=seeds[3],
        confirm_run_unsafe_code=settings.confirm_run_unsafe_code,
        metadata=settings.metadata,
    )
    results["config"]["model"] = candidate.spec.model
    results["config"]["use_cache"] = settings.use_cache
    _put_estimates(results, session, block)
    general = tracker.general_config_tracker
    general.model_source = candidate.spec.model
    general.model_name = candidate.name
    general.model_name_sanitized = folder_name(candidate.name)
    samples = results.pop("samples")
    # The tracker turns answers into text in place; the caller gets them as they were.
    kept = copy.deepcopy(samples)
    tracker.save_results_aggregated(results=results, samples=samples)
    name = session.docs.name
    tracker.save_results_samples(task_name=name, samples=samples[name])
    folder = output_path / folder_name(candidate.name)
    date_id = getattr(tracker, "date_id", "")
    files = [folder / f"results_{date_id}.json", folder / f"samples_{name}_{date_id}.jsonl"]
    for file in files:
        if not file.is_file():  # the tracker swallows its own errors
            raise ModelError(
                f"could not write {file}; is the disk full or the folder read-only? all answers "
                f"are in {output_path / 'journal.jsonl'}: free some room and use --resume "
                f"{output_path}"
            )
    results["samples"] = kept
    return results, files


def _put_estimates(results: dict[str, Any], session: Session, block: dict[str, Any]) -> None:
    name = session.docs.name
    table = results["results"][name]
    plain = {key: value for key, value in table.items() if "," in key}
    for key in plain:
        del table[key]
    table[f"{session.metric},adaptive"] = block["score"]
    table[f"{session.metric}_stderr,adaptive"] = block["score_se"]
    for entry in block.get("further", ()):
        clash = f"{entry['metric']},adaptive" in table  # one metric under two filters
        label = f"adaptive-{entry['filter']}" if clash else "adaptive"
        table[f"{entry['metric']},{label}"] = entry["score"]
        table[f"{entry['metric']}_stderr,{label}"] = entry["score_se"]
    results["adaptive"] = {
        name: {
            **block,
            "note": (
                "the score is the estimate for all documents of the bank; means over the chosen "
                "documents are biased and are no score of the task"
            ),
            "mean_over_chosen": {
                key: value for key, value in plain.items() if "_stderr," not in key
            },
        }
    }


def changed_prompt(
    task_name: str, records: Sequence[Mapping[str, Any]], candidate: Candidate, task: Any
) -> int | None:
    """A document whose recorded prompt is not the one the task renders now; None if there is none.

    The last document a model answered is looked at: settings that change prompts change all.
    """
    from lm_eval.utils import hash_string

    mine = [
        record
        for record in records
        if record["type"] == "answer"
        and record["task"] == task_name
        and record["model"] == candidate.name
    ]
    if not mine:
        return None
    doc_id = int(mine[-1]["doc_id"])
    (instance,) = build_instances(task, [doc_id], candidate.prompt, candidate.chat_template())
    same = hash_string(instance.arguments[0]) == mine[-1]["prompt_hash"]
    return None if same else doc_id
