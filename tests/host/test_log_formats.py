"""Logs as people have them: what the harness writes, rewritten to every form it has had."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager

from lm_eval_adaptive.banks.log_scores import score_matrix
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.columns import seen_hash
from lm_eval_adaptive.host.logs import find_runs
from lm_eval_adaptive.host.replay import ReplayLM

from ..fixtures.logs import (  # noqa: TID252  a package of the tests alone
    DATES,
    TASK,
    before_0_4_3,
    before_0_4_7,
    doc,
    lines,
    sample,
    write_run,
)

if TYPE_CHECKING:
    from pathlib import Path

N = 12
# Named by the columns that the task reads.
ITEMS = tuple(seen_hash(doc(n), frozenset({"question", "n"})) for n in range(N))


class Parrot(LM):
    """Answers right for documents below a number, wrong for the others."""

    def __init__(self, right: int) -> None:
        super().__init__()
        self.right = right

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        del disable_tqdm
        return [
            f"It is {r.doc['n']}." if r.doc["n"] < self.right else 'No "idea"…' for r in requests
        ]

    def loglikelihood(self, requests):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The files that the installed harness writes for two models, with two filters."""
    root = tmp_path_factory.mktemp("harness")
    data = root / "docs.jsonl"
    data.write_text("".join(json.dumps(doc(n), ensure_ascii=False) + "\n" for n in range(N)))
    config = {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "Q: {{question}} — “ü”",
        "doc_to_target": "{{n}}",
        "generation_kwargs": {"until": ["\n"]},
        "filter_list": [
            {"name": name, "filter": [
                {"function": "regex", "regex_pattern": pattern}, {"function": "take_first"},
            ]}
            for name, pattern in (("strict", r"is (\d+)\."), ("flexible", r"(\d+)"))
        ],
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1.0},
    }  # fmt: skip
    folder = root / "task"
    folder.mkdir()
    (folder / "toy.yaml").write_text(json.dumps(config))
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    for name, right in (("good", 9), ("bad", 4)):
        lm = Parrot(right)
        out = simple_evaluate(
            model=lm, tasks=[TASK], task_manager=manager, bootstrap_iters=0, log_samples=True
        )
        out["config"]["model"] = "parrot"
        tracker = EvaluationTracker(output_path=str(root / "out"))
        tracker.general_config_tracker.model_source = "parrot"
        tracker.general_config_tracker.model_name = f"org/{name}"
        tracker.general_config_tracker.model_name_sanitized = f"org__{name}"
        samples = out.pop("samples")
        tracker.save_results_aggregated(results=out, samples=samples)
        tracker.save_results_samples(task_name=TASK, samples=samples[TASK])
    return root / "out"


def rows_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def copies(written: Path, root: Path, rewrite) -> Path:
    """The harness's files with each samples file rewritten: ``rewrite(rows, path)`` writes it."""
    for file in sorted(written.rglob("*.json*")):
        place = root / file.relative_to(written)
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.name.startswith("samples_"):
            rewrite(rows_of(file), place)
        else:
            place.write_bytes(file.read_bytes())
    return root


def plain(rows, path):
    path.write_text(lines(rows), encoding="utf-8")


def by_filter(rows):
    """0.4.3–0.4.6: a block of documents per filter, neither named."""
    ordered = sorted(rows, key=lambda row: (row["filter"] != "strict", row["doc_id"]))
    return [before_0_4_7(row) for row in ordered]


def to_parquet(rows, path):
    frame = pd.DataFrame(by_filter(rows))
    frame.to_parquet(path.with_name(path.name.replace(".jsonl", ".parquet")))


def to_zst(rows, path):
    with pa.CompressedOutputStream(str(path) + ".zst", "zstd") as stream:
        stream.write(lines(rows).encode())


def one_file_a_filter(rows, path):
    for name in ("strict", "flexible"):
        place = path.with_name(path.name.replace(TASK, f"{TASK}_{name}"))
        plain([row for row in rows if row["filter"] == name], place)


def a_folder_a_filter(rows, path):
    for name in ("strict", "flexible"):
        (path.parent / name).mkdir()
        plain([row for row in rows if row["filter"] == name], path.parent / name / path.name)


