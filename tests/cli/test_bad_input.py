"""The table of bad input: what is handed over, where, what must be said, the code, what remains.

Rows of files are made by spoiling a good one in every place where a command reads one; rows of
options are written out. Every row runs in this process, in a folder of its own.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import pytest

from tests.support import bad_input

# Kinds that every place is tried with; the attack script tries them all.
KINDS = ("missing", "folder", "empty", "binary", "utf-16", "a word", "json object", "truncated")
# A file that is shorter is as good, or is text for YAML in any encoding.
FINE = {
    ("calibrate --scores csv", "truncated"), ("calibrate --scores tsv", "truncated"),
    ("init-task csv", "truncated"), ("init-task tsv", "truncated"),
    ("simulate --family", "truncated"), ("simulate --calibrate_on", "truncated"),
    ("report of a journal", "utf-16"), ("report of a folder", "utf-16"),
    ("run --resume", "utf-16"), ("simulate --scores", "truncated"),
    ("run --tasks yaml", "utf-16"), ("run --models", "truncated"), ("run --config", "truncated"),
}  # fmt: skip
# Places that take a folder as well.
FOLDERS = {"calibrate --samples", "simulate --samples"}
# What is no mistake of the file's: too few models for a simulation of so small a table.
SAID = r"cannot|no |not |is a |needs |expected|damaged|holds|lacks|names|regime|does not|has "


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return bad_input.good_files(tmp_path_factory.mktemp("good"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Nothing is written into the folder that the tests run in."""
    monkeypatch.chdir(tmp_path)


FILES = [
    (place, kind) for place in bad_input.PLACES for kind in KINDS if (place.name, kind) not in FINE
]


@pytest.mark.parametrize(
    ("place", "kind"), FILES, ids=[f"{place.name}-{kind}" for place, kind in FILES]
)
def test_a_bad_file_is_refused_in_one_line_and_left_as_it_is(good, tmp_path, place, kind):
    file = tmp_path / "in" / place.file
    bad_input.spoil(file, (good / place.good).read_bytes(), kind)
    output = tmp_path / "o"
    output.mkdir()
    before = bad_input.snapshot(tmp_path / "in")
    answer = bad_input.attempt(bad_input.words_of(place, good, file, output))
    assert answer.faults() == []
    assert answer.code == 2
    (said,) = answer.said
    assert re.search(SAID, said)
    named = (file.name, file.parent.name, str(file), "samples", "metric", "higher_is_better")
    assert any(each in said for each in named), said
    assert bad_input.snapshot(tmp_path / "in") == before
    assert bad_input.snapshot(output) == {}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
@pytest.mark.parametrize("place", bad_input.PLACES, ids=lambda place: place.name)
def test_a_file_that_may_not_be_read_is_named(good, tmp_path, place):
    file = tmp_path / "in" / place.file
    bad_input.spoil(file, (good / place.good).read_bytes(), "unreadable")
    (tmp_path / "o").mkdir()
    answer = bad_input.attempt(bad_input.words_of(place, good, file, tmp_path / "o"))
    assert answer.faults() == []
    assert answer.code == 2
    assert file.name in answer.said[0] or file.parent.name in answer.said[0]


@dataclass(frozen=True)
class Row:
    """A command line that is wrong: its words, and what must be said of it."""

    words: str
    said: str


RUN = (
    "run --adaptive --tasks mine --include_path {d}/tasks --model dummy --model_name a "
    "--model dummy --model_name b --bank none --output_path {o}/run "
)
BANK = RUN.replace("--bank none", "--bank {d}/mine.bank.parquet")
ONE = RUN.replace("--model dummy --model_name b ", "")
CAL = "calibrate --task t --metric m --scores {d}/long.csv --output {o}/b.parquet "
SIM = "simulate --metric m --scores {d}/long.csv --holdout 2 --partitions 1 --jobs 1 "
INIT = "init-task t --dataset {d}/docs.jsonl --metric rougeL --output {o}/t "
NO_NUMBER = {"x": "x", "": "''", "1,5": "1,5", "ten": "ten"}
REALS = ("confidence", "equivalence", "budget", "futility", "precision")
WHOLES = ("min_items", "max_items", "budget_items", "items_per_model", "resident")

