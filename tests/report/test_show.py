"""What a person sees: the live table and the plain lines of a run, and what stands at its end."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from itertools import combinations

import pytest
from rich.console import Console

from lm_eval_adaptive.banks.calibrate import calibrate_from
from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.errors import ModelError
from lm_eval_adaptive.host.settings import HarnessSettings, make_candidates
from lm_eval_adaptive.records.outcome import RunOutcome, TaskOutcome
from lm_eval_adaptive.records.ranking import ranking_from
from lm_eval_adaptive.report.live import Clock, Progress
from lm_eval_adaptive.report.live_table import live_table, plain_line, status
from lm_eval_adaptive.report.show import harness_table, show_outcome
from lm_eval_adaptive.report.snapshot import ModelLine, Picture
from lm_eval_adaptive.report.texts import short_names
from lm_eval_adaptive.report.words import expected_wrong, groups_of, possible_ranks, sentence
from lm_eval_adaptive.run.config import AdaptiveConfig
from lm_eval_adaptive.run.loop import AdaptiveRun
from tests.support import toy

HOSTILE = "[red]x\x1b[2J:fire:\n|y"
CLEAN = "[red]x�[2J:fire:�|y"


def screen(width=80, height=40, **options):
    """A terminal that keeps what it was sent, and shows it as text."""
    return Console(
        file=io.StringIO(), width=width, height=height, force_terminal=True, markup=False,
        highlight=False, emoji=False, color_system=None, legacy_windows=False, **options,
    )  # fmt: skip


def drawn(picture, width, rows=1000):
    console = screen(width)
    console.print(live_table(picture, width, rows))
    return console.file.getvalue()


def picture(names=("org/alpha", "org/beta", "org/gamma"), **changes):
    lines = tuple(
        ModelLine(name, 0.8 - 0.1 * k, 0.02, 0.76 - 0.1 * k, 0.84 - 0.1 * k, 46 - k, 46.0, "asking")
        for k, name in enumerate(names)
    )
    found = Picture(
        title="task: rougeL ↑", lines=lines, bank_items=400, priced=False, asked=135, full=1200,
        decided=1, required=2, given_up=0, hardest=names[:2], items_left=120, seconds_left=61.0,
        stop_reason="",
    )  # fmt: skip
    return replace(found, **changes)


def made_ranking(*args, **changes):
    """A ranking document, see :func:`made_data`."""
    return ranking_from(made_data(*args, **changes))


def made_data(count, undecided=(), equivalent=(), **changes):
    """The data of a ranking document of models m1 … in that order; pairs are named by their places."""
    names = [f"m{place}" for place in range(1, count + 1)]
    pairs, tied = [], {name: [] for name in names}
    for a, b in combinations(range(1, count + 1), 2):
        verdict = "a"
        for kind, places in (("undecided", undecided), ("equivalent", equivalent)):
            if (a, b) in places:
                verdict = kind
                tied[f"m{a}"].append(f"m{b}")
                tied[f"m{b}"].append(f"m{a}")
        p = 0.99 if verdict == "a" else 0.7
        pairs.append(
            {
                "a": f"m{a}",
                "b": f"m{b}",
                "p_a_better": p,
                "verdict": verdict,
                "required": b == a + 1,
            }
        )
    ranking = {
        "task": "task", "metric": "rougeL", "filter": "none", "higher_is_better": True,
        "config": {"adaptive": {"confidence": 0.95, "correction": "none"}},
        "ranking": [
            {
                "rank": place, "model": name, "score": 0.9 - 0.01 * place, "score_se": 0.02,
                "score_ci": [0.86 - 0.01 * place, 0.94 - 0.01 * place], "items": 46, "cost": 46.0,
                "tied_with": tied[name],
            }
            for place, name in enumerate(names, 1)
        ],
        "set_aside": [], "pairs": pairs, "stop_reason": "decided", "items_total": 46 * count,
        "items_full": 1500 * count, "fraction": 46 / 1500, "cost_total": 46.0 * count,
        "cost_full": 1500.0 * count, "warnings": [], "signature": "task:task|metric:rougeL",
    }  # fmt: skip
    return {**ranking, **changes}


def as_file(ranking, tmp_path):
    path = tmp_path / "ranking_task.json"
    path.write_text("{}")
    results = {name: {"versions": {"task": 1.0}, "n-shot": {"task": 5}} for name in ranking.names}
    return RunOutcome(tmp_path, {"task": TaskOutcome(ranking, results, [path])})


def run_toys(bank, folder, progress, models=None, **adaptive):
    """A run of toy models that a person watches."""
    candidates = make_candidates(models or toy.models(), "test")
    settings = HarnessSettings(tasks=(toy.TASK,), output_path=str(folder))
    rules = {"min_items": 4, "confidence": 0.999, "round_size": 2, **adaptive}
    rules = AdaptiveConfig(bank=bank, **rules)
    with progress:
        return AdaptiveRun(candidates, settings, rules, listener=progress).run()


# --- while it goes on ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 160])
def test_the_live_table_fits_the_screen_and_tells_what_is_asked(width):
    names = ("meta-llama/Meta-Llama-3-70B-Instruct", "mistralai/Mistral-7B-v0.3", "org/tiny")
    text = drawn(picture(names), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    first = next(line for line in lines if line.lstrip().startswith("1 "))
    assert "70B-Instruct" in first or "…" in first
    for word in ("0.800 ± 0.020", "46", "12 %"):
        assert word in first
    assert "1 of 2 pairs decided" in text
    flat = " ".join(text.split())
    assert "about 120 items left, 60 s" in flat
    assert re.search(r"hardest: \S+ or Mistral-7B-v0.3|hardest: \S+ or mistralai/", flat)


def test_bars_stand_in_the_order_of_scores_on_one_scale():
    rows = [line for line in drawn(picture(), 100).splitlines() if "●" in line]
    dots = [line.index("●") for line in rows]
    assert dots == sorted(dots, reverse=True)
    assert len({line.count("━") + line.count("─") for line in rows}) <= 2, (
        "equal errors, equal bars"
    )
    assert rows[2].index("─") < rows[1].index("─") < rows[0].index("─")


def test_without_unicode_bars_are_plain_letters():
    console = Console(
        file=io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace"), width=100,
        color_system=None, legacy_windows=False,
    )  # fmt: skip
    console.print(live_table(picture(title="task"), 100))
    console.file.flush()
    text = console.file.buffer.getvalue().decode("ascii")
    assert "=o=" in text


@pytest.mark.parametrize("width", [80, 160])
def test_names_of_models_are_never_markup(width, tmp_path):
    text = drawn(picture((HOSTILE, "b", "c")), width)
    assert CLEAN in text
    assert "\x1b[2J" not in text
    assert len([line for line in text.splitlines() if "asking" in line]) == 3
    assert HOSTILE not in plain_line(picture((HOSTILE, "b", "c")), 1)
    ranking = made_data(2)
    for entry in ranking["ranking"]:
        entry["model"] = entry["model"].replace("m1", HOSTILE)
    for pair in ranking["pairs"]:
        pair["a"] = HOSTILE
    ranking["warnings"] = [f"{HOSTILE}: odd"]
    ranking["set_aside"] = [{"model": "[bold]z", "reason": "out [of] memory"}]
    console = screen(width)
    show_outcome(as_file(ranking_from(ranking), tmp_path), console)
    shown = console.file.getvalue()
    assert "\x1b[2J" not in shown
    assert CLEAN in shown
    assert f"warning: {CLEAN}: odd" in " ".join(shown.split())
    assert "set aside: [bold]z: out [of] memory" in shown


def test_many_models_show_those_that_are_asked_and_count_the_rest():
    made = picture(tuple(f"model-{k}" for k in range(30)), hardest=())
    lines = [
        replace(line, state="asking" if k >= 28 else "settled") for k, line in enumerate(made.lines)
    ]
    text = drawn(replace(made, lines=tuple(lines)), 80, rows=5)
    shown = re.findall(r"model-\d+", text)
    assert shown == ["model-0", "model-1", "model-2", "model-28", "model-29"]
    assert "… and 25 more models" in text


def test_short_names_stay_apart():
    names = ["org/" + "x" * 40 + "-a", "org/" + "x" * 40 + "-b", "other/" + "x" * 40 + "-a"]
    for width in (12, 20, 30, 60):
        short = short_names(names[:2], width)
        assert len(set(short)) == 2
        assert max(map(len, short)) <= width
    assert short_names(names, 60) == names, "without organisations two would be one"


def test_time_left_is_by_answers_after_models_were_loaded():
    now = [0.0]
    clock = Clock(lambda: now[0])
    assert clock.seconds_per_item is None
    for seconds, answers in ((100.0, 10), (5.0, 10), (5.0, 10)):
        now[0] += seconds
        for _ in range(answers):
            clock.answer()
        clock.round()
    assert clock.seconds_per_item == pytest.approx(0.5)


def test_rounds_of_a_resumed_run_that_ask_nothing_tell_no_time():
    now = [0.0]
    clock = Clock(lambda: now[0])
    now[0] = 50.0
    clock.round()
    assert clock.seconds_per_item is None
    now[0] = 60.0
    for _ in range(20):
        clock.answer()
    clock.round()
    assert clock.seconds_per_item == pytest.approx(0.5)


def test_answers_of_many_threads_are_all_counted():
    progress = Progress(screen())
    threads = [
        threading.Thread(target=lambda: [progress(None, "answer") for _ in range(500)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert progress._clock.fresh == 4000


@pytest.mark.parametrize("width", [80, 160])
def test_a_run_on_a_terminal_draws_the_table_and_ends_with_the_ranking(toy_bank, tmp_path, width):
    console = screen(width)
    outcome = run_toys(toy_bank, tmp_path, Progress(console))
    text = console.file.getvalue()
    assert "records_to_text: 3 models" in text
    assert re.search(r"1 +strong +0\.\d+ ± 0\.\d+ .*●", text)
    assert "2 of 2 pairs decided" in text
    assert "asking" in text
    assert "settled" in text
    console = screen(width)
    show_outcome(outcome, console)
    shown = console.file.getvalue()
    listing = [
        line for line in shown.splitlines() if not line.startswith(("signature", "  /", "files"))
    ]
    assert max(map(len, listing)) <= width
    assert (
        "strong beats middle and weak; middle beats weak with 99.9 % confidence each"
        in " ".join(shown.split())
    )
    assert f"ranking_{toy.TASK}_" in shown


def test_a_model_whose_server_is_away_is_shown_so_until_it_is_back(toy_bank, tmp_path):
    console, drawings = screen(), {}

    class Watching(Progress):
        def __call__(self, contest, event):
            super().__call__(contest, event)
            for name, waiting in (("away", {"middle": "HTTP 503"}), ("back", {})):
                if event == "round" and name not in drawings:
                    contest.waiting.update(waiting)
                    drawings[name] = drawn_on(screen(), self._draw())
                    contest.waiting.clear()

    def drawn_on(console, what):
        console.print(what)
        return console.file.getvalue()

    run_toys(toy_bank, tmp_path, Watching(console))
    assert re.search(r"middle.*server away", drawings["away"])
    assert not re.search(r"(weak|strong).*server away", drawings["away"])
    assert "server away" not in drawings["back"]


def test_watching_a_run_changes_nothing_of_it(toy_bank, tmp_path):
    run_toys(toy_bank, tmp_path / "watched", Progress(screen()))
    candidates = make_candidates(toy.models(), "test")
    settings = HarnessSettings(tasks=(toy.TASK,), output_path=str(tmp_path / "alone"))
    rules = AdaptiveConfig(bank=str(toy_bank), min_items=4, confidence=0.999, round_size=2)
    AdaptiveRun(candidates, settings, rules).run()
    watched, alone = (toy.ranking_of(tmp_path / name) for name in ("watched", "alone"))
    assert toy.undated(watched) == toy.undated(alone)


def test_without_a_terminal_lines_come_with_decided_pairs_and_now_and_then(toy_bank, tmp_path):
    def lines_of(folder, seconds_a_look):
        now = [0.0]

        def clock():
            now[0] += seconds_a_look
            return now[0]

        console = Console(file=io.StringIO(), width=80)
        outcome = run_toys(
            toy_bank, tmp_path / folder, Progress(console, clock), confidence=0.999, round_size=1
        )
        rounds = outcome.tasks[toy.TASK].ranking.trace[-1].round
        lines = console.file.getvalue().splitlines()
        return [line for line in lines if line.startswith("round ")], rounds

    quick, rounds = lines_of("quick", 0.0)
    assert rounds > 6
    decided = [re.search(r"(\d) of 2 pairs decided", line)[1] for line in quick]
    assert decided[0] in "01"
    assert decided[-1] == "2"
    assert "stopped: decided" in quick[-1]
    assert len(quick) < rounds, "fewer lines than rounds"
    assert quick[0].startswith("round 1: ")
    slow, _ = lines_of("slow", 100.0)
    assert len(slow) >= rounds, "a line every ten seconds at least"


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_written_at_log_level_error(toy_bank, tmp_path, monkeypatch, capfd, terminal):
    class Warner(Progress):
        def __call__(self, contest, event):
            logging.getLogger("lm_eval_adaptive.run.asking").warning("a warning")
            super().__call__(contest, event)

    monkeypatch.setenv("LMEVAL_LOG_LEVEL", "ERROR")
    console = Console(file=io.StringIO(), force_terminal=terminal)
    run_toys(toy_bank, tmp_path, Warner(console))
    assert console.file.getvalue() == ""
    assert "a warning" not in capfd.readouterr().err


@pytest.mark.parametrize("level", ["ERROR", ""])
def test_the_harness_s_bars_and_lines_are_out_of_the_way(toy_bank, toy_logs, tmp_path, level):
    models = [
        word
        for name in ("cal-0.20", "cal-0.80")
        for word in ("--model", "replay", "--model_args", f"samples={toy_logs / name}")
    ]
    done = subprocess.run(
        [
            sys.executable, "-m", "lm_eval_adaptive", "run", "--adaptive", "--tasks", toy.TASK,
            "--bank", str(toy_bank), *models, "--output_path", str(tmp_path),
        ],
        env={**os.environ, "LMEVAL_LOG_LEVEL": level}, capture_output=True, text=True, check=True,
        cwd=toy.ROOT,
    )  # fmt: skip
    if level:
        assert done.stderr == ""
    else:
        assert [line.split(":")[0] for line in done.stderr.splitlines()] == [
            toy.TASK, "round 1", "round 1",
        ]  # fmt: skip
    assert "cal-0.80 beats cal-0.20" in done.stdout


def test_warnings_stand_above_the_table_and_logging_is_left_as_it_was(toy_bank, tmp_path, capfd):
    logger = logging.getLogger("lm_eval_adaptive")
    before = logger.handlers[:], logger.propagate, logger.level
    failing = toy.models()
    failing[0]["model_args"]["fail_after"] = 5
    console = screen(100)
    outcome = run_toys(toy_bank, tmp_path, Progress(console), failing)
    text = console.file.getvalue()
    name = failing[0]["name"]
    assert f"warning: {name} is set aside" in text
    assert "failed" in text
    assert capfd.readouterr().err == ""
    assert (logger.handlers[:], logger.propagate, logger.level) == before
    console = screen(100)
    show_outcome(outcome, console)
    assert f"set aside: {name}: " in console.file.getvalue()


def test_the_last_table_stays_when_a_run_breaks_off(toy_bank, tmp_path):
    failing = toy.models()
    for model in failing:
        model["model_args"]["fail_after"] = 3
    console = screen(100)
    with pytest.raises(ModelError):
        run_toys(toy_bank, tmp_path, Progress(console), failing)
    assert "failed" in console.file.getvalue()
    assert console._live_stack == [] if hasattr(console, "_live_stack") else console._live is None


# --- at the end ---------------------------------------------------------------------------------


def test_the_sentence_for_two_models():
    assert sentence(made_ranking(2)) == (
        "m1 beats m2 with 95 % confidence after 46 items a model; 92 items asked, 3.1 % of the "
        "answers a full run needs (stopped: decided)."
    )
    assert sentence(made_ranking(2, undecided=[(1, 2)], stop_reason="max_items")) == (
        "m1 and m2 are undecided after 46 items a model; 92 items asked, 3.1 % of the answers a "
        "full run needs (stopped: max_items)."
    )


def test_the_sentence_for_four_models_with_costs():
    ranking = made_data(4, undecided=[(2, 3), (2, 4), (3, 4)], cost_total=0.42, cost_full=13.5)
    ranking["ranking"][0]["items"] = 20
    assert sentence(ranking_from(ranking)) == (
        "m1 beats m2, m3 and m4 with 95 % confidence each; m2, m3 and m4 are undecided after 20 to "
        "46 items a model; 184 items asked, 3.1 % of the answers a full run needs, cost 0.42 of "
        "13.5 (stopped: decided)."
    )


def test_equivalent_pairs_are_told_apart_from_undecided_ones():
    text = sentence(made_ranking(3, undecided=[(2, 3)], equivalent=[(1, 2)]))
    assert "m1 and m2 are equivalent; m2 and m3 are undecided" in text
    assert "m1 beats m3" in text


@pytest.mark.parametrize(
    ("undecided", "words"),
    [
        ([], "m1 beats all 11 others; 66 of 66 pairs are decided with 95 % confidence each after"),
        (
            [(1, 2)],
            (
                "m1 is not told apart from m2 and beats the other 10; 65 of 66 pairs are decided "
                "with 95 % confidence each, 1 undecided after"
            ),
        ),
        (
            [(1, k) for k in range(2, 12)],
            "m1 stands first but is not told apart from 10 others and beats the other one; 56 of 66",
        ),
    ],
)
def test_the_sentence_for_twelve_models_is_short(undecided, words):
    text = sentence(made_ranking(12, undecided=undecided))
    assert text.startswith(words)
    assert len(text) < 300


def test_the_sentence_for_one_model():
    ranking = made_ranking(1, stop_reason="precision")
    assert sentence(ranking) == (
        "m1 scores 0.890 ± 0.020 (95 % interval 0.85 to 0.93); 46 items asked, 3.1 % of the answers "
        "a full run needs (stopped: precision)."
    )


def test_the_family_wise_level_is_not_told_as_one_of_each_pair():
    ranking = made_data(3)
    ranking["config"]["adaptive"]["correction"] = "holm"
    assert "each" not in sentence(ranking_from(ranking))


def test_ties_are_shown_in_groups_though_they_are_not_transitive():
    ranking = made_ranking(5, undecided=[(2, 3), (3, 4)])
    assert groups_of(ranking) == [["m1"], ["m2", "m3", "m4"], ["m5"]]
    assert possible_ranks(ranking) == {
        "m1": (1, 1), "m2": (2, 3), "m3": (2, 4), "m4": (3, 4), "m5": (5, 5),
    }  # fmt: skip
    assert groups_of(made_ranking(4, undecided=[(1, 4)])) == [["m1", "m2", "m3", "m4"]]


def test_lines_part_the_groups(tmp_path):
    console = screen(80)
    show_outcome(as_file(made_ranking(5, undecided=[(2, 3), (3, 4)]), tmp_path), console)
    table = console.file.getvalue()
    kinds = "".join(
        "-" if set(line.strip()) == {"─"} else line.split()[1][1]
        for line in table.splitlines()
        if set(line.strip()) == {"─"} or re.match(r" +[0-9–]+ +m\d ", line)
    )
    assert kinds == "--1-234-5-"
    assert "  2–4   m3" in table


def test_decided_pairs_that_are_expected_to_be_wrong_are_summed():
    ranking = made_data(4, undecided=[(1, 2)])
    told = expected_wrong(ranking_from(ranking))
    assert told.startswith("5 decided pairs, of which 0.05 are expected")
    ranking["pairs"][1].update(verdict="b", p_a_better=0.02)
    assert expected_wrong(ranking_from(ranking)).startswith(
        "5 decided pairs, of which 0.06 are expected"
    )
    assert expected_wrong(made_ranking(2, undecided=[(1, 2)])) == ""


@pytest.mark.parametrize("width", [80, 160])
def test_the_harness_s_table_has_a_row_per_model_in_ranking_order(width):
    ranking = made_data(3)
    ranking["ranking"][0]["model"] = "meta-llama/Meta-Llama-3-70B-Instruct-with-a-long-name"
    for place, entry in enumerate(ranking["ranking"]):
        entry.update(score=0.7125 - 0.1 * place, score_se=0.02125)
    results = {
        entry["model"]: {"versions": {"task": 2}, "n-shot": {"task": 0}}
        for entry in ranking["ranking"]
    }
    text = harness_table(ranking_from(ranking), results, width)
    head, rule, *rows = text.splitlines()
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "Model", "Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr",
    ]  # fmt: skip
    assert set(rule) <= set("|-:")
    assert len({len(line) for line in (head, rule, *rows)}) == 1
    assert len(head) <= width
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[2:] for row in cells] == [
        ["adaptive", "0", "rougeL", "↑", f"0.{7 - k}125", "±", "0.0213"] for k in range(3)
    ]
    assert cells[1][0] == "m2"
    full = cells[0][0] == ranking["ranking"][0]["model"]
    assert full == (width == 160)


def test_the_table_has_a_row_for_each_metric_and_for_models_that_were_not_asked():
    ranking = made_ranking(2)
    own = {
        "rougeL,adaptive": 0.8125, "rougeL_stderr,adaptive": 0.0213,
        "bleu,adaptive": 31.4159, "bleu_stderr,adaptive": 1.2345,
    }  # fmt: skip
    results = {
        "m1": {
            "versions": {"task": 2}, "n-shot": {"task": 0}, "results": {"task": own},
            "higher_is_better": {"task": {"bleu": True}},
        }
    }  # fmt: skip
    rows = harness_table(ranking, results).splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [(row[0], row[4], row[5], row[6]) for row in cells] == [
        ("m1", "bleu", "↑", "31.4159"), ("", "rougeL", "↑", "0.8125"), ("m2", "rougeL", "↑", "0.8800"),
    ]  # fmt: skip


def test_a_ranking_without_a_bank_makes_no_condition_of_one():
    ranking = made_ranking(2, bank={"sha256": "none"})
    assert expected_wrong(ranking) == "1 decided pair, of which 0.01 are expected to be wrong"


def test_several_metrics_are_watched_together(toy_bank, toy_logs, tmp_path):
    options = CalibrateOptions(
        task=toy.TASK, metric="slot_coverage", samples=(str(toy_logs),), score_range=(0, 1)
    )
    second = calibrate_from(options).save(tmp_path / "slots.bank.parquet")
    console = screen(100)
    banks = {f"{toy.TASK}:rougeL": str(toy_bank), f"{toy.TASK}:slot_coverage": str(second)}
    outcome = run_toys(
        banks, tmp_path / "out", Progress(console), metric=["rougeL", "slot_coverage"], max_items=30
    )
    assert "rougeL ↑ (and 1 more metric)" in console.file.getvalue()
    assert re.search(r"\d of 4 pairs decided", console.file.getvalue()), "two of each metric"
    console = screen(100)
    show_outcome(outcome, console)
    shown = console.file.getvalue()
    assert f"{toy.TASK}: rougeL ↑" in shown
    assert f"{toy.TASK}: slot_coverage ↑" in shown
    assert len(re.findall(r"^\|.*\|adaptive\|", shown, re.MULTILINE)) == 6


def test_a_run_without_a_bank_is_watched_too(tmp_path):
    console = screen(100)
    run_toys("none", tmp_path, Progress(console), metric="rougeL", range=(0, 1), max_items=20)
    text = console.file.getvalue()
    assert re.search(r"\d of 2 pairs decided", text)
    assert "●" in text


def test_the_status_line_names_the_pair_and_what_is_given_up():
    text = status(picture(given_up=3))
    assert text == (
        "1 of 2 pairs decided; 3 too close to pursue; 135 items asked, 11 % of a full run; "
        "hardest: org/alpha or org/beta; about 120 items left, 60 s"
    )


def at_the_end(ranking, tmp_path):
    console = screen(100)
    show_outcome(as_file(ranking, tmp_path), console)
    return console.file.getvalue()


def test_a_model_beyond_the_banks_own_is_marked_in_the_table_and_nothing_else_is(tmp_path):
    data = made_data(3)
    places = (
        "above all 17 calibration models",
        "within the range of the 17 calibration models",
        "below all 17 calibration models",
    )
    for entry, lies in zip(data["ranking"], places, strict=True):
        entry["lies"] = lies
    text = at_the_end(ranking_from(data), tmp_path)
    marks = [line.split()[-1] for line in text.splitlines() if re.match(r"\s+\d\s+m\d ", line)]
    assert marks == ["above", "46", "below"]
    assert "errors are widened for that" in text
    for entry in data["ranking"]:
        entry["lies"] = places[1]
    text = at_the_end(ranking_from(data), tmp_path)
    assert "errors are widened" not in text
    assert not re.search(r"items +bank", text)
