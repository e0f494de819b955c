"""What a run leaves of each model in the harness's own files: results and samples.

This module owns the one stock call of the harness that writes them; it imports the contest and,
inside functions, the harness. It computes nothing about models: numbers come from the ranking.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import ModelError
from lm_eval_adaptive.host.written import Written, write_harness_files
from lm_eval_adaptive.records.files import file_part, folder_of
from lm_eval_adaptive.redact import redact, redact_results
from lm_eval_adaptive.run.marking import python_value

if TYPE_CHECKING:
    from pathlib import Path

    from lm_eval_adaptive.host.candidate import Candidate
    from lm_eval_adaptive.records.ranking import RankingDocument
    from lm_eval_adaptive.run.contest import Contest


def recorded_lm(candidate: Candidate, responses: dict[int, tuple[str, ...]]) -> Any:
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

    return RecordedLM()


def write_results(
    contest: Contest,
    document: RankingDocument,
    candidate: Candidate,
    task: Any,
    task_manager: Any,
    output_path: Path,
) -> tuple[dict[str, Any], Written]:
    """Write one model's results and samples files by one stock call of the harness.

    The call is given the chosen documents, the recorded answers and the recorded metric values, so
    that nothing is asked or computed again. The plain means over chosen documents are biased;
    ``results[task]`` holds the estimate of the whole benchmark's score in their place.

    Args:
        contest: The contest, over.
        document: Its ranking, as written.
        candidate: The model.
        task: The model's served task.
        task_manager: The harness's task manager.
        output_path: The run's folder.

    Returns:
        The harness's results, and what was written.

    Raises:
        Exception: Whatever the task's code or the harness raises.
    """
    answers = [
        answer
        for answer in contest.answers
        if answer.model == candidate.name
        and answer.answered
        and answer.doc_id not in contest.first.excluded
    ]
    if not answers:
        return {}, Written()
    task.choose(sorted(answer.doc_id for answer in answers))
    task.recorded = {
        (answer.doc_id, name): python_value(values)
        for answer in answers
        for name, values in answer.metrics.items()
    }
    responses = {answer.doc_id: answer.resps for answer in answers}
    results, tracker = _stock_call(candidate, task, task_manager, output_path, responses)
    _put_estimates(results, document, candidate.name)
    general = tracker.general_config_tracker
    general.model_source = candidate.spec.model
    general.model_name = candidate.name
    names = [spec.name for spec in contest.specs]
    folder = output_path / folder_of(candidate.name, names)
    found = write_harness_files(
        results, tracker, contest.task, file_part(contest.task), folder, document.date
    )
    return results, found


def _stock_call(
    candidate: Candidate,
    task: Any,
    task_manager: Any,
    output_path: Path,
    responses: dict[int, tuple[str, ...]],
) -> tuple[dict[str, Any], Any]:
    """The harness's results on recorded answers, and its tracker, which writes them."""
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker

    settings = candidate.settings
    tracker = EvaluationTracker(**{**settings.hf_hub_log_args, "output_path": str(output_path)})
    seeds = settings.seed
    results = simple_evaluate(
        model=recorded_lm(candidate, responses),
        model_args=redact(dict(candidate.spec.model_args)),
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
    return redact_results(results), tracker


def _put_estimates(results: dict[str, Any], document: RankingDocument, model: str) -> None:
    """Put the estimates of the whole benchmark's scores where the harness has plain means."""
    own = document.entry_of(model)
    table = results["results"][document.task]
    plain = {key: value for key, value in table.items() if "," in key}
    for key in plain:
        del table[key]
    table[f"{document.metric},adaptive"] = own.score
    table[f"{document.metric}_stderr,adaptive"] = own.score_se
    block = {
        **own.plain(),
        "stop_reason": document.stop_reason,
        "signature": document.signature,
    }
    for other in document.further:
        entry = other.entry_of(model)
        clash = f"{other.metric},adaptive" in table  # one metric under two filters
        label = f"adaptive-{other.filter}" if clash else "adaptive"
        table[f"{other.metric},{label}"] = entry.score
        table[f"{other.metric}_stderr,{label}"] = entry.score_se
        about = {"metric": other.metric, "filter": other.filter}
        block.setdefault("further", []).append({**about, **entry.plain()})
    results["adaptive"] = {
        document.task: {
            **block,
            "note": (
                "the score is the estimate for all documents of the bank; means over the chosen "
                "documents are biased and are no score of the task"
            ),
            "mean_over_chosen": {
                key: value
                for key, value in plain.items()
                if "_stderr," not in key and value is not None and value == value  # noqa: PLR0124
            },
        }
    }