ROWS = [
    *(Row(f"{RUN}--{name} {text}", f"--{name}.*{re.escape(text)}") for name in (*REALS, *WHOLES) for text in ("x", "1,5", "1e400x")),
    *(Row(f"{RUN}--{name} {text}", f"--{name}.*{text.lstrip('-')}") for name in WHOLES for text in ("-1", "0", "1.5", "inf", "nan")),
    *(Row(f"{RUN}--{name} {text}", f"--{name}") for name in REALS for text in ("-1", "inf", "nan", "1e400", "-inf")),
    *(Row(f"{RUN}--round_size {text}", "--round_size") for text in ("0", "-1", "x", "1.5", "inf")),
    *(Row(f"{RUN}--range {text}", "--range") for text in ("x", "1", "1,2,3", "5,5", "2,1", "nan,1", "0,inf", "-1,-2", "0,1e400")),
    *(Row(f"{RUN}--model_cost {text}", "cost|price") for text in ("x", "-1", "0", "nan", "inf", "1e400", "-1,2", "1,nan", "0,0", "1,2,3x", "inf,1")),
    *(Row(f"{RUN}--batch_size {text}", "--batch_size") for text in ("x", "-1", "0", "1.5", "inf")),
    *(Row(f"{RUN}--seed {text}", "seed") for text in ("-1", "x", "100000000000000000000", "1.5")),
    Row(f"{RUN}--num_fewshot -1", "--num_fewshot must be 0 or more"),
    Row(f"{RUN}--limit 0", "--limit does not go with --adaptive"),
    Row(f"{RUN}--limit 5", "--limit does not go with --adaptive"),
    Row(f"{RUN}--predict_only", "--predict_only does not go"),
    Row(f"{RUN}--pairs top:0", "--pairs"), Row(f"{RUN}--pairs some", "--pairs"),
    Row(f"{RUN}--correction bonferroni", "--correction.*choose from"),
    Row(f"{RUN}--sampler fischer", "--sampler.*choose from"),
    Row(f"{RUN}--response_model rasch", "--response_model.*choose from"),
    # options near a known one
    Row(f"{RUN}--maxitems 3", "--maxitems.*--max_items"),
    Row(f"{RUN}--samplr random", "--samplr.*--sampler"),
    Row(f"{RUN}--confidance 0.9", "--confidance.*--confidence"),
    Row(f"{RUN}--max-items 3", "--max-items.*--max_items"),
    Row(f"{CAL}--rnage 0,1", "--rnage.*--range"),
    Row(f"{CAL}--lower_is_beter", "--lower_is_bet"),
    Row(f"{SIM}--holdouts 3", "--holdouts.*--holdout"),
    Row(f"{INIT}--prompts x", "--prompts.*--prompt"),
    Row("bank show {d}/mine.bank.parquet --jsn", "--jsn.*--json"),
    Row("report /dev/zero --output {o}/r.html", "is a device"),
    Row("report {d}/ranking.json --outptu x", "--outptu.*--output"),
    Row("frobnicate now", "frobnicate|now"),
    Row("bank shwo x", "shwo.*show"),
    # options without effect, and what makes them so
    Row(f"{RUN}--sampler fisher", "--sampler fisher.*--bank none"),
    Row(f"{RUN}--sampler static", "--sampler static.*bank"),
    Row(f"{RUN}--against all", "--against.*--bank none"),
    Row(f"{RUN}--response_model robust-2pl", "--response_model.*--bank none"),
    Row(f"{RUN}--futility 0.2", "--futility.*--bank none"),
    Row(f"{RUN}--precision 0.1", "--precision.*2 models"),
    Row(f"{RUN}--items_per_model 4 --min_items 5", "--min_items 5.*--items_per_model 4"),
    Row(f"{RUN}--items_per_model 4 --min_items 1 --max_items 3", "--max_items 3.*--items_per_model 4"),
    Row(f"{RUN}--items_per_model 4 --futility 0.5", "--futility.*--items_per_model"),
    Row(f"{RUN}--stratify question --sampler random", "--sampler random.*--stratify"),
    Row(f"{RUN}--stratify nope", "--stratify nope.*question"),
    *(Row(f"{ONE}--items_per_model 4 --{option}", f"--{option.split()[0]}.*--model alone") for option in ("pairs all", "confidence 0.9", "correction holm", "equivalence 0.1")),
    Row(ONE, "one model has nothing to be ranked against"),
    Row("run --adaptive --model_cost 3 --model dummy --tasks mine", "--model_cost.*--model before it"),
    Row("run --adaptive --model_name x --model dummy --tasks mine", "--model_name.*--model before it"),
    Row(f"{RUN}--model_name c", "--model_name.*twice"),
    Row(f"{RUN}--model_cost 1 --model_cost 2", "--model_cost.*twice"),
    Row("run --adaptive --tasks mine --model_args x=1 --model dummy --model_name a --model dummy --model_name b", "--model_args x.*--model before it"),
    Row("run --tasks mine --model dummy --max_items 3", "--max_items is an option of adaptive runs"),
    Row("run --tasks mine --model dummy --bank none", "--bank is an option of adaptive runs"),
    Row("run --tasks mine --model dummy --clip", "--clip is an option of adaptive runs"),
    # banks
    Row(f"{RUN}--bank other=x.parquet", "--bank"),
    Row(RUN.replace("--bank none", "--bank lr=0.1/my.bank.parquet"), "lr=0.1/my.bank.parquet.*'lr' is no task of this run.*mine"),
    Row(RUN.replace("--bank none", "--bank mine="), "--bank mine=.*no path"),
    Row(RUN.replace("--bank none", "--bank mine:other={d}/mine.bank.parquet"), "--bank mine:other.*used by nothing"),
    Row(RUN.replace("--bank none", "--bank mine=none --bank mine={d}/mine.bank.parquet"), "two banks for mine"),
    Row(RUN.replace("--bank none", "--bank none --bank {d}/mine.bank.parquet"), "each must say its task"),
    Row(RUN.replace("--bank none", "--bank hf://org/banks/x.parquet"), "hf://"),
    Row(BANK, "documents|gives no metric|filter"),
    Row(f"{BANK}--range 0,1", "--range.*--bank none"),
    Row(f"{BANK}--stratify question", "--stratify.*--bank none"),
    Row("bank check {d}/mine.bank.parquet --tasks mine --include_path {d}/tasks", "mine"),
    Row("bank check {d}/mine.bank.parquet --tasks mine --include_path {d}/nope", "--include_path.*no such folder"),
    # models and tasks
    Row("run --adaptive", "names no model"),
    Row("run --adaptive --tasks mine --include_path {d}/tasks --bank none", "names no model"),
    Row(f"{RUN}--model nope", "nope"),
    Row(f"{RUN}--model dummy --model_name a", "two models are called 'a'"),
    Row(RUN.replace("{d}/tasks", "{d}/nope"), "--include_path.*no such folder"),
    Row(RUN.replace("--tasks mine", "--tasks {d}/nope.yaml"), "no task file"),
    Row(f"{RUN}--metric exact_match --metric exact_match", "twice"),
    Row(f"{RUN}--metric exact_match,nope", "no filter nope.*none"),
    Row("run --adaptive --resume {d}/tasks", "no journal.jsonl"),
    Row(f"{RUN}--resume {{d}}/tasks", "--output_path.*--resume"),
    # outputs
    *(Row(RUN.replace("{o}/run", f"{{o}}/run{end}"), f"--output_path.*{end}") for end in (".json", ".parquet", ".jsonl", ".csv")),
    *(Row(line.replace(place, "{d}/long.csv"), "is a file|no regular file|exists already|like a file") for line, place in ((RUN, "{o}/run"), (CAL, "{o}/b.parquet"), (INIT, "{o}/t"))),
    *(Row(line.replace(place, "{d}/long.csv/x"), "is a file") for line, place in ((RUN, "{o}/run"), (CAL, "{o}/b.parquet"), (INIT, "{o}/t"))),
    *(Row(line.replace(place, "{o}/" + "n" * 300), "too long") for line, place in ((RUN, "{o}/run"), (CAL, "{o}/b.parquet"), (INIT, "{o}/t"))),
    Row("report {d}/ranking.json --output {d}/long.csv/x", "is a file"),
    Row("report {d}/mine.bank.parquet --output {d}/long.csv/x", "is a file"),
    Row(f"{SIM}--json {{d}}/long.csv/x", "--json.*is a file"),
    Row(f"{SIM}--json {{d}}", "--json.*is a folder"),
    Row(CAL.replace("{o}/b.parquet", "{o}") + "--overwrite", "is a folder"),
    # report
    Row("report {o}", "holds neither"), Row("report {o}/nope", "no .*nope"),
    Row("report {d}/long.csv", "no readable ranking"), Row("report {d}/ranking.json --format pdf", "--format.*pdf"),
    Row("report {d}/mine.bank.parquet --format md --output {o}/x", "--format md is for runs"),
    # calibrate
    *(Row(f"{CAL}--range {text}", "--range") for text in ("x", "1", "5,5", "2,1", "nan,1", "0,inf", "1e400,2", "1,2,3")),
    Row(f"{CAL}--range 0.4,0.5", "outside the declared range"),
    Row(f"{CAL}--exclude_model nope", "nope"),
    Row(f"{CAL}--exclude_model m1 m2 m3 m4", "at least 3 models"),
    Row(f"{CAL}--allow everything", "--allow.*choose from"),
    Row(f"{CAL}--samples {{d}}", "one of them"),
    Row("calibrate --task t --metric m --output {o}/b.parquet", "--samples.*--scores"),
    Row("calibrate --scores {d}/long.csv --output {o}/b.parquet", "--task and --metric"),
    Row("calibrate --task t --metric m --samples {d}/none* --output {o}/b.parquet", "none"),
    Row("calibrate --task t --metric m --samples {d}/tasks --output {o}/b.parquet", "tasks|samples"),
    Row("calibrate", "required"), Row("simulate", "required"), Row("init-task", "required"), Row("bank", "required"),
    # simulate
    *(Row(f"{SIM}--{name} {text}", name.partition("_")[0]) for name in ("holdout", "calibration", "partitions", "items_per_model", "max_items", "round_size") for text in ("0", "-1", "x", "inf")),
    *(Row(f"{SIM}--seed {text}", "--seed") for text in ("-1", "x", "1.5")),
    *(Row(f"{SIM}--confidence {text}", "confidence") for text in ("0", "1", "-1", "nan", "x")),
    *(Row(f"{SIM}--costs {text}", "--costs") for text in ("m1", "m1=x", "m1=-1", "m1=nan", "m1=inf", "=1")),
    *(Row(f"{SIM}--clip {text}", "--clip|--range") for text in ("x", "nan,1", "1,0", "0,inf", "-1,-2")),
    Row(f"{SIM}--regime nowhere", "nowhere"), Row(f"{SIM}--methods magic", "magic"),
    Row(f"{SIM}--holdout_models nope", "nope"), Row(f"{SIM}--family nope --regime family", "nope"),
    Row(f"{SIM}--family prefix", "--family.*--regime"),
    # init-task
    *(Row(INIT.replace("init-task t", f"init-task {name}"), "task name") for name in ("a/b", "..", "é", "x" * 300)),
    *(Row(f"{INIT}--{name} nope", f"--{name}") for name in ("input", "target", "metric")),
    *(Row(f"{INIT}--{name} x", f"--{name}.*--dataset") for name in ("split", "dataset_name", "revision")),
    *(Row(f"{INIT}--max_gen_toks {text}", "--max_gen_toks") for text in ("0", "-1", "x", "inf")),
    Row(f"{INIT}--prompt {{{{", "--prompt is no Jinja2 template"),
    Row(f"{INIT}--prompt {{{{nope}}}}", "nope"),
    Row(f"{INIT}--prompt \ud83d", "lone surrogate"),
    Row(INIT.replace("docs.jsonl", "nope.jsonl"), "no such file"),
    Row(INIT.replace("{d}/docs.jsonl", "a//b"), "neither a file nor a name"),
]  # fmt: skip


