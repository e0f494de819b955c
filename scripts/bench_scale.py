"""The package's own time and memory at scale, beside those of an earlier version in the same run.

Everything is simulated, so that nothing is timed but this package: rankings whose answers come at
once, rounds over long banks, calibration, start-up, reading a journal, the page. Each measurement
runs in a process of its own, of this checkout and then of another version that git takes out of the
repository; both figures and their ratio are printed. What was measured is kept in a file, so an
interrupted run goes on where it was::

    python scripts/bench_scale.py [--ref 72e84c1] [--only rank,round] [--keep FILE] [--threads 1]

``rank`` with more models than the old version can finish in minutes times it on every tenth round
of the new one's run, from the same answers, and multiplies (``~``). Times are processor seconds;
wall seconds stand beside them. On a machine with other work only ratios mean anything.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).resolve().parents[1]
REF = "72e84c1"

# Part, its sizes, and the mark in seconds on two idle cores (None: no mark).
PARTS: list[tuple[str, tuple[int, ...], float | None]] = [
    ("rank", (20, 1000), 2.0),
    ("rank", (50, 1000), 8.0),
    ("rank", (100, 1000), 25.0),
    ("rank", (200, 5000), 300.0),
    ("round", (4, 100_000), 0.010),
    ("round", (4, 1_000_000), 0.100),
    ("calibrate", (17, 100_000), 6.0),
    ("calibrate", (100, 1000), 1.0),
    ("calibrate", (1000, 1000), 4.0),
    ("calibrate", (10_000, 1000), 60.0),
    ("help", (), 0.3),
    ("import", (), 0.1),
    ("journal", (1_000_000,), 10.0),
    ("page", (200, 5000), None),
    ("logs", (200, 2000), None),
    ("first_request", (), 3.0),
]
# Above this many models the old version's rankings are timed on some of the rounds.
MOST_OLD_MODELS, EVERY = 20, 10
# Parts that the old version would take an hour for.
NOT_OLD = {
    ("rank", (200, 5000)),
    ("calibrate", (10_000, 1000)),
    ("logs", (200, 2000)),
    ("first_request", ()),
}
CALIBRATING = 17


def scores_of(models: int, items: int, noise: float = 0.15, seed: int = 0) -> Any:
    """Scores in [0, 1] of simulated models, shape (models, items): logistic curves and noise."""
    import numpy as np

    rng = np.random.default_rng(seed)
    theta = rng.normal(0.0, 1.0, models)
    difficulty = rng.normal(0.0, 1.2, items)
    slope = np.exp(rng.normal(0.0, 0.3, items))
    found = np.empty((models, items))
    for row in range(models):
        mean = 1.0 / (1.0 + np.exp(-slope * (theta[row] - difficulty)))
        found[row] = np.clip(mean + rng.normal(0.0, noise, items), 0.0, 1.0)
    return found


def bank_of(scores: Any, **options: Any) -> Any:
    from lm_eval_adaptive import ScoreMatrix, calibrate

    models, items = scores.shape
    matrix = ScoreMatrix(
        tuple(f"c{row}" for row in range(models)),
        tuple(f"i{item}" for item in range(items)),
        scores,
    )
    return calibrate(
        matrix,
        task="simulated",
        metric="score",
        response_model="robust-2pl",
        score_range=(0.0, 1.0),
        **options,
    )


class Clock:
    """Processor and wall seconds of a block."""

    def __enter__(self) -> Self:
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu, self.wall = time.process_time() - self._cpu, time.perf_counter() - self._wall


def measure_rank(models: int, items: int, kept: str = "", old: str = "") -> dict[str, Any]:
    """A ranking to its own stop with the command line's defaults; answers come at once.

    Args:
        models: Ranked models.
        items: Items of the bank.
        kept: Where the answers of every tenth round are kept.
        old: Where they are read, to time these rounds alone.
    """
    import numpy as np

    from lm_eval_adaptive.core.procedure import Procedure
    from lm_eval_adaptive.core.rules import ProcedureConfig
    from lm_eval_adaptive.core.state import Stop

    scores = scores_of(CALIBRATING + models, items)
    bank = bank_of(scores[:CALIBRATING])
    config = ProcedureConfig(round_size=None, seed=1)
    procedure = Procedure.for_bank(bank, np.ones(models), config)
    state = procedure.start()
    truth = scores[CALIBRATING:]
    if old:
        held = np.load(old)
        spent = walls = 0.0
        for responses in held["responses"]:
            state.responses = responses
            state.answered = state.administered
            with Clock() as clock:
                procedure.next(state)
            spent, walls = spent + clock.cpu, walls + clock.wall
        times = int(held["rounds"]) / max(len(held["responses"]), 1)
        return {"cpu": spent * times, "wall": walls * times, "estimated": True}
    rounds: list[Any] = []
    count = 0
    with Clock() as clock:
        while not isinstance(step := procedure.next(state), Stop):
            for ask in step.asks:
                for item in ask.items:
                    state.record(ask.model, item, float(truth[ask.model, item]))
            if kept and count % EVERY == EVERY // 2:
                rounds.append(state.responses.copy())
            count += 1
    if kept:
        np.savez_compressed(kept, responses=np.array(rounds), rounds=count)
    pairs = [pair for pair in procedure.pairs(state) if pair.required]
    level = procedure.estimate(state).level
    full = truth.mean(axis=1)
    a, b = np.triu_indices(models, 1)
    tau = float(np.mean(np.sign(level[a] - level[b]) * np.sign(full[a] - full[b])))
    settled = sum(pair.verdict != "undecided" for pair in pairs)
    said = (
        f"{count} rounds, {state.administered.mean():.0f} items a model, {step.reason}, "
        f"{settled} of {len(pairs)} neighbours told apart, tau {tau:.3f}"
    )
    return {"cpu": clock.cpu, "wall": clock.wall, "said": said}


def measure_round(models: int, items: int) -> dict[str, Any]:
    """The median round of a ranking, after the warm-up, over a long bank."""
    import numpy as np

    from lm_eval_adaptive.core.procedure import Procedure
    from lm_eval_adaptive.core.rules import ProcedureConfig

    scores = scores_of(CALIBRATING + models, items)
    bank = bank_of(scores[:CALIBRATING])
    truth = scores[CALIBRATING:]
    config = ProcedureConfig(items_per_model=10_000, round_size=4, seed=1)
    procedure = Procedure.for_bank(bank, np.ones(models), config)
    state = procedure.start()
    cpu, wall = [], []
    for _ in range(15):
        with Clock() as clock:
            step = procedure.next(state)
            for ask in step.asks:  # type: ignore[union-attr]
                for item in ask.items:
                    state.record(ask.model, item, float(truth[ask.model, item]))
        cpu.append(clock.cpu)
        wall.append(clock.wall)
    return {"cpu": float(np.median(cpu[3:])), "wall": float(np.median(wall[3:]))}


def measure_calibrate(models: int, items: int) -> dict[str, Any]:
    """A bank from scores, with what it learns from its own held-out models."""
    scores = scores_of(models, items)
    with Clock() as clock:
        bank = bank_of(scores)
    correction = bank.info.correction
    said = f"log scale {correction.log_scale:+.2f}, selector {bank.info.selector}"
    return {"cpu": clock.cpu, "wall": clock.wall, "said": said}


def _command(words: list[str]) -> dict[str, Any]:
    """Processor seconds of the best of five processes."""
    found = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
        wall = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found.append((cpu, wall))
    cpu, wall = min(found)
    return {"cpu": cpu, "wall": wall}


def measure_help() -> dict[str, Any]:
    """``--help`` of the command."""
    return _command(["-m", "lm_eval_adaptive", "--help"])


def measure_import() -> dict[str, Any]:
    """``import lm_eval_adaptive``."""
    return _command(["-c", "import lm_eval_adaptive"])


def measure_journal(answers: int) -> dict[str, Any]:
    """Reading the journal of a run that is resumed, and finding each answer in it."""
    from lm_eval_adaptive.records import journal

    head = journal.Header(
        config=journal.RunHead(
            tasks={"t": journal.TaskHead(signature="s", bank_sha256="none", documents=5000)},
            models={},
            adaptive={},
            settings={},
            versions={},
        ),
        command=(),
    )
    text = "Forty-two, as everybody knows who has read the question to its end."
    record = journal.AnswerRecord(
        task="t",
        round=1,
        model="M",
        doc_id=0,
        prompt_hash="0" * 64,
        resps=(text,),
        filtered={"none": text},
        metrics={"none": {"rougeL": 0.5}},
        raw_score=0.5,
        score=0.5,
        clipped=False,
        problem="",
        input_tokens=100.0,
        output_tokens=16.0,
        tokens_counted=True,
        cost=1.0,
    )
    fields = journal.as_data(record)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / journal.NAME
        with path.open("w", encoding="utf-8") as file:
            file.write(f"{journal.written(head)}\n")
            for number in range(answers):
                fields["model"], fields["doc_id"] = f"m{number // 5000}", number % 5000
                file.write(f"{json.dumps(fields)}\n")
        size = path.stat().st_size / 1e6
        with Clock() as clock:
            held = journal.read_journal(path)
            held.open_failures("t")
            found = held.answers("t")
    assert len(found) == answers
    return {"cpu": clock.cpu, "wall": clock.wall, "said": f"{size:.0f} MB"}


def measure_page(models: int, items: int) -> dict[str, Any]:
    """The page of a run of 60 documents a model."""
    import numpy as np

    from lm_eval_adaptive.core.procedure import Procedure
    from lm_eval_adaptive.host.settings import CandidateSpec
    from lm_eval_adaptive.records.journal import AnswerRecord, AskRecord
    from lm_eval_adaptive.report.run_page import render_report
    from lm_eval_adaptive.run.config import AdaptiveConfig
    from lm_eval_adaptive.run.contest import Contest, Terms, View
    from lm_eval_adaptive.run.ranking import ranking_document

    scores = scores_of(CALIBRATING + models, items)
    bank = bank_of(scores[:CALIBRATING])
    options = AdaptiveConfig(items_per_model=60)
    specs = [CandidateSpec(f"model-{row:03d}", "replay") for row in range(models)]
    procedure = Procedure.for_bank(bank, np.ones(models), options.procedure(1.0, 1, 0))
    terms = Terms(
        key="score",
        metric="score",
        filter="none",
        scale=bank.info.scale,
        bank=bank,
        options=options,
        names=tuple(spec.name for spec in specs),
    )
    contest = Contest("simulated", specs, [View(terms, procedure, bank.doc_id)])
    rng = np.random.default_rng(0)
    common = rng.permutation(items)[:60].tolist()
    plan = tuple(AskRecord(model=spec.name, doc_ids=tuple(common)) for spec in specs)
    text = "An answer of the usual length, which says little but says it in a full sentence. " * 3
    answers = {
        (spec.name, doc): AnswerRecord(
            task="simulated",
            round=1,
            model=spec.name,
            doc_id=doc,
            prompt_hash="0" * 64,
            resps=(text,),
            filtered={"none": text},
            metrics={"none": {"score": float(scores[CALIBRATING + row, doc])}},
            raw_score=float(scores[CALIBRATING + row, doc]),
            score=float(scores[CALIBRATING + row, doc]),
            clipped=False,
            problem="",
            input_tokens=100.0,
            output_tokens=40.0,
            tokens_counted=True,
            cost=1.0,
        )
        for row, spec in enumerate(specs)
        for doc in common
    }
    contest.close_round(plan, answers, {})
    contest.stop("fixed_length")
    document = ranking_document(contest)
    with Clock() as clock:
        page = render_report(document, bank=bank, answers=contest.answers)
    size = len(page.encode()) / 1e6
    return {"cpu": clock.cpu, "wall": clock.wall, "said": f"{size:.1f} MB (mark: 5 MB)"}


def measure_logs(files: int, documents: int) -> dict[str, Any]:
    """A score matrix of so many logs of the harness, rows of about 2.9 kB; both cores read."""
    from lm_eval_adaptive.banks.log_scores import score_matrix
    from lm_eval_adaptive.host.logs import find_runs

    text = "An answer of the usual length, which says little but says it in full. " * 20
    with tempfile.TemporaryDirectory() as folder:
        size = 0
        for number in range(files):
            place = Path(folder) / f"model-{number:04d}"
            place.mkdir()
            path = place / "samples_t_2026-01-01T00-00-00.000000.jsonl"
            with path.open("w", encoding="utf-8") as file:
                for doc in range(documents):
                    question = f"What is {doc} times {doc + 1}, and why would anybody ask?"
                    row = {
                        "doc_id": doc,
                        "doc": {"question": question, "answer": str(doc)},
                        "target": str(doc),
                        "arguments": {"gen_args_0": {"arg_0": question, "arg_1": {}}},
                        "resps": [[text]],
                        "filtered_resps": [text],
                        "filter": "none",
                        "metrics": ["score"],
                        "doc_hash": f"{doc:064x}",
                        "prompt_hash": f"{doc:064x}",
                        "target_hash": f"{doc:064x}",
                        "score": ((doc * 7 + number * 13) % 100) / 100,
                    }
                    file.write(json.dumps(row) + "\n")
            (place / "results_2026-01-01T00-00-00.000000.json").write_text(
                json.dumps(
                    {
                        "results": {"t": {"score,none": 0.5}},
                        "configs": {"t": {"task": "t", "num_fewshot": 0}},
                        "versions": {"t": 1},
                        "n-shot": {"t": 0},
                        "higher_is_better": {"t": {"score": True}},
                        "model_name": place.name,
                        "n-samples": {"t": {"original": documents, "effective": documents}},
                    }
                )
            )
            size += path.stat().st_size
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        with Clock() as clock:
            matrix = score_matrix(find_runs(folder, "t"), "score").matrix
        helpers = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert matrix.scores.shape == (files, documents)
    cpu = clock.cpu + helpers.ru_utime + helpers.ru_stime - children.ru_utime - children.ru_stime
    said = f"{size / 1e6:.0f} MB, {size / 1e6 / clock.wall:.0f} MB a second (mark: 100)"
    return {"cpu": cpu, "wall": clock.wall, "said": said}


def measure_first_request() -> dict[str, Any]:
    """From the command to the first request, beyond the plain harness's own; a model notes it."""
    plain = ROOT / "tasks" / "records"
    code = (
        "import sys, time, os; started = time.time()\n"
        "from lm_eval.api.model import LM\n"
        "class First(LM):\n"
        "    tokenizer_name = 'x'\n"
        "    def __init__(self, **_): super().__init__()\n"
        "    def generate_until(self, requests, disable_tqdm=False):\n"
        "        os.write(2, f'\\nFIRST {time.time() - started}\\n'.encode()); os._exit(0)\n"
        "    def loglikelihood(self, *_): ...\n"
        "    def loglikelihood_rolling(self, *_): ...\n"
        "import lm_eval.models\n"
        "from lm_eval.api.registry import model_registry\n"
        "model_registry.register('first', target=First)\n"
        "from lm_eval_adaptive.cli.main import main; main(sys.argv[1:])\n"
    )
    both = ["run", "--tasks", "records_to_text", "--include_path", str(plain), "--model", "first"]
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        ours = [*both, "--adaptive", "--items_per_model=8", "--output_path"]
        for kind in ("plain", "adaptive"):
            found = []
            for time_of in range(3):
                words = both if kind == "plain" else [*ours, f"{folder}/{time_of}"]
                done = subprocess.run(
                    [sys.executable, "-c", code, *words],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                told = [each for each in done.stderr.splitlines() if each.startswith("FIRST")]
                if not told:
                    raise SystemExit(done.stderr[-2000:])
                found.append(float(told[0].split()[1]))
            seconds.append(min(found))
    more = seconds[1] - seconds[0]
    said = f"{seconds[1]:.2f} s, the plain harness {seconds[0]:.2f} s"
    return {"cpu": max(more, 1e-3), "wall": max(more, 1e-3), "said": said}


MEASURES: dict[str, Any] = {
    "rank": measure_rank,
    "round": measure_round,
    "calibrate": measure_calibrate,
    "help": measure_help,
    "import": measure_import,
    "journal": measure_journal,
    "page": measure_page,
    "logs": measure_logs,
    "first_request": measure_first_request,
}


def taken_out(ref: str, folder: Path) -> Path:
    """The files of another version."""
    packed = subprocess.run(
        ["git", "archive", ref], cwd=ROOT, stdout=subprocess.PIPE, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder)
    return folder


def in_process(
    tree: Path, part: str, sizes: tuple[int, ...], words: dict[str, str], threads: int
) -> Any:
    """One measurement by the package in a folder."""
    limits = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | {"PYTHONPATH": str(tree), "HF_HUB_OFFLINE": "1"}
    environment |= dict.fromkeys(limits, str(threads))
    task = json.dumps([part, sizes, words])
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", task]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, cwd=tree, check=False)
    if done.returncode:
        return {"failed": f"exit {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def alone(task: str) -> None:
    """Do one measurement and print it."""
    part, sizes, words = json.loads(task)
    found = MEASURES[part](*sizes, **words)
    found["mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found))


def line(name: str, mark: float | None, new: dict[str, Any], old: dict[str, Any] | None) -> str:
    if "failed" in new:
        return f"| {name} | {new['failed']} |  |  |  |  |  |"
    before = ratio = ""
    if old and "cpu" in old:
        about = "~" if old.get("estimated") else ""
        before, ratio = f"{about}{old['cpu']:.3g}", f"{about}{old['cpu'] / new['cpu']:.1f}"
    marked = "" if mark is None else f"{mark:g}"
    return (
        f"| {name} | {before} | {new['cpu']:.3g} | {new['wall']:.3g} | {ratio} | {marked} | "
        f"{new['mb']:.0f} | {new.get('said', '')} |"
    )


def main() -> int:
    """Measure what is not measured yet, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ref", default=REF, help="the version to compare with; '' for none")
    parser.add_argument("--only", default="", help="parts, by commas: rank, round, rank-20 …")
    parser.add_argument(
        "--keep", type=Path, default=Path(tempfile.gettempdir()) / "bench_scale.json"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of linear algebra")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        alone(args.measure)
        return 0
    held: dict[str, Any] = json.loads(args.keep.read_text()) if args.keep.exists() else {}
    wanted = [each for each in args.only.split(",") if each]
    print("| what | before, s | now, s | wall, s | ratio | mark, s | MB | |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        tree = None
        for part, sizes, mark in PARTS:
            name = "-".join(map(str, (part, *sizes)))
            if wanted and not any(name == each or name.startswith(f"{each}-") for each in wanted):
                continue
            rounds = args.keep.with_suffix(f".{name}.npz")
            sampled = part == "rank" and sizes[0] > MOST_OLD_MODELS
            for version in ("new", "old"):
                key = f"{name} {version}"
                if key in held or (version == "old" and (not args.ref or (part, sizes) in NOT_OLD)):
                    continue
                if version == "old":
                    tree = tree or taken_out(args.ref, Path(folder))
                words = {"kept" if version == "new" else "old": str(rounds)} if sampled else {}
                where = ROOT if version == "new" or tree is None else tree
                held[key] = in_process(where, part, sizes, words, args.threads)
                args.keep.write_text(json.dumps(held, indent=1))
            print(line(name, mark, held[f"{name} new"], held.get(f"{name} old")), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
