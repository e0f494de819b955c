"""The HTML report: what stands on the page, that answers stay text, that the page needs nothing."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from dataclasses import asdict, replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec import convert, structs

from lm_eval_adaptive.core.bank import ItemBank
from lm_eval_adaptive.core.bank_info import BankInfo, CalibrationModel
from lm_eval_adaptive.core.response import ItemParameters, expected_score
from lm_eval_adaptive.core.scale import ScoreScale
from lm_eval_adaptive.errors import DataError, UsageError
from lm_eval_adaptive.host.settings import CandidateSpec
from lm_eval_adaptive.records.journal import (
    AnswerRecord,
    AskRecord,
    EndRecord,
    FailedRecord,
    Header,
    RoundRecord,
    RunHead,
    TaskHead,
    as_data,
    read_journal,
)
from lm_eval_adaptive.records.ranking import ranking_from
from lm_eval_adaptive.report.run_page import render_report
from lm_eval_adaptive.report.write import write_report as write_report_of
from lm_eval_adaptive.run.config import AdaptiveConfig
from lm_eval_adaptive.run.journal import Journal, plain
from lm_eval_adaptive.run.ranking import ranking_document, versions
from lm_eval_adaptive.run.standing import contest_of_journal, standings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOSTILE = "<script>alert(1)</script></script><img src=x onerror=alert(2)></pre><!--"
# Marks of direction, a byte order mark, control characters.
UNSEEN = "\u202e\u202b\u2067\u2069\u200f\u061c\ufeff\x00\x1b\x85"
SECTIONS = ("ranking", "pairs", "curves", "items", "cost", "warnings", "documents", "repeat")
VOID = {"meta", "br", "img", "link", "input", "hr"}
TASK = "made_up"


def write_report(source: Path, output: Path | None = None, form: str = "html") -> Path:
    """The report as the command writes it."""
    return write_report_of(source, output, form, standings)


def make_bank(items: int, *, higher: bool = True, seed: int = 0) -> ItemBank:
    rng = np.random.default_rng(seed)
    parameters = ItemParameters(
        "robust-2pl",
        rng.normal(0.0, 1.2, items),
        rng.uniform(0.5, 1.5, items),
        rng.uniform(0.1, 0.25, items),
        np.zeros((items, 2, 2)),
    )
    info = BankInfo(
        TASK,
        "quality" if higher else "errors",
        "none",
        ScoreScale(0.0, 50.0, higher_is_better=higher),
        "declared",
        "robust-2pl",
        {"prior_mean": 0.0, "prior_sd": 1.0},
        tuple(CalibrationModel(f"old{k}", 0.0, 0.5, 25.0, items) for k in range(4)),
    )
    names = tuple(f"{k:064x}" for k in range(items))
    empty = tuple("" for _ in range(items))
    nothing = np.full(items, np.nan)
    return ItemBank(
        info,
        parameters,
        names,
        np.arange(items),
        empty,
        empty,
        np.ones(items, dtype=bool),
        empty,
        np.full(items, 4),
        np.full(items, 0.5),
        rng.uniform(0.1, 0.8, items),
        nothing,
        nothing,
        np.full((4, items), 0.5),
    )


def make_run(
    folder: Path,
    *,
    models: int = 3,
    items: int = 40,
    each: int = 12,
    higher: bool = True,
    answer: str = "an answer",
    finished: bool = True,
    journal: bool = True,
    excluded: tuple[int, ...] = (),
    keep_bank: bool = True,
    name: str = "org/model-{}",
) -> dict[str, Any]:
    """The folder of a run, made by the core and the writers of the harness layer."""
    rng = np.random.default_rng(1)
    folder.mkdir(parents=True, exist_ok=True)
    bank_path = make_bank(items, higher=higher).save(folder / "bank.parquet")
    bank = ItemBank.load(bank_path)
    scale = bank.info.scale
    adaptive = AdaptiveConfig(items_per_model=each)
    specs = [CandidateSpec(name.format(k), "dummy") for k in range(models)]
    mean = expected_score(np.linspace(1.0, -1.0, models), bank.parameters)
    signature = f"task:{TASK}|metric:{bank.info.metric}|filter:none"
    head = TaskHead(signature=signature, bank_sha256=bank.sha256, documents=items)
    config = RunHead(
        tasks={TASK: head},
        models=plain({spec.name: asdict(spec) for spec in specs}),
        adaptive=plain(adaptive.choices()),
        settings={},
        versions=versions(),
    )
    command = ("run", "--adaptive", "--model_args", "api_key=hunter2,base=x", "--tasks", TASK)
    # What is left out was asked before.
    asked = np.sort(np.union1d(excluded, rng.permutation(items)[: each - len(excluded)]))
    asked = tuple(asked.astype(int).tolist())

    def answered(row: int, item: int) -> AnswerRecord:
        score: float | None = float(np.clip(rng.normal(mean[row, item], 0.15), 0.0, 1.0))
        raw: float | None = float(scale.to_raw(score))
        problem = ""
        if item in excluded:  # for every model: the document is bad
            score, raw, problem = None, None, "metric failed: <b>bad</b>"
        return AnswerRecord(
            task=TASK,
            round=1,
            model=specs[row].name,
            doc_id=item,
            prompt_hash=f"p{item}",
            resps=(answer,),
            filtered={"none": answer},
            metrics={"none": {bank.info.metric: raw}},
            raw_score=raw,
            score=score,
            clipped=False,
            problem=problem,
            input_tokens=100,
            output_tokens=len(answer) / 4,
            tokens_counted=False,
            cost=1.0,
        )

    records = [answered(row, item) for row in range(models) for item in asked]
    with Journal(folder / "journal.jsonl") as log:
        log.write(Header(config=config, command=command))
        asks = tuple(AskRecord(model=spec.name, doc_ids=asked) for spec in specs)
        log.write(RoundRecord(task=TASK, round=1, asks=asks))
        for record in records:
            log.write(record)
        if finished:
            log.write(EndRecord(task=TASK, stop_reason="fixed_length"))
    contest = contest_of_journal(bank, read_journal(folder / "journal.jsonl"), TASK)
    contest.replay(records, "fixed_length")
    document = structs.replace(ranking_document(contest), warnings=("a warning <b>",)).plain()
    answers = [as_data(record) for record in records]
    document["date"] = "2026-01-02T03-04-05.000000"
    if finished:
        path = folder / f"ranking_{TASK}_{document['date']}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        write_samples(folder, specs, answers, answer)
    if not journal:
        (folder / "journal.jsonl").unlink()
    if not keep_bank:
        bank_path.unlink()
    return {"document": document, "answers": answers, "bank": bank}


def write_samples(folder: Path, specs: Any, answers: Any, answer: str) -> None:
    for spec in specs:
        path = folder / spec.name.replace("/", "__")
        path.mkdir()
        with (path / f"samples_{TASK}_2026-01-02T03-04-04.000000.jsonl").open("w") as file:
            for record in answers:
                if record["model"] != spec.name:
                    continue
                prompt = f"Instruction. Question {record['doc_id']} {HOSTILE}"
                sample = {
                    "doc_id": record["doc_id"],
                    "doc": {"q": "…"},
                    "target": f"the target of {record['doc_id']}",
                    "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {"until": ["\n"]}}},
                    "resps": [[answer]],
                    "filter": "none",
                }
                file.write(json.dumps(sample) + "\n")


def answers_of(data: list[dict[str, Any]]) -> list[AnswerRecord]:
    return [convert({**each, "type": "answer"}, AnswerRecord) for each in data]


class Page(HTMLParser):
    """Tags with their attributes and text, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.stray: list[str] = []
        self.comments: list[str] = []
        self.text: list[str] = []
        self.code: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()
        else:
            self.stray.append(tag)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_data(self, data: str) -> None:
        inside = self.open and self.open[-1] in ("script", "style")
        (self.code if inside else self.text).append(data)

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())

    def ids(self) -> set[str | None]:
        return {attrs["id"] for _, attrs in self.tags if "id" in attrs}

    def plots(self) -> set[str | None]:
        return {attrs["data-plot"] for _, attrs in self.tags if "data-plot" in attrs}