FORMS = {
    "as written": plain,
    "gzip": lambda rows, path: path.with_name(path.name + ".gz").write_bytes(
        gzip.compress(lines(rows).encode())
    ),
    "zstd": to_zst,
    "parquet": to_parquet,
    "0.4.3": lambda rows, path: plain(by_filter(rows), path),
    "a list": lambda rows, path: path.write_text(
        json.dumps([before_0_4_3(row) for row in by_filter(rows)], indent=1)
    ),
    "a list without line ends, in .json": lambda rows, path: path.with_suffix(".json").write_text(
        json.dumps(by_filter(rows), ensure_ascii=False)
    ),
    "not nested": lambda rows, path: plain(
        [row | {"resps": row["resps"][0]} for row in rows], path
    ),
    "resps as text": lambda rows, path: plain(
        [row | {"resps": row["resps"][0][0]} for row in rows], path
    ),
    "filtered as text": lambda rows, path: plain(
        [row | {"filtered_resps": row["filtered_resps"][0]} for row in rows], path
    ),
    "targets as lists": lambda rows, path: plain(
        [row | {"target": [row["target"], "x"]} for row in rows], path
    ),
    "unsorted": lambda rows, path: plain(rows[::-1], path),
    "documents as strings": lambda rows, path: plain(
        [row | {"doc": json.dumps(row["doc"])} for row in rows], path
    ),
    "byte order of keys turned": lambda rows, path: plain(
        [dict(reversed(row.items())) for row in rows], path
    ),
    "a filter a file": one_file_a_filter,
    "a filter a folder": a_folder_a_filter,
    "half a line at the end": lambda rows, path: path.write_text(lines(rows) + lines(rows)[:150]),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_scores_that_the_harness_logged(written, tmp_path, form):
    root = copies(written, tmp_path, FORMS[form])
    runs = find_runs(root, TASK)
    for name in ("strict", "flexible"):
        scored = score_matrix(runs, "exact_match", name)
        assert scored.matrix.models == ("org/bad", "org/good")
        assert scored.matrix.items == ITEMS
        expected = [[float(n < right) for n in range(N)] for right in (4, 9)]
        assert scored.matrix.scores.tolist() == expected
        for row, run in enumerate(scored.runs):
            summary = json.loads(run.results_path.read_text())["results"][TASK]
            assert scored.matrix.scores[row].mean() == summary[f"exact_match,{name}"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_replays_the_answers(written, tmp_path, form):
    root = copies(written, tmp_path, FORMS[form])
    lm = ReplayLM(samples=str(root / "org__good"))
    asked = [
        Instance("generate_until", doc(n), (f"Q: {doc(n)['question']} — “ü”", {}), 0, (TASK, n, 1))
        for n in (10, 2)
    ]
    assert lm.generate_until(asked) == ['No "idea"…', "It is 2."]


def test_results_in_a_folder_above_are_found(written, tmp_path):
    root = copies(written, tmp_path, plain)
    for file in list(root.rglob("samples_*")):
        deeper = file.parent / "samples"
        deeper.mkdir()
        file.rename(deeper / file.name)
    for run in find_runs(root, TASK):
        assert run.results_path is not None
        assert (run.task_version, run.n_shot, run.partial) == ("1.0", 0, None)


def test_documents_that_are_not_logged_are_told_by_their_ids(written, tmp_path):
    def bare(rows, path):
        kept = rows if "good" in str(path) else [
            {k: v for k, v in row.items() if k not in ("doc", "arguments", "prompt_hash")}
            for row in rows
        ]  # fmt: skip
        plain(kept, path)

    runs = find_runs(copies(written, tmp_path / "one", bare), TASK)
    scored = score_matrix(runs, "exact_match", "strict")
    assert scored.matrix.items == ITEMS
    assert scored.matrix.scores.sum(axis=1).tolist() == [4.0, 9.0]
    assert any("rows have no doc; documents are told by doc_id" in each for each in scored.notices)
    assert any("matched to the others' by id" in each for each in scored.notices)
    lm = ReplayLM(samples=str(tmp_path / "one" / "org__bad"))
    asked = Instance("generate_until", doc(3), ("another prompt", {}), 0, (TASK, 3, 1))
    assert lm.generate_until([asked]) == ["It is 3."]
    # where no run has documents, the items are named by what is known
    (run,) = find_runs(tmp_path / "one" / "org__bad", TASK)
    alone = score_matrix([run], "exact_match", "strict")
    assert alone.matrix.items == tuple(f"doc_id:{n}" for n in range(N))


def test_details_of_the_hub_leaderboard(written, tmp_path):
    """A folder a model and task, splits by date, shards; ``latest`` repeats the newest."""
    for run in sorted(written.iterdir()):
        (file,) = run.glob("samples_*.jsonl")
        frame = pd.DataFrame([before_0_4_7(r) for r in rows_of(file) if r["filter"] == "strict"])
        folder = tmp_path / f"{run.name}-details" / f"{run.name}__leaderboard_toy"
        folder.mkdir(parents=True)
        for shard, part in enumerate(np.array_split(frame.index, 2)):
            end = f"-0000{shard}-of-00002.parquet"
            frame.loc[part].to_parquet(folder / f"latest{end}")
            frame.loc[part].to_parquet(folder / f"2024_06_16T20_04_55.123456{end}")
    runs = find_runs(tmp_path, "leaderboard_toy")
    scored = score_matrix(runs, "exact_match")
    assert scored.matrix.models == ("org/bad", "org/good")
    assert scored.matrix.scores.sum(axis=1).tolist() == [4.0, 9.0]
    assert [answer.doc_id for answer in runs[0].answers] == list(range(N))


def test_a_packed_file_that_ends_early_gives_its_whole_lines(tmp_path):
    rows = [sample(n, resps=[f"{n} " * 3000 + str(hash(n * 7.7))]) for n in range(400)]
    path = write_run(tmp_path, "m", rows)
    to_zst(rows, path)
    path.unlink()
    packed = path.with_name(path.name + ".zst")
    whole = packed.read_bytes()
    packed.write_bytes(whole[: len(whole) // 2])
    (run,) = find_runs(tmp_path, TASK)
    assert 0 < len(run.answers) < 400
    assert any("zstd file ends early" in notice for notice in run.notices)
    packed.write_bytes(b"no zstd at all")
    with pytest.raises(DataError, match="no intact zstd file"):
        find_runs(tmp_path, TASK)


@pytest.mark.parametrize(
    ("cut", "message"), [(-1, "not closed"), (-40, "no intact JSON list"), (None, "")]
)
def test_a_list_that_is_larger_than_a_block(tmp_path, monkeypatch, cut, message):
    monkeypatch.setattr("lm_eval_adaptive.host.logs.reading._BLOCK", 64)
    rows = [before_0_4_3(sample(n, resps=["é“" * 50])) for n in range(20)]
    path = tmp_path / f"pretrained__m_{TASK}.jsonl"
    path.write_text(json.dumps(rows, ensure_ascii=False)[:cut], encoding="utf-8")
    if cut is None:
        (run,) = find_runs(tmp_path, TASK)
        assert [each.resps for each in run.answers] == [["é“" * 50]] * 20
    else:
        with pytest.raises(DataError, match=message):
            find_runs(tmp_path, TASK)


def test_replay_takes_the_newest_run_and_says_so(tmp_path, caplog):
    for day, said in enumerate(("old", "new")):
        folder = tmp_path / f"out{day}"
        write_run(folder, "m", [sample(0, resps=[said])], date=DATES.format(day))
    lm = ReplayLM(samples=str(tmp_path))
    asked = Instance("generate_until", doc(0), ("Q: question 0", {}), 0, (TASK, 0, 1))
    assert lm.generate_until([asked]) == ["new"]
    assert "the newer is replayed" in caplog.text
    write_run(tmp_path / "out2", "m", [sample(0)], date=DATES.format(2), **{"n-shot": {TASK: 9}})
    with pytest.raises(UsageError, match="differ in number of few-shot examples"):
        ReplayLM(samples=str(tmp_path))


# --- what other programs write ---

FOREIGN = {
    "an inspect_ai log": {"version": 2, "status": "success", "eval": {"run_id": "x"}, "plan": {}},
    "HELM's scenario state": {"adapter_spec": {"method": "g"}, "request_states": []},
    "HELM's per-instance statistics": [{"instance_id": "id1", "train_trial_index": 0, "stats": []}],
    "OpenCompass predictions": {"0": {"origin_prompt": "Q", "prediction": "A", "gold": "A"}},
    "an lm_eval results file": {"results": {}, "configs": {}, "versions": {}},
    "AlpacaEval outputs": [{"instruction": "Q", "output": "A", "generator": "m"}],
    "FastChat": [{"question_id": 1, "model_id": "m", "choices": [{"turns": ["A"]}]}],
    "HumanEval-like completions": [{"task_id": "HumanEval/0", "completion": "pass"}],
    "ZeroEval": [{"session_id": "s", "chat_history": ["Q"], "output": ["A"], "generator": "m"}],
    "Every Eval Ever records": {"schema_version": "0.2.2", "sample_hash": "ab", "evaluation_id": 1},
}


@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.parametrize("as_lines", [False, True])
def test_files_of_other_programs_are_named(tmp_path, kind, as_lines):
    content = FOREIGN[kind]
    path = tmp_path / ("their.jsonl" if as_lines else "their.json")
    rows = content if isinstance(content, list) and as_lines else [content]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    for spec in (path, tmp_path):
        with pytest.raises(DataError, match=kind) as caught:
            find_runs(spec, TASK)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_generations_of_the_bigcode_harness_are_named(tmp_path):
    path = tmp_path / "generations.json"
    path.write_text(json.dumps([["def f(): pass"]]))
    with pytest.raises(DataError, match="generations of the bigcode evaluation harness"):
        find_runs(path, TASK)


def test_packed_and_binary_files_of_other_programs_are_named(tmp_path):
    log = tmp_path / "2025-01-01_task.eval"
    with zipfile.ZipFile(log, "w") as archive:
        archive.writestr("header.json", "{}")
    with pytest.raises(DataError, match="this is an inspect_ai log"):
        find_runs(log, TASK)
    details = tmp_path / "details_harness|gsm8k|5_2023-09-01.parquet"
    pd.DataFrame({"full_prompt": ["Q"], "example": ["Q"], "predictions": [["A"]]}).to_parquet(
        details
    )
    with pytest.raises(DataError, match="first Open LLM Leaderboard"):
        find_runs(details, TASK)
    zipped = tmp_path / "x.json.gz"
    zipped.write_bytes(gzip.compress(json.dumps(FOREIGN["HELM's scenario state"]).encode()))
    with pytest.raises(DataError, match="HELM's scenario state"):
        find_runs(zipped, TASK)


# --- size ---


def test_memory_does_not_grow_with_the_texts(tmp_path):
    """160 MB of answers are read, scored and replayed within 60 MB over the imports."""
    row = sample(0, resps=["word " * 8000])
    path = tmp_path / f"samples_{TASK}_{DATES.format(0)}.jsonl"
    with path.open("w") as file:
        for n in range(4000):
            file.write(json.dumps(row | {"doc_id": n, "doc": doc(n)}) + "\n")
    assert path.stat().st_size > 160e6
    code = f"""
import resource
from lm_eval_adaptive.banks.log_scores import score_matrix
from lm_eval_adaptive.host.logs import find_runs
from lm_eval_adaptive.host.replay import ReplayLM
from lm_eval.api.instance import Instance
import numpy, pyarrow
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
runs = find_runs({str(path)!r}, {TASK!r})
assert score_matrix(runs, "rougeL").matrix.scores.shape == (1, 4000)
lm = ReplayLM(samples={str(path)!r}, by="doc_id")
asked = Instance("generate_until", {{"x": 1}}, ("other", {{}}), 0, ({TASK!r}, 3999, 1))
assert len(lm.generate_until([asked])[0]) == 40000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start) / 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 60


def test_documents_numbered_in_text_are_those_numbered_by_whole_numbers(tmp_path):
    """Programs that write logs anew (spreadsheets, JSON of objects by key) make texts of ids."""
    rows = [sample(n, 1.0) for n in range(N)]
    for folder, ids in (("whole", int), ("text", str), ("words", "doc-{}".format)):
        place = tmp_path / folder / "one"
        place.mkdir(parents=True)
        changed = [row | {"doc_id": ids(row["doc_id"])} for row in rows]
        (place / f"samples_{TASK}_{DATES.format(0)}.jsonl").write_text(lines(changed))
    whole, text = (list(find_runs(tmp_path / name)[0].answers) for name in ("whole", "text"))
    assert whole == text
    with pytest.raises(DataError, match="doc_id is 'doc-0', expected a whole number"):
        list(find_runs(tmp_path / "words")[0].answers)
