"""What is known of a run, gathered from its folder for the report.

This module owns finding the files that belong together: ranking, journal, samples, bank; and the
state of a run that has no ranking yet, by the state and the ranking document of the run itself. It
reads only, asks no model and loads no task.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.errors import AdaptiveError, DataError, UsageError
from lm_eval_adaptive.harness.cold import NONE as NO_BANK
from lm_eval_adaptive.harness.config import AdaptiveConfig, CandidateSpec, folder_name
from lm_eval_adaptive.harness.journal import NAME, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lm_eval_adaptive.core.state import RunState
    from lm_eval_adaptive.harness.candidate import Candidate
    from lm_eval_adaptive.harness.session import Session

    Samples = Mapping[str, Mapping[int, Mapping[str, Any]]]


@dataclass(frozen=True)
class TaskView:
    """All that the report shows of one task.

    Attributes:
        ranking: A ranking document (see ``outputs``); its ``ranking`` list is empty where only
            the journal is known.
        bank: The bank, None where it was not found.
        answers: The journal's ``answer`` records.
        samples: The harness's logged samples, by model and document id.
        command: The command line that repeats the run, "" where it is not known.
        unfinished: Whether the run is going on or was interrupted.
        notes: What the reader of this page has to know about the page.
    """

    ranking: Mapping[str, Any]
    bank: ItemBank | None = None
    answers: Sequence[Mapping[str, Any]] = ()
    samples: Samples = field(default_factory=dict)
    command: str = ""
    unfinished: bool = False
    notes: tuple[str, ...] = ()


def views_of(source: Path) -> tuple[Path, list[TaskView]]:
    """What there is to show of a run.

    Args:
        source: The run's folder, one ranking file in it, or its journal.

    Returns:
        The run's folder, and a view per task.

    Raises:
        UsageError: There is no such file or folder, or no run in it.
        DataError: A ranking file or the journal cannot be read.
    """
    if source.name == NAME:
        source = source.parent
    if not source.exists():
        raise UsageError(
            f"report: no {source}; give the --output_path of an adaptive run, or one of its "
            "ranking_*.json files"
        )
    folder = source if source.is_dir() else source.parent
    views = _views_of_folder(folder) if source.is_dir() else [_finished_view(source)]
    if not views:
        raise UsageError(
            f"report: {folder} holds neither ranking_*.json nor {NAME}; give the --output_path of "
            "an adaptive run"
        )
    return folder, views


def _views_of_folder(folder: Path) -> list[TaskView]:
    """One view per task: from the current journal, and from rankings it does not know."""
    newest: dict[str, Path] = {}
    for path in sorted(folder.glob("ranking_*.json"), key=lambda each: each.stat().st_mtime_ns):
        newest[str(_read_ranking(path)["task"])] = path
    records = _read_records(folder / NAME)
    views = []
    if records:
        ended = {record["task"] for record in records if record["type"] == "end"}
        for task in records[0]["config"]["tasks"]:
            path = newest.pop(task, folder)
            if task in ended and path != folder:
                views.append(_finished_view(path))
            else:
                views.append(_unfinished_view(folder, records, task))
    return views + [_finished_view(path) for _, path in sorted(newest.items())]


def _read_ranking(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise DataError(
            f"{path} is no readable ranking file ({error}); restore it, or write it again with "
            f"--resume {path.parent}"
        ) from error
    if not isinstance(data, dict) or "ranking" not in data or "task" not in data:
        raise DataError(f"{path} is JSON but no ranking file; give a ranking_*.json of a run")
    if data.get("schema") != 1:
        raise DataError(
            f"{path} has schema {data.get('schema')}, this version reads schema 1; use the version "
            "that wrote it"
        )
    return data


def _read_records(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal, [] where there is none; the file is never changed.

    ``journal.read_journal`` cuts a half-written last line off the file, which must not happen to a
    run that is still writing it.
    """
    if not path.is_file():
        return []
    records = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):  # the last one has no newline yet
        if not line:
            continue
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise DataError(
                f"{path} line {number} is damaged ({error}); restore the file from a copy"
            ) from error
    if not records or records[0].get("type") != "run" or records[0].get("schema") != SCHEMA:
        raise DataError(
            f"{path} does not start with a run's configuration of schema {SCHEMA}; it is no "
            "journal of this version"
        )
    return records