def harm(text: str) -> list[str]:
    """Everything on a page that could run code or reach for something outside."""
    page = Page(text)
    found = [f"comment {each}" for each in page.comments]
    found += [f"not closed {each}" for each in page.open]
    found += [f"not opened {each}" for each in page.stray]
    scripts = [attrs for tag, attrs in page.tags if tag == "script"]
    if len(scripts) != 1 or scripts[0]:
        found.append(f"scripts {scripts}")
    for tag, attrs in page.tags:
        if tag in ("img", "iframe", "object", "embed", "link", "base", "form", "foreignobject"):
            found.append(f"tag {tag}")
        for key, value in attrs.items():
            outside = key in ("src", "href", "xlink:href", "srcset", "action", "data")
            if key.startswith("on") or (outside and not (value or "").startswith("#")):
                found.append(f"{tag} {key}={value}")
    code = "".join(page.code)
    found += re.findall(r"url\(|@import|https?:|\bfetch\b|import\(|XMLHttpRequest", code)
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("finished")
    made = make_run(folder, answer=HOSTILE, excluded=())
    return write_report(folder), made


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    long = HOSTILE + " a long answer <&> of many words" * 100
    make_run(
        folder, models=12, items=800, each=400, answer=long, name="organisation/a-long-name-{}-70B"
    )
    return write_report(folder)