def filled(words, good, output):
    places = {"{d}": str(good), "{o}": str(output)}
    return [re.sub(r"\{[do]\}", lambda at: places[at[0]], word) for word in words.split()]


@pytest.mark.parametrize("row", ROWS, ids=[f"{at}" for at in range(len(ROWS))])
def test_a_wrong_command_line_is_refused_in_one_line(good, tmp_path, row):
    output = tmp_path / "o"
    output.mkdir()
    before = bad_input.snapshot(good)
    answer = bad_input.attempt(filled(row.words, good, output))
    assert answer.faults() == [], row.words
    assert answer.code == 2, (row.words, answer.out[-300:], answer.err[-300:])
    assert re.search(row.said, answer.said[0]), answer.said[0]
    assert bad_input.snapshot(good) == before
    assert bad_input.snapshot(output) == {}


def test_the_table_is_as_long_as_promised():
    assert len(FILES) + len(ROWS) >= 250


def test_a_value_may_begin_with_a_minus(good, tmp_path):
    answer = bad_input.attempt(filled(f"{RUN}--range -1,1", good, tmp_path))
    assert (answer.code, answer.faults()) == (0, [])


def test_an_output_that_is_a_pipe_is_not_replaced(good, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    line = CAL.replace("{o}/b.parquet", str(pipe)) + "--overwrite"
    answer = bad_input.attempt(filled(line, good, tmp_path))
    assert answer.code == 2
    assert "no regular file" in answer.said[0]
    assert pipe.is_fifo()


def test_a_model_type_that_does_not_import_is_refused_before_anything_is_asked(
    good, tmp_path, monkeypatch
):
    def get_model(name):
        raise ModuleNotFoundError("No module named 'torch'")

    monkeypatch.setattr("lm_eval.api.registry.get_model", get_model)
    answer = bad_input.attempt(filled(RUN.replace("dummy", "hf"), good, tmp_path))
    assert (answer.faults(), answer.code) == ([], 2)
    assert "model a" in answer.said[0]
    assert (
        "'hf' does not import here: ModuleNotFoundError: No module named 'torch'" in answer.said[0]
    )