def _finished_view(path: Path) -> TaskView:
    ranking = _read_ranking(path)
    records = _journal_of(path.parent, ranking)
    words = list(records[0].get("command") or []) if records else []
    bank, notes = _find_bank(
        ranking["bank"]["sha256"], ranking["bank"]["response_model"], path.parent, words
    )
    if not records:
        notes.append("The run's journal was not found beside the ranking.")
    answers = [
        record
        for record in records
        if record["type"] == "answer" and record["task"] == ranking["task"]
    ]
    names = [entry["model"] for entry in ranking["ranking"]]
    samples = _read_samples(path.parent, ranking, names)
    return TaskView(ranking, bank, answers, samples, _command(words), False, tuple(notes))


def _journal_of(folder: Path, ranking: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The journal, among those kept in the folder, that holds the answers of a ranking."""
    wanted = {(step["model"], step["doc_id"], step["raw_score"]) for step in ranking["trace"]}
    for path in (folder / NAME, *sorted(folder.glob("journal_*.jsonl"))):
        records = _read_records(path)
        held = {
            (record["model"], record["doc_id"], record["raw_score"])
            for record in records
            if record["type"] == "answer" and record["task"] == ranking["task"]
        }
        if records and wanted <= held:
            return records
    return []


_SECRET = re.compile(r"(?i)\b((?:\w+_)?(?:key|token|secret|password|authorization))(=|: ?)[^,\s]+")


def _command(words: Sequence[str]) -> str:
    """The command line without secrets: a report is made to be passed on."""
    words = [_SECRET.sub(r"\1\2***", word) for word in words]
    return f"lm-eval-adaptive {shlex.join(words)}" if words else ""


def without_secrets(value: Any) -> Any:
    """Options as they may be shown."""
    if isinstance(value, dict):
        return {
            key: "***" if each and _SECRET.match(f"{key}=x") else without_secrets(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    return _SECRET.sub(r"\1\2***", value) if isinstance(value, str) else value


def _find_bank(
    sha256: str, response_model: str, folder: Path, words: Sequence[str]
) -> tuple[ItemBank | None, list[str]]:
    """The bank of a given hash: where the command line, the run's or the tasks' folders have it."""
    from lm_eval_adaptive.core.build import refit
    from lm_eval_adaptive.harness.run import tasks_folder

    if sha256 == NO_BANK:
        return None, ["The run was made without a bank (--bank none): there is no map of items."]
    named: list[Path] = []
    folders = [folder, tasks_folder()]
    option = ""
    for word in words:
        if word.startswith("--"):
            option, _, word = word.partition("=")  # noqa: PLW2901  both spellings of an option
        if option == "--bank" and word:
            named += [Path(word), Path(word.partition("=")[2] or word)]
        elif option == "--include_path" and word:
            folders.append(Path(word))
        elif option == "--tasks" and word.endswith((".yaml", ".yml")):
            folders.append(Path(word).parent)
    tried = [each for path in named for each in (path, folder / path)]
    tried += [path for each in folders for path in sorted(each.glob("*.parquet"))]
    tried += [path for each in folders for path in sorted(each.glob("*/*.parquet"))]
    for path in tried:
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            return refit(ItemBank.load(path), response_model), []
    return None, [
        f"The run's bank (sha256 {sha256[:12]}) was not found, so there is no map of its items."
    ]


def _read_samples(
    folder: Path, ranking: Mapping[str, Any], names: Sequence[str]
) -> dict[str, dict[int, dict[str, Any]]]:
    """The samples logged with a ranking, by model and document id."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    prefix, date = f"samples_{ranking['task']}_", str(ranking.get("date", "9"))
    for name in names:
        files = sorted((folder / folder_name(name)).glob(f"{prefix}[0-9]*.jsonl"))
        files = [path for path in files if path.stem[len(prefix) :] <= date]
        if not files:
            continue
        mine = found.setdefault(name, {})
        with files[-1].open(encoding="utf-8") as lines:
            for line in lines:
                try:
                    sample = json.loads(line)
                except ValueError:  # a file that was cut off: what is whole is shown
                    break
                if sample.get("filter", ranking["filter"]) == ranking["filter"]:
                    mine[int(sample["doc_id"])] = sample
    return found


class _JournalledSession:
    """What a run's state and its ranking document need of a session, from journal and bank alone.

    A run in progress is shown without loading its task, whose data may be far away or changing.
    Documents are taken to have the ids they had in calibration; :func:`_ids_agree` checks it.
    """

    def __init__(self, bank: ItemBank, header: Mapping[str, Any], task: str, repeats: int) -> None:
        from lm_eval_adaptive.core.procedure import Procedure
        from lm_eval_adaptive.harness.session import expected_costs, known_rows

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
        self.procedure = Procedure.for_bank(
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


def _unfinished_view(folder: Path, records: Sequence[dict[str, Any]], task: str) -> TaskView:
    """What a journal tells of a task that has no ranking yet."""
    from lm_eval_adaptive.harness.outputs import ranking_document, run_warnings
    from lm_eval_adaptive.harness.session import as_far_as

    header = records[0]["config"]
    mine = [record for record in records[1:] if record.get("task") == task]
    answers = [record for record in mine if record["type"] == "answer"]
    words = list(records[0].get("command") or [])
    about = header["tasks"][task]
    bank, notes = _find_bank(
        about["bank_sha256"], str(header["adaptive"].get("response_model", "auto")), folder, words
    )
    command = _command(words)
    if bank is not None and not _ids_agree(bank, answers):
        bank = None
        notes.append(
            "The documents' ids are not those of the bank, so nothing is estimated before the run "
            "has finished."
        )
    if bank is not None:
        repeats = max((len(record["resps"]) for record in answers), default=1) or 1
        try:
            held = _JournalledSession(bank, header, task, repeats)
        except (AdaptiveError, TypeError) as error:  # options of another version
            notes.append(f"The run's state could not be rebuilt: {error}")
        else:
            session = cast("Session", held)
            run = as_far_as(session, mine)
            candidates = [cast("Candidate", SimpleNamespace(spec=spec)) for spec in held.specs]
            ranking = ranking_document(session, run, candidates, run_warnings(session, run))
            ranking["versions"] = header.get("versions", ranking["versions"])
            return TaskView(ranking, bank, answers, {}, command, True, tuple(notes))
    return TaskView(
        _journal_document(header, mine, task), None, answers, {}, command, True, tuple(notes)
    )


def _journal_document(
    header: Mapping[str, Any], records: Sequence[Mapping[str, Any]], task: str
) -> dict[str, Any]:
    """A ranking document without estimates: what the journal alone tells."""
    recipe = header["tasks"][task]["signature"]
    parts = dict(part.partition(":")[::2] for part in recipe.split("|"))
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        kinds.setdefault(record["type"], []).append(record)
    models = sorted(header["models"].items())
    answers = kinds.get("answer", [])
    items_full = len(models) * int(header["tasks"][task]["documents"])
    per_item = {name: spec.get("cost", 1.0) for name, spec in models}
    # Prices by the token say what an answer cost, not what a full run would.
    fixed = all(isinstance(price, int | float) for price in per_item.values())
    full = sum(per_item.values()) if fixed else float("nan")
    return {
        "task": task,
        "metric": parts.get("metric", ""),
        "filter": parts.get("filter", ""),
        "higher_is_better": None,
        "bank": {"path": "", "sha256": header["tasks"][task]["bank_sha256"], "models": []},
        "config": {"adaptive": header["adaptive"], "models": [spec for _, spec in models]},
        "signature": recipe,
        "versions": header.get("versions", {}),
        "ranking": [],
        "pairs": [],
        "stop_reason": "".join(record["stop_reason"] for record in kinds.get("end", [])[-1:]),
        "items_total": len(answers),
        "items_full": items_full,
        "fraction": len(answers) / items_full if items_full else 0.0,
        "cost_total": sum(float(record["cost"]) for record in answers),
        "cost_full": full * int(header["tasks"][task]["documents"]),
        "excluded": [
            {"doc_id": record["doc_id"], "reason": f"{record['model']}: {record['problem']}"}
            for record in answers
            if record["problem"]
        ],
        "set_aside": [
            {
                "model": record["model"],
                "reason": record["reason"],
                "items": sum(each["model"] == record["model"] for each in answers),
            }
            for record in kinds.get("failed", [])
        ],
        "warnings": [],
        "trace": [],
    }


def direction_of(ranking: Mapping[str, Any]) -> str:
    """The metric's direction in words, "" where it is unknown."""
    better = ranking["higher_is_better"]
    return "" if better is None else "higher is better" if better else "lower is better"


def valid_answers(view: TaskView) -> dict[str, list[Mapping[str, Any]]]:
    """Answers that count, by model in ranking order."""
    excluded = {each["doc_id"] for each in view.ranking.get("excluded", [])}
    found: dict[str, list[Mapping[str, Any]]] = {
        entry["model"]: [] for entry in view.ranking["ranking"]
    }
    for record in view.answers:
        counts = record["score"] is not None and record["doc_id"] not in excluded
        if counts and record["model"] in found:
            found[record["model"]].append(record)
    return found