def test_the_page_of_a_finished_run_holds_every_part(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    path, made = finished
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == page.stray == []
    assert {f"t1-{name}" for name in SECTIONS} <= page.ids()
    assert page.plots() == {"forest", "matrix", "curves", "items", "money"}
    first = made["document"]["ranking"][0]
    assert f"{first['score']:.4g}" in page.words
    assert made["document"]["signature"] in page.words
    assert "lm-eval-adaptive run --adaptive" in page.words
    assert "a warning <b>" in page.words
    assert "Unfinished" not in page.words
    assert "the target of" in page.words
    assert [tag for tag, _ in page.tags].count("table") >= 5  # one to each picture


def test_the_curves_end_at_the_rankings_own_numbers(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    path, made = finished
    words = Page(path.read_text(encoding="utf-8")).words
    for entry in made["document"]["ranking"]:
        low, high = entry["score_ci"]
        assert f"{entry['score']:.4g} ({low:.4g} to {high:.4g}) after 12 items" in words
    assert "estimated quality (line)" in words


def test_without_recorded_estimates_the_abilities_are_drawn(tmp_path: Path) -> None:
    made = make_run(tmp_path)
    for step in made["document"]["trace"]:
        del step["estimate"]
    text = render_report(
        ranking_from(made["document"]), bank=made["bank"], answers=answers_of(made["answers"])
    )
    assert "ability in logits (line)" in Page(text).words


def test_answers_stay_text(finished: tuple[Path, dict[str, Any]]) -> None:
    text = finished[0].read_text(encoding="utf-8")
    assert harm(text) == []
    assert HOSTILE in "".join(Page(text).text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


@pytest.mark.parametrize("where", ["an answer", "a warning", "model-0"])
def test_the_test_for_harm_sees_text_that_is_not_escaped(tmp_path: Path, where: str) -> None:
    made = make_run(tmp_path)
    text = render_report(
        ranking_from(made["document"]), bank=made["bank"], answers=answers_of(made["answers"])
    )
    assert harm(text) == []
    assert where in text
    assert harm(text.replace(where, HOSTILE, 1)) != []


def test_every_text_of_a_run_is_escaped(tmp_path: Path) -> None:
    made = make_run(tmp_path, answer=HOSTILE, excluded=(3,))
    evil = HOSTILE + "\"' onload=alert(3) " + UNSEEN
    evil += "<a href=javascript:alert(4)></style><style>*{display:none}</style>"

    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: poison(each) for key, each in value.items()}
        if isinstance(value, list):
            return [poison(each) for each in value]
        keep = ("a", "b", "decided", "undecided", "equivalent", "none")
        return evil + value if isinstance(value, str) and value not in keep else value

    document = poison(made["document"])
    answers = answers_of(poison(made["answers"]))
    samples = {
        evil + spec["name"]: {
            doc: {"arguments": [[evil]], "target": {evil: [evil]}, "resps": [[evil]]}
            for doc in range(40)
        }
        for spec in made["document"]["config"]["models"]
    }
    text = render_report(
        ranking_from(document), bank=made["bank"], answers=answers, samples=samples, command=evil
    )
    assert harm(text) == []
    assert text.count("onload=alert(3)") > 100
    assert [tag for tag, _ in Page(text).tags].count("style") == 1
    assert not set(UNSEEN) & set(text)
    named = "".join(f"[U+{ord(each):04X}]" for each in UNSEEN)
    assert text.count(named) > 100


def test_only_the_pages_own_script_and_style_may_be_used(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    import hashlib

    text = finished[0].read_text(encoding="utf-8")

    def digest(tag: str) -> str:
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        return base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()

    page = Page(text)
    (policy,) = [
        attrs["content"]
        for tag, attrs in page.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"  # no connection, image, font, frame …
    assert rules["script-src"] == f"'sha256-{digest('script')}'"
    assert rules["style-src-elem"] == f"'sha256-{digest('style')}'"
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    allowed = {source for sources in rules.values() for source in sources.split()}
    assert not [each for each in allowed if each[0] != "'"], "nothing outside, and no data: URL"


def test_secrets_of_the_command_line_are_not_passed_on(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    text = finished[0].read_text(encoding="utf-8")
    assert "hunter2" not in text
    assert "api_key=[hidden:API_KEY],base=x" in text


def test_a_page_of_12_models_and_800_documents_is_small(large: Path) -> None:
    assert large.stat().st_size < 5_000_000
    page = Page(large.read_text(encoding="utf-8"))
    assert page.open == page.stray == []
    assert harm(large.read_text(encoding="utf-8")) == []
    assert sum(attrs.get("class") == "asked" for _, attrs in page.tags) == 400


def test_what_grows_with_the_square_of_many_models_is_kept_short(tmp_path: Path) -> None:
    """Of 90 models, every pair has its cell and every model its line, and no more."""
    make_run(tmp_path, models=90, items=60, each=20)
    page = write_report(tmp_path).read_text(encoding="utf-8")
    assert len(page) < 2_000_000
    section = page[page.index('id="t1-pairs"') : page.index('id="t1-curves"')]
    assert section.count("<td class=") == 90 * 90
    assert len(section) < 60 * 90 * 90
    curves = page[page.index('id="t1-curves"') : page.index('id="t1-items"')]
    assert curves.count('class="other"') == 90
    assert curves.count('class="line"') == 90


@pytest.mark.parametrize("cut", [0, 30])
def test_a_run_that_goes_on_is_shown_and_left_alone(tmp_path: Path, cut: int) -> None:
    make_run(tmp_path, finished=False)
    journal = tmp_path / "journal.jsonl"
    if cut:
        journal.write_bytes(journal.read_bytes()[:-cut])
    before = journal.read_bytes()
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert journal.read_bytes() == before
    assert "Unfinished: this run is going on or was interrupted" in page.words
    assert f"{36 - bool(cut)} items asked" in page.words
    assert {"t1-ranking", "t1-curves", "t1-items", "t1-documents"} <= page.ids()
    assert "(stopped: not yet)" in page.words


def test_an_unfinished_run_gives_the_finished_ones_numbers(tmp_path: Path) -> None:
    made = make_run(tmp_path, finished=False, excluded=(5, 7))
    words = Page(write_report(tmp_path).read_text(encoding="utf-8")).words
    for entry in made["document"]["ranking"]:
        low, high = entry["score_ci"]
        assert f"{entry['score']:.4g} {low:.4g} – {high:.4g}" in words


def test_without_its_bank_an_unfinished_run_shows_answers_and_a_caveat(tmp_path: Path) -> None:
    make_run(tmp_path, finished=False, keep_bank=False)
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "they are biased" in page.words
    assert "was not found" in page.words
    assert page.plots() == set()
    assert "an answer" in page.words


def test_estimates_are_not_made_with_document_ids_of_another_bank(tmp_path: Path) -> None:
    make_run(tmp_path, finished=False)
    bank = ItemBank.load(tmp_path / "bank.parquet")
    # The same prompts, one place further on: the data set has moved since calibration.
    moved = replace(bank, prompt_hash=tuple(f"p{item - 1}" for item in range(len(bank))))
    moved.save(tmp_path / "bank.parquet")
    sha = ItemBank.load(tmp_path / "bank.parquet").sha256
    journal = tmp_path / "journal.jsonl"
    journal.write_text(journal.read_text().replace(bank.sha256, sha))
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "documents' ids are not those of the bank" in page.words
    assert "they are biased" in page.words


def test_without_a_journal_the_ranking_alone_is_shown(tmp_path: Path) -> None:
    make_run(tmp_path, journal=False)
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert page.plots() == {"forest", "matrix", "curves", "items", "money"}
    assert "journal was not found" in page.words
    assert "an answer" in page.words  # from the samples


def test_excluded_documents_are_named_with_the_reason(tmp_path: Path) -> None:
    made = make_run(tmp_path, excluded=(5,))
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "metric failed: <b>bad</b>" in page.words
    entry = made["document"]["ranking"][0]
    assert f"{entry['score']:.4g}" in page.words


def test_a_model_that_was_set_aside_is_named_and_not_ranked(tmp_path: Path) -> None:
    made = make_run(tmp_path)
    document = made["document"]
    lost = document["ranking"].pop()
    document["set_aside"] = [{**lost, "reason": "out of memory <b>"}]
    for entry in document["ranking"]:  # as a run leaves it: nobody ties with it any more
        entry["tied_with"] = [name for name in entry["tied_with"] if name != lost["model"]]
    text = render_report(
        ranking_from(document), bank=made["bank"], answers=answers_of(made["answers"])
    )
    page = Page(text)
    assert "Models set aside, not in the ranking" in page.words
    assert "out of memory <b>" in page.words
    forest = text[text.index('data-plot="forest"') : text.index("</ol>")]
    assert lost["model"] not in forest
    assert document["ranking"][0]["model"] in forest
    money = text[text.index('data-plot="money"') :]
    assert lost["model"] in money[: money.index("</ol>")]  # its answers were paid for


def test_the_page_says_which_models_lie_beyond_the_banks_own(tmp_path: Path) -> None:
    made = make_run(tmp_path)
    document = made["document"]
    within = "within the range of the 17 calibration models"
    places = ("above all 17 calibration models", within, within)
    for entry, lies in zip(document["ranking"], places, strict=True):
        entry["lies"] = lies
    text = render_report(
        ranking_from(document), bank=made["bank"], answers=answers_of(made["answers"])
    )
    forest, _, listing = text[text.index('data-plot="forest"') :].partition("</ol>")
    first, *others = forest.split("</li>")
    assert "above all 17 calibration models, errors widened" in first
    assert not any("errors widened" in other for other in others)
    assert within not in forest
    assert listing.count(within) == 2  # the table has all of them
    for entry in document["ranking"]:  # as without a bank
        entry["lies"] = ""
    text = render_report(ranking_from(document), bank=None, answers=[])
    assert ">lies<" not in text


def test_the_journal_alone_names_what_failed(tmp_path: Path) -> None:
    make_run(tmp_path, finished=False, keep_bank=False, excluded=(4,))
    with Journal(tmp_path / "journal.jsonl") as log:
        log.write(FailedRecord(task=TASK, model="org/model-2", reason="out of memory"))
    words = Page(write_report(tmp_path).read_text(encoding="utf-8")).words
    assert "org/model-0: metric failed: <b>bad</b>" in words
    assert "org/model-212out of memory" in words  # model, items asked, why


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    make_run(tmp_path, finished=False)
    journal = tmp_path / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    for kept in (1, 2, 3):
        journal.write_bytes(b"".join(lines[:kept]))
        words = Page(write_report(tmp_path).read_text(encoding="utf-8")).words
        assert f"{max(kept - 2, 0)} items asked" in words
        assert "Unfinished" in words


def test_the_map_of_a_paper_1pl_bank_shows_correlations(tmp_path: Path) -> None:
    made = make_run(tmp_path)
    bank = made["bank"]
    same = np.full(len(bank), 2.0)
    paper = replace(
        bank,
        info=replace(
            bank.info,
            response_model="paper-1pl",
            parameters={
                "prior_mean": 0.0,
                "prior_sd": 5.0,
                "score_intercept": 0.0,
                "score_slope": 1.0,
                "score_sd": 0.0,
            },
        ),
        parameters=replace(
            bank.parameters, model="paper-1pl", discrimination=same, noise=1 / same**2
        ),
        item_rest_correlation=np.where(bank.doc_id == 0, np.nan, bank.item_rest_correlation),
    )
    text = render_report(
        ranking_from(made["document"]), bank=paper, answers=answers_of(made["answers"])
    )
    assert "upwards: correlation with the rest of the test" in Page(text).words
    assert harm(text) == []


def test_one_model_has_no_matrix(tmp_path: Path) -> None:
    make_run(tmp_path, models=1)
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert page.plots() == {"forest", "curves", "items", "money"}
    assert "1 model," in page.words


def test_lower_is_better_is_said_and_the_best_stands_first(tmp_path: Path) -> None:
    made = make_run(tmp_path, higher=False)
    scores = [entry["score"] for entry in made["document"]["ranking"]]
    assert scores == sorted(scores)
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert "errors, lower is better" in page.words
    places = [page.words.index(f"{place} org/model-{place - 1}") for place in (1, 2, 3)]
    assert places == sorted(places)


def test_two_tasks_share_a_page(tmp_path: Path) -> None:
    made = make_run(tmp_path)
    document = {**made["document"], "task": "second"}
    path = tmp_path / "ranking_second_2026-01-02T03-04-06.000000.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    page = Page(write_report(tmp_path).read_text(encoding="utf-8"))
    assert {"t1-top", "t2-top"} <= page.ids()
    identities = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(identities) == len(set(identities))


def test_a_ranking_file_finds_the_journal_of_its_own_run(tmp_path: Path) -> None:
    made = make_run(tmp_path, answer="of the first run")
    (tmp_path / "journal.jsonl").rename(tmp_path / "journal_1.jsonl")
    again = tmp_path / "again"
    make_run(again, models=2, each=10, finished=False, answer="of the second run")
    (again / "journal.jsonl").rename(tmp_path / "journal.jsonl")
    ranking = tmp_path / f"ranking_{TASK}_{made['document']['date']}.json"
    output = write_report(ranking, tmp_path / "one.html")
    text = output.read_text(encoding="utf-8")
    assert "of the first run" in text
    assert "of the second run" not in text
    both = write_report(tmp_path).read_text(encoding="utf-8")
    assert "of the second run" in both  # the folder's current run is the unfinished one
    assert "Unfinished" in both


def test_a_lone_surrogate_in_an_answer_can_be_written(tmp_path: Path) -> None:
    made = make_run(tmp_path)
    for record in made["answers"]:
        record["resps"] = ["half a pair \ud83d"]
    journal = tmp_path / "journal.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    for line in lines:
        if line["type"] == "answer":
            line["resps"] = ["half a pair \ud83d"]
    journal.write_text("\n".join(map(json.dumps, lines)) + "\n")
    assert "half a pair ?" in write_report(tmp_path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (None, UsageError, "holds neither"),
        ("{", DataError, "no readable ranking"),
        ("{}", DataError, "no ranking file"),
        ('{"schema": 9, "task": "t", "ranking": []}', DataError, "schema 9"),
    ],
)
def test_what_is_no_run_is_refused_in_one_line(
    tmp_path: Path, content: str | None, error: type[Exception], says: str
) -> None:
    if content is not None:
        (tmp_path / "ranking_t_1.json").write_text(content)
    with pytest.raises(error, match=says) as caught:
        write_report(tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()
    with pytest.raises(UsageError, match=r"no .*nowhere"):
        write_report(tmp_path / "nowhere")


def test_the_markdown_form_holds_the_table(tmp_path: Path) -> None:
    made = make_run(tmp_path, name="or|g/model_{}_`x`")
    path = write_report(tmp_path, form="md")
    assert path.name == "report.md"
    text = path.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3
    for row, entry in zip(rows[2:], made["document"]["ranking"], strict=True):
        assert len(re.findall(r"(?<!\\)\|", row)) == 8
        assert f"| {entry['score']:.4g} |" in row
        assert "`or\\|g/model_" in row
    assert made["document"]["signature"] in text
    assert "- `a warning <b>`" in text


def test_the_csv_form_reads_back(tmp_path: Path) -> None:
    import csv

    made = make_run(tmp_path, name='a "quoted", name {}')
    path = write_report(tmp_path, tmp_path / "out.csv", form="csv")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == [
        entry["model"] for entry in made["document"]["ranking"]
    ]
    assert [float(row["score"]) for row in rows] == [
        entry["score"] for entry in made["document"]["ranking"]
    ]
    assert {row["finished"] for row in rows} == {"True"}


def test_an_unknown_form_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path)
    with pytest.raises(UsageError, match=r"one of html, md, csv, png; got 'pdf'"):
        write_report(tmp_path, form="pdf")
    with pytest.raises(UsageError, match="is for runs"):
        write_report(tmp_path / "bank.parquet", form="md")


@pytest.fixture(scope="module")
def bank_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bank")
    bank = make_bank(60)
    kept = np.arange(60) % 10 > 0
    models = tuple(
        CalibrationModel(f"{HOSTILE}{k}", k - 1.5, 0.4 + 0.1 * k, 20.0 + k, 60) for k in range(4)
    )
    bank = replace(
        bank,
        kept=kept,
        reason=tuple("" if each else "constant <b>" for each in kept),
        info=replace(bank.info, models=models, notices=(HOSTILE,), licence=HOSTILE),
    )
    return write_report(bank.save(folder / "my.bank.parquet"))


def test_the_page_of_a_bank_holds_every_part(bank_page: Path) -> None:
    assert bank_page.name == "my.bank.html"
    text = bank_page.read_text(encoding="utf-8")
    page = Page(text)
    assert page.plots() == {"difficulty", "information", "reliability"}
    assert harm(text) == []
    assert "54 of them may be asked" in page.words
    assert "constant <b>" in page.words
    places = [page.words.rindex(f"{HOSTILE}{k}") for k in (3, 2, 1, 0)]
    assert places == sorted(places)


# ------------------------------------------------------------------------------- in a real browser

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


class Browser:
    """Headless Chromium over its debugging pipe: JSON ended by NUL on descriptors 3 and 4."""

    def __init__(self, profile: Path) -> None:
        read, self._down = os.pipe()
        self._up, write = os.pipe()
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "-", str(CHROMIUM), *flags],
            pass_fds=(read, write),
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._count, self._left = 0, b""
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            chunk = os.read(self._up, 65536)
            assert chunk, "the browser is gone"
            self._left += chunk
        message, _, self._left = self._left.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._down, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._count:
                assert "error" not in reply, reply
                return dict(reply["result"])
            self.events.append(reply)

    def js(self, code: str) -> Any:
        found = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        return found["result"].get("value")

    def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events = []
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def complaints(self) -> list[Any]:
        wrong = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        wrong += ("Page.javascriptDialogOpening",)
        return [event for event in self.events if event.get("method") in wrong]

    def close(self) -> None:
        os.write(self._down, b'{"id":0,"method":"Browser.close"}\0')
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        os.close(self._down)
        os.close(self._up)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@in_browser
@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("which", ["finished", "large", "unfinished"])
def test_a_browser_draws_the_page(
    browser: Browser,
    finished: tuple[Path, dict[str, Any]],
    large: Path,
    tmp_path: Path,
    which: str,
    width: int,
) -> None:
    path = {"finished": finished[0], "large": large}.get(which)
    if path is None:
        make_run(tmp_path, finished=False, answer=HOSTILE)
        path = write_report(tmp_path)
    browser.open(path, width)
    assert browser.complaints() == []
    assert browser.js("document.documentElement.dataset.ready") == "1"
    assert browser.js("document.documentElement.dataset.errors") == "0"
    assert browser.js("document.documentElement.dataset.blocked") is None
    assert browser.js("document.documentElement.clientWidth") <= width
    browser.js("document.querySelectorAll('details').forEach(each => each.open = true)")
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.js(overflow) == 0
    drawn = browser.js(
        "[...document.querySelectorAll('[data-plot]')].map(each => each.dataset.plot + ' ' +"
        "(each.getBoundingClientRect().height > 60))"
    )
    assert drawn == [f"{name} true" for name in ("forest", "matrix", "curves", "items", "money")]
    # Every line of a curve has a length, every asked item a place inside its frame.
    assert browser.js(
        "[...document.querySelectorAll('.defs path')].every(each => each.getTotalLength() > 0)"
    )
    assert browser.js(
        "[...document.querySelectorAll('.asked')].every(each => {"
        "const dot = each.getBoundingClientRect(), box = each.ownerSVGElement"
        ".getBoundingClientRect(); return dot.left > box.left - 8 && dot.right < box.right + 8"
        " && dot.top > box.top - 8 && dot.bottom < box.bottom + 8})"
    )


@in_browser
def test_hovering_shows_the_document(browser: Browser, finished: tuple[Path, Any]) -> None:
    browser.open(finished[0], 1200)
    # Scrolling hides the tooltip when its event arrives, a frame later.
    browser.js(
        "[...document.querySelectorAll('.asked')].pop().scrollIntoView({block: 'center'});"
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    box = browser.js(
        "(b => [b.left + b.width / 2, b.top + b.height / 2])"
        "([...document.querySelectorAll('.asked')].pop().getBoundingClientRect())"
    )
    assert browser.js("document.getElementById('tip').hidden")
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    assert not browser.js("document.getElementById('tip').hidden")
    tip = browser.js("document.getElementById('tip').textContent")
    assert tip.startswith("doc ")
    assert "difficulty" in tip
    assert "org/model-0" in tip
    assert "<script>alert(1)</script>" in tip
    assert browser.js("document.querySelectorAll('#tip *').length") == 0


@in_browser
def test_a_page_in_the_dark_is_dark(browser: Browser, finished: tuple[Path, Any]) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    browser.open(finished[0], 1200)
    assert browser.js(background) == "rgb(255, 255, 255)"
    browser.open(finished[0], 1200, dark=True)
    assert browser.js(background) == "rgb(20, 23, 27)"


@in_browser
@pytest.mark.parametrize(
    "evil",
    [
        "<script>document.title = 'ran'</script>",
        "<p onclick=\"document.title = 'ran'\" id=evil>",
        "<a href=\"javascript:document.title = 'ran'\" id=evil>",
        "<style>body{background:rgb(1,2,3) !important}</style>",
        "<img src=http://127.0.0.1:9/x.png onerror=\"document.title = 'ran'\">",
    ],
)
def test_the_policy_stops_what_got_through(
    browser: Browser, finished: tuple[Path, Any], tmp_path: Path, evil: str
) -> None:
    """A negative control of the browser's tests: unescaped text is noticed, and does nothing."""
    text = finished[0].read_text(encoding="utf-8")
    path = tmp_path / "broken.html"
    path.write_text(text.replace("<main>", f"<main>{evil}", 1), encoding="utf-8")
    browser.open(path, 1200)
    browser.js("document.getElementById('evil') && document.getElementById('evil').click()")
    assert browser.js("new Promise(done => setTimeout(() => done(document.title), 50))") != "ran"
    assert browser.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.complaints() != []


@in_browser
@pytest.mark.parametrize("width", [1200, 390])
def test_a_browser_draws_a_banks_page(browser: Browser, bank_page: Path, width: int) -> None:
    browser.open(bank_page, width)
    assert browser.complaints() == []
    assert browser.js("document.documentElement.dataset.ready") == "1"
    browser.js("document.querySelectorAll('details').forEach(each => each.open = true)")
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.js(overflow) == 0
    assert browser.js(
        "[...document.querySelectorAll('path.line')].every(each => each.getTotalLength() > 100)"
    )
    assert browser.js("document.querySelectorAll('path.line').length") == 3


def test_the_ranking_as_a_picture(tmp_path: Path) -> None:
    import struct

    pytest.importorskip("matplotlib")
    made = make_run(tmp_path, name="org/$model_{}$")
    (tmp_path / "ranking_t_2026.json").write_text(json.dumps(made["document"]), encoding="utf-8")
    written = write_report(tmp_path, form="png")
    head = written.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    assert (width > 1200, height > 300) == (True, True)


def test_a_picture_of_no_ranking_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, finished=False, keep_bank=False)
    with pytest.raises(UsageError, match="has none yet"):
        write_report(tmp_path, form="png")
