"""Reading the harness's logs and combining them."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval_adaptive.banks.log_scores import score_matrix
from lm_eval_adaptive.core.identity import content_hash
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.logs import exclude_runs, find_runs, reading

from ..fixtures.logs import (  # noqa: TID252  a package of the tests alone
    DATES,
    TASK,
    before_0_4_3,
    before_0_4_7,
    doc,
    lines,
    results,
    sample,
    sha,
    write_run,
)

SHARED = Path(__file__).parents[3] / "shared" / "lm_eval_logs"
ROWS = [sample(doc_id) for doc_id in range(3)]


def read_one(path: Path, task: str | None = TASK):
    (run,) = find_runs(path, task)
    return run


# --- formats ---


def test_a_run_tells_all_that_the_two_files_hold(tmp_path):
    path = write_run(tmp_path, "org/model", ROWS, chat_template="{{x}}", chat_template_sha="ab")
    run = read_one(tmp_path)
    assert (run.model, run.task, run.date) == ("org/model", TASK, DATES.format(0))
    assert (run.task_version, run.n_shot, run.limit) == ("1.0", 2, None)
    assert (run.n_original, run.n_effective, run.partial) == (3, 3, None)
    assert (run.chat_template, run.chat_template_sha) == (True, "ab")
    assert run.few_shot == {"sampler": "first_n", "split": "train"}
    assert run.generation_kwargs == {"until": ["\n"]}
    assert run.higher_is_better == {"rougeL": True}
    assert run.path == path
    assert run.results_path == path.with_name(f"results_{DATES.format(0)}.json")
    assert run.notices == []
    answer = run.answers[2]
    assert (answer.doc_id, answer.doc, answer.target) == (2, doc(2), "answer 2")
    assert answer.content_hash == content_hash(doc(2))
    assert (answer.prompt, answer.resps) == ("Q: question 2", ["reply 2"])
    assert answer.prompt_hash == sha("Q: question 2")
    assert (answer.filter, answer.metrics) == ("none", {"rougeL": 0.2})


@pytest.mark.parametrize("zipped", [False, True])
def test_rows_without_filter_and_metrics(tmp_path, zipped):
    write_run(tmp_path, "m", [before_0_4_7(row) for row in ROWS], zipped=zipped)
    run = read_one(tmp_path)
    assert [(a.filter, a.metrics) for a in run.answers] == [
        ("none", {"rougeL": n / 10}) for n in range(3)
    ]


def test_several_unlabelled_filters_are_told_by_the_order_of_the_rows(tmp_path):
    # Two ranks of a parallel run, each with one block of documents per filter.
    rows = [
        before_0_4_7(sample(doc_id, value))
        for doc_id, value in [(0, 0.1), (2, 0.2), (0, 0.6), (2, 0.7), (1, 0.3), (1, 0.8)]
    ]
    filters = [{"name": "strict", "filter": []}, {"name": "loose", "filter": []}]
    write_run(tmp_path, "m", rows, config_filter_list=filters)
    runs = find_runs(tmp_path, TASK)
    assert runs[0].filters == ("strict", "loose")
    loose = score_matrix(runs, "rougeL", "loose").matrix
    assert loose.item_attributes["doc_id"].tolist() == [0, 1, 2]
    assert loose.scores.tolist() == [[0.6, 0.8, 0.7]]


def test_several_unlabelled_filters_without_results_are_refused(tmp_path):
    rows = [before_0_4_7(sample(0, value)) for value in (0.1, 0.6)]
    write_run(tmp_path, "m", rows, bare=True)
    with pytest.raises(DataError, match=r"document 0 stands twice.*results file beside"):
        find_runs(tmp_path, TASK)


def test_the_lists_of_0_4_0_to_0_4_2(tmp_path):
    summary = results("org/old", 3)
    for key in ("model_name", "chat_template", "n-samples"):
        del summary[key]
    (tmp_path / "results.json").write_text(json.dumps(summary))
    path = tmp_path / f"pretrained__org__old_{TASK}.jsonl"
    path.write_text(json.dumps([before_0_4_3(row) for row in ROWS], indent=2))
    run = read_one(tmp_path)
    assert (run.model, run.date, run.n_shot) == ("org/old", "", 2)
    assert run.answers[1].prompt == "Q: question 1"
    assert run.answers[1].prompt_hash == sha("Q: question 1")
    assert run.answers[1].metrics == {"rougeL": 0.1}
    # results.json is overwritten by each run: it says nothing about another model's samples
    path.rename(tmp_path / f"pretrained__other_{TASK}.jsonl")
    other = read_one(tmp_path)
    assert (other.model, other.n_shot) == ("pretrained__other", None)
    assert "no results file beside it" in other.notices[0]


def test_prompts_of_chat_api_models_are_lists_of_one_string(tmp_path):
    prompt = '[{"role": "user", "content": "hi"}]'
    write_run(tmp_path, "m", [sample(0, prompt=[prompt])])
    answer = read_one(tmp_path).answers[0]
    assert (answer.prompt, answer.prompt_hash) == (prompt, sha(prompt))


def test_repeats_and_pairs_as_metric_values_are_kept_raw(tmp_path):
    write_run(tmp_path, "m", [sample(0, ["gold", "said"], metric="bleu", resps=["a", "b"])])
    runs = find_runs(tmp_path, TASK)
    assert runs[0].answers[0].resps == ["a", "b"]
    assert runs[0].answers[0].metrics == {"bleu": ["gold", "said"]}
    scored = score_matrix(runs, "bleu", to_number=lambda metric, pair: len(pair[0] + metric))
    assert scored.matrix.scores.tolist() == [[8.0]]
    with pytest.raises(DataError, match=r"doc_id 0: bleu is \[\"gold\", \"said\"\], expected a"):
        score_matrix(runs, "bleu")


def test_direction_comes_from_the_task_before_the_results(tmp_path):
    write_run(tmp_path, "m", [sample(0, metric="ter")], metric="ter", config_metric_list=[])
    assert read_one(tmp_path).higher_is_better == {"ter": False}
    metric_list = [{"metric": "loss", "higher_is_better": False}]
    write_run(
        tmp_path, "n", [sample(0, metric="loss")], metric="loss", config_metric_list=metric_list
    )
    run = next(run for run in find_runs(tmp_path, TASK) if run.model == "n")
    assert run.higher_is_better == {"loss": False}


# --- where logs are found ---


def test_directory_file_glob_and_list_find_the_same_run(tmp_path):
    path = write_run(tmp_path / "deep" / "er", "m", ROWS)
    write_run(tmp_path / "deep", "m", ROWS, task="another")
    for spec in (
        tmp_path,
        str(path),
        str(tmp_path / "**" / f"samples_{TASK}_*.jsonl"),
        [path, tmp_path],
    ):
        assert [run.path for run in find_runs(spec, TASK)] == [path]
    assert [run.task for run in find_runs(tmp_path)] == ["another", TASK]


def test_nothing_found_says_what_is_there(tmp_path):
    path = write_run(tmp_path, "m", ROWS)
    for spec in (tmp_path, path):
        with pytest.raises(DataError, match=r"no samples of task other found.*they hold toy_gen"):
            find_runs(spec, "other")
    with pytest.raises(DataError, match="no such file or directory"):
        find_runs(tmp_path / "missing*", TASK)
    with pytest.raises(DataError, match="expected a samples file"):
        find_runs(Path(__file__), TASK)


def test_runs_of_one_model_are_told_apart_by_their_folders(tmp_path):
    for folder, value in (("t0", 0.1), ("t1", 0.2)):
        write_run(tmp_path / folder, "m", [sample(0, value)])
    scored = score_matrix(find_runs(tmp_path, TASK), "rougeL")
    assert list(scored.matrix.models) == ["m@t0", "m@t1"]
    assert scored.matrix.groups == ("m", "m")
    assert scored.matrix.scores.tolist() == [[0.1], [0.2]]


def test_of_several_runs_in_one_folder_the_newest_complete_one_is_taken(tmp_path):
    for day, value in enumerate((0.1, 0.2, 0.3)):
        n = {"n-samples": {TASK: {"original": 3, "effective": 3}}} if day == 2 else {}
        rows = [sample(0, value)]
        write_run(tmp_path, "m", rows, date=DATES.format(day), **n)
    run = read_one(tmp_path)
    assert (run.model, run.date) == ("m", DATES.format(1))
    assert run.answers[0].metrics == {"rougeL": 0.2}
    assert len(run.notices) == 1
    assert "of 3 runs of m in this folder the newest complete one was taken" in run.notices[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"versions": {TASK: 2.0}}, r'task version: "1.0" in .*"2.0" in'),
        ({"n-shot": {TASK: 5}}, "number of few-shot examples: 2 in .*5 in"),
    ],
)
def test_runs_in_one_folder_with_other_settings_are_refused_and_named(tmp_path, changes, message):
    write_run(tmp_path, "m", ROWS)
    write_run(tmp_path, "m", ROWS, date=DATES.format(1), **changes)
    runs = find_runs(tmp_path, TASK)
    with pytest.raises(DataError, match=message) as caught:
        score_matrix(runs, "rougeL")
    for day in (0, 1):
        assert DATES.format(day) in str(caught.value)


def test_a_copy_of_a_file_is_no_second_run(tmp_path):
    write_run(tmp_path / "here", "m", ROWS)
    write_run(tmp_path / "there", "m", ROWS)
    run = read_one(tmp_path)
    assert run.model == "m"
    assert "is a copy of" in run.notices[0]


def test_models_are_left_out_by_any_of_their_names(tmp_path):
    for model in ("org/a", "org/b"):
        write_run(tmp_path, model, ROWS)
    runs = find_runs(tmp_path, TASK)
    for name in ("org/a", "org__a"):
        assert [run.model for run in exclude_runs(runs, [name])] == ["org/b"]
    with pytest.raises(UsageError, match=r"'org/c' to leave out; there are: org/a, org/b"):
        exclude_runs(runs, ["org/c"])


# --- damaged files ---


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_cut_last_line_is_left_out_with_a_notice(tmp_path, cut):
    path = write_run(tmp_path, "m", ROWS)
    path.write_bytes(path.read_bytes()[: -1 - cut])
    run = read_one(tmp_path)
    assert [answer.doc_id for answer in run.answers] == [0, 1]
    assert run.partial is None
    assert run.notices == [f"{path}: its last line (3) is cut off and was left out"]


def test_a_cut_line_elsewhere_is_refused_with_its_number(tmp_path):
    path = write_run(tmp_path, "m", ROWS)
    whole = path.read_text().splitlines()
    path.write_text("\n".join([whole[0], whole[1][:50], whole[2]]))
    with pytest.raises(DataError, match="line 2: is no JSON"):
        find_runs(tmp_path, TASK)


def test_a_gzip_file_that_ends_early_gives_its_whole_lines(tmp_path):
    rows = [sample(doc_id, resps=[sha(str(doc_id)) * 20]) for doc_id in range(200)]
    path = write_run(tmp_path, "m", rows, zipped=True)
    path.write_bytes(path.read_bytes()[:-2000])
    run = read_one(tmp_path)
    assert 0 < len(run.answers) < 200
    assert "ends early" in run.notices[0]
    path.write_bytes(b"no gzip at all")
    with pytest.raises(DataError, match="no intact gzip"):
        find_runs(tmp_path, TASK)


@pytest.mark.parametrize(("most", "fits"), [(1_000_000, False), (80_000_000, True)])
def test_a_gzip_file_that_unpacks_to_more_than_is_stated_is_refused(
    tmp_path, monkeypatch, most, fits
):
    path = write_run(tmp_path, "m", ROWS, zipped=True)
    whole = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(whole + b" " * 60_000_000))
    assert path.stat().st_size < 200_000
    monkeypatch.setenv("LMEVAL_ADAPTIVE_MAX_UNPACKED", str(most))
    if fits:
        assert len(read_one(tmp_path).answers) == len(ROWS)
    else:
        tracemalloc.start()
        with pytest.raises(DataError, match="unpacks to more than 1000000 bytes, from"):
            find_runs(tmp_path, TASK)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000, "it was unpacked all the same"
        tracemalloc.stop()


def test_a_row_without_an_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_MOST_OF_A_ROW", 5_000_000)
    path = write_run(tmp_path, "m", ROWS, zipped=True)
    for start in (b"", b"[", b'["'):
        path.write_bytes(gzip.compress(start + b"x" * 20_000_000))
        with pytest.raises(DataError, match=r"a row of more than 4 MiB|no intact JSON"):
            find_runs(tmp_path, TASK)


def test_many_small_gzip_members_are_counted_together(tmp_path, monkeypatch):
    path = write_run(tmp_path, "m", ROWS, zipped=True)
    path.write_bytes(path.read_bytes() + gzip.compress(b" " * 1000) * 2000)
    monkeypatch.setenv("LMEVAL_ADAPTIVE_MAX_UNPACKED", "1000000")
    with pytest.raises(DataError, match="unpacks to more"):
        find_runs(tmp_path, TASK)


@pytest.mark.parametrize("given", ["0", "-1", "4GB", ""])
def test_a_bound_that_is_no_number_is_named(tmp_path, monkeypatch, given):
    write_run(tmp_path, "m", ROWS, zipped=True)
    monkeypatch.setenv("LMEVAL_ADAPTIVE_MAX_UNPACKED", given)
    with pytest.raises(UsageError, match="LMEVAL_ADAPTIVE_MAX_UNPACKED must be a whole number"):
        find_runs(tmp_path, TASK)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no samples"),
        ('{"model": "x"}\n', "row 1: expected a logged sample with a doc"),
        ('[{"doc_id": 0, "doc": {}},', "no intact JSON list"),
    ],
)
def test_files_that_are_no_samples_are_refused(tmp_path, text, message):
    path = write_run(tmp_path, "m", ROWS)
    path.write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        find_runs(tmp_path, TASK)
    assert str(path) in str(caught.value)


def test_a_damaged_results_file_is_refused(tmp_path):
    path = write_run(tmp_path, "m", ROWS)
    path.with_name(f"results_{DATES.format(0)}.json").write_text("{")
    with pytest.raises(DataError, match="no intact results file"):
        find_runs(tmp_path, TASK)


def test_identical_rows_are_dropped_and_conflicting_ones_refused(tmp_path):
    path = write_run(tmp_path, "m", [*ROWS, ROWS[1]])
    run = read_one(tmp_path)
    assert [answer.doc_id for answer in run.answers] == [0, 1, 2]
    assert "1 rows repeat others" in run.notices[0]
    path.write_text(lines([*ROWS, sample(1, 0.9)]))
    with pytest.raises(DataError, match="document 1 stands twice under filter none"):
        find_runs(tmp_path, TASK)


def test_a_repeated_nan_is_no_conflict(tmp_path):
    write_run(tmp_path, "m", [ROWS[0], sample(1, float("nan")), sample(1, float("nan"))])
    assert len(read_one(tmp_path).answers) == 2


# --- runs that cannot be compared ---


def two_runs(tmp_path: Path, rows_b=ROWS, **changes):
    write_run(tmp_path, "a", ROWS)
    write_run(tmp_path, "b", rows_b, **changes)
    return find_runs(tmp_path, TASK)


def test_mixed_task_versions_are_refused_unless_allowed(tmp_path):
    runs = two_runs(tmp_path, versions={TASK: 2.0})
    with pytest.raises(DataError, match=r'task version: "1.0" in .*a/samples.*"2.0" in .*b/samp'):
        score_matrix(runs, "rougeL")
    assert score_matrix(runs, "rougeL", allow=["task_version"]).matrix.scores.shape == (2, 3)
    with pytest.raises(UsageError, match="cannot allow 'all'"):
        score_matrix(runs, "rougeL", allow=["all"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n-shot": {TASK: 5}}, "number of few-shot examples: 2 in .*5 in"),
        ({"config_fewshot_config": {"sampler": "default"}}, "few-shot settings: .*first_n"),
        ({"config_fewshot_split": "dev"}, 'few-shot settings: .*"train".*"dev"'),
    ],
)
def test_mixed_few_shot_settings_are_refused_unless_allowed(tmp_path, changes, message):
    runs = two_runs(tmp_path, **changes)
    with pytest.raises(DataError, match=message):
        score_matrix(runs, "rougeL")
    score_matrix(runs, "rougeL", allow=["few_shot"])


def test_the_seed_counts_where_examples_are_drawn_and_only_there(tmp_path):
    for sampler, comparable in (("first_n", True), ("default", False)):
        root = tmp_path / sampler
        for model, seed in (("a", 1), ("b", 2)):
            config = {"model_args": "", "limit": None, "fewshot_seed": seed}
            write_run(root, model, ROWS, config=config, config_fewshot_config={"sampler": sampler})
        runs = find_runs(root, TASK)
        if comparable:
            score_matrix(runs, "rougeL")
        else:
            with pytest.raises(DataError, match=r"few-shot settings.*\"seed\": 1"):
                score_matrix(runs, "rougeL")


def test_mixed_filters_are_refused_unless_one_is_chosen(tmp_path):
    strict = [sample(doc_id, 0.5, filter="strict") for doc_id in range(3)]
    with pytest.raises(DataError, match=r"mix filters: none in .*strict in"):
        score_matrix(two_runs(tmp_path / "one", rows_b=strict), "rougeL")
    for model in ("a", "b"):
        write_run(tmp_path / "two", model, [*ROWS, *strict])
    runs = find_runs(tmp_path / "two", TASK)
    with pytest.raises(DataError, match="several filters, choose one of: none, strict"):
        score_matrix(runs, "rougeL")
    scored = score_matrix(runs, "rougeL", "strict")
    assert scored.filter == "strict"
    assert scored.matrix.scores.tolist() == [[0.5] * 3] * 2
    with pytest.raises(DataError, match="no filter 'loose'; it holds: none, strict"):
        score_matrix(runs, "rougeL", "loose")


def test_a_missing_metric_lists_those_that_are_there(tmp_path):
    with pytest.raises(DataError, match="no metric 'bleu'; it holds: rougeL"):
        score_matrix(two_runs(tmp_path), "bleu")


def test_prompts_may_differ_by_chat_template_with_a_notice(tmp_path):
    chat = [sample(doc_id, prompt=f"<user>Q: question {doc_id}<model>") for doc_id in range(3)]
    scored = score_matrix(
        two_runs(tmp_path, chat, chat_template="{{x}}", chat_template_sha="ab"), "rougeL"
    )
    assert "1 of 2 runs apply a chat template" in scored.notices[0]
    assert scored.matrix.item_attributes["prompt_hash"].tolist() == ["", "", ""]


def test_prompts_that_differ_for_no_known_reason_are_refused(tmp_path):
    odd = [ROWS[0], sample(1, prompt="other examples\n\nQ: question 1"), ROWS[2]]
    runs = two_runs(tmp_path, odd)
    with pytest.raises(DataError, match="prompts of 1 documents differ, first doc_id 1"):
        score_matrix(runs, "rougeL")
    scored = score_matrix(runs, "rougeL", allow=["prompts"])
    hashes = scored.matrix.item_attributes["prompt_hash"].tolist()
    assert hashes == [sha("Q: question 0"), "", sha("Q: question 2")]


def test_system_instructions_and_generation_settings_may_differ_with_a_notice(tmp_path):
    warm = [
        sample(doc_id, prompt=f"Be kind. Q: {doc_id}", settings={"temperature": 0.7})
        for doc_id in range(3)
    ]
    notices = score_matrix(
        two_runs(tmp_path, warm, system_instruction="Be kind."), "rougeL"
    ).notices
    assert any("system instructions" in notice for notice in notices)
    assert any('{"temperature": 0.7}: 1 runs' in notice for notice in notices)


def test_runs_of_several_tasks_are_refused(tmp_path):
    write_run(tmp_path, "a", ROWS)
    write_run(tmp_path, "a", ROWS, task="another", date=DATES.format(1))
    with pytest.raises(DataError, match=r"several tasks \(another, toy_gen\)"):
        score_matrix(find_runs(tmp_path), "rougeL")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"config": {"limit": 3.0}}, "--limit 3"),
        ({"n-samples": {TASK: {"original": 9, "effective": 3}}}, "3 of 9 documents"),
        ({"n-samples": {TASK: {"original": 9, "effective": 9}}}, "answers to 3 of 9 documents"),
    ],
)
def test_incomplete_runs_are_left_out_unless_allowed(tmp_path, changes, why):
    runs = two_runs(tmp_path, **changes)
    scored = score_matrix(runs, "rougeL")
    assert len(scored.matrix.models) == 1
    assert any(why in notice and "left out" in notice for notice in scored.notices)
    assert score_matrix(runs, "rougeL", allow=["partial"]).matrix.scores.shape == (2, 3)
    with pytest.raises(DataError, match=f"no run over all documents is left.*{why}"):
        score_matrix([run for run in runs if run.partial], "rougeL")


# --- documents ---


def test_column_order_changes_nothing_and_the_harness_hash_is_dropped(tmp_path):
    turned = [sample(doc_id, document=dict(reversed(doc(doc_id).items()))) for doc_id in range(3)]
    scored = score_matrix(two_runs(tmp_path, turned), "rougeL")
    assert scored.matrix.items == tuple(content_hash(doc(doc_id)) for doc_id in range(3))
    assert scored.matrix.item_attributes["doc_hash"].tolist() == ["", "", ""]
    assert scored.matrix.scores.tolist() == [[0.0, 0.1, 0.2]] * 2


def test_edited_documents_are_left_out_up_to_a_share(tmp_path):
    rows = [sample(doc_id) for doc_id in range(40)]
    write_run(tmp_path, "a", rows)
    for edited, kept in ((2, True), (3, False)):
        changed = [
            sample(doc_id, document=doc(doc_id, answer="edited")) for doc_id in range(edited)
        ]
        write_run(tmp_path, "b", [*changed, *rows[edited:]])
        runs = find_runs(tmp_path, TASK)
        if kept:
            scored = score_matrix(runs, "rougeL")
            assert scored.matrix.item_attributes["doc_id"].tolist() == list(range(2, 40))
            assert "2 of 40 documents differ between runs (doc_id 0, 1)" in scored.notices[0]
        else:
            with pytest.raises(DataError, match=r"3 of 40 documents differ.*more than 5%"):
                score_matrix(runs, "rougeL")


def test_a_missing_answer_is_a_missing_score_and_no_edit(tmp_path):
    path = write_run(tmp_path, "b", ROWS)
    path.write_bytes(path.read_bytes()[:-40])
    write_run(tmp_path, "a", ROWS)
    scored = score_matrix(find_runs(tmp_path, TASK), "rougeL")
    np.testing.assert_array_equal(scored.matrix.scores, [[0, 0.1, 0.2], [0, 0.1, np.nan]])


def test_nan_is_a_missing_score_with_a_notice(tmp_path):
    runs = two_runs(tmp_path, [ROWS[0], sample(1, float("nan")), ROWS[2]])
    scored = score_matrix(runs, "rougeL")
    np.testing.assert_array_equal(scored.matrix.scores[1], [0, np.nan, 0.2])
    assert any("NaN for 1 documents" in notice for notice in scored.notices)


def test_documents_that_repeat_exactly_are_named_by_their_id_too(tmp_path):
    rows = [sample(0, 0.3, document=doc(0)), sample(1, 0.4, document=doc(0)), sample(2, 0.5)]
    runs = two_runs(tmp_path / "full", rows)
    write_run(tmp_path / "full", "a", rows)
    scored = score_matrix(find_runs(tmp_path / "full", TASK), "rougeL")
    twin = content_hash(doc(0))
    assert scored.matrix.items == (f"{twin}#0", f"{twin}#1", content_hash(doc(2)))
    assert scored.matrix.scores.tolist() == [[0.3, 0.4, 0.5]] * 2
    assert len(runs) == 2


@given(st.permutations(range(6)), st.permutations(["a", "b", "c"]))
def test_neither_the_order_of_rows_nor_of_models_matters(tmp_path_factory, order, models):
    root = tmp_path_factory.mktemp("logs")
    for place, model in enumerate("abc"):
        write_run(root, model, [sample(i, (i + place) / 10) for i in order])
    runs = {run.model: run for run in find_runs(root, TASK)}
    scored = score_matrix([runs[model] for model in models], "rougeL")
    assert scored.matrix.models == ("a", "b", "c")
    expected = [[(i + place) / 10 for i in range(6)] for place in range(3)]
    assert scored.matrix.scores.tolist() == expected


def test_lengths_are_medians_of_characters_over_four(tmp_path):
    write_run(tmp_path, "a", [sample(0, resps=["x" * 40])])
    write_run(tmp_path, "b", [sample(0, resps=["x" * 80])])
    write_run(tmp_path, "c", [sample(0, resps=["x" * 400])])
    attributes = score_matrix(find_runs(tmp_path, TASK), "rougeL").matrix.item_attributes
    assert attributes["output_tokens"].tolist() == [20.0]
    assert attributes["input_tokens"].tolist() == [len("Q: question 0") / 4]


# --- real logs ---


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared logs are not here")
@pytest.mark.parametrize("language", ["en", "es"])
def test_real_logs_agree_on_every_document_and_with_their_own_means(language):
    task = f"truthfulqa-multi_gen_{language}"
    runs = find_runs(SHARED / task, task)
    scored = score_matrix(runs, "bleu_max")
    assert scored.matrix.scores.shape == (15, 817)
    assert np.isfinite(scored.matrix.scores).all()
    assert (scored.filter, scored.higher_is_better) == ("none", True)
    assert len(scored.notices) == 1  # the chat templates, and nothing else
    for row, run in enumerate(scored.runs):
        logged = json.loads(run.results_path.read_text())["results"][task]["bleu_max,none"]
        assert scored.matrix.scores[row].mean() == pytest.approx(logged, rel=1e-12)
