"""Runs that are killed at any instant, and what must be true of them when they are resumed.

Used by the tests (20 kills) and by ``scripts/attack_kills.py`` (100 and more).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time

from tests.support import quiz, toy

NAMES = ("a-0.8", "b-0.6", "c-0.4")
RULES = {"bank": "none", "metric": "score", "range": (0.0, 1.0), "items_per_model": 20}
EXITS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGHUP: 143}


def run(task, port, folder, *, resume=False, chat=True):
    from lm_eval_adaptive.api import simple_evaluate
    from lm_eval_adaptive.run.config import AdaptiveConfig

    return simple_evaluate(
        quiz.served(port, NAMES, chat=chat),
        [quiz.TASK],
        AdaptiveConfig(**RULES, round_size=10),
        resume=folder if resume else None,
        **({} if resume else {"output_path": str(folder)}),
        include_path=task,
    )


def _child(task, port, folder, resume, chat):
    from lm_eval_adaptive.errors import AdaptiveError

    os.environ["OPENAI_API_KEY"] = "none"
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    try:
        run(task, port, folder, resume=resume, chat=chat)
    except AdaptiveError as error:
        os._exit(error.exit_code)
    os._exit(0)


def killed(task, port, folder, number, after, *, resume, chat=True):
    """A run in a process of its own, and a signal some seconds after its journal began.

    Returns:
        Its exit code.
    """
    journal = folder / "journal.jsonl"
    lines = journal.read_bytes().count(b"\n") if journal.exists() else 0
    # Not forked from here: a server's threads may hold a lock that the child would wait for.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.warm"])
    process = context.Process(target=_child, args=(task, port, folder, resume, chat))
    process.start()
    deadline = time.monotonic() + 60
    while process.is_alive() and time.monotonic() < deadline:
        if journal.exists() and journal.read_bytes().count(b"\n") > lines:
            break
        time.sleep(0.005)
    time.sleep(after)
    if process.is_alive():
        os.kill(process.pid, number)
    process.join(60)
    return process.exitcode


def held(folder):
    """Documents that a journal has an answer to, by model."""
    path = folder / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    records = [json.loads(line) for line in lines]
    return {(r["model"], r["doc_id"]) for r in records if r["type"] in ("answer", "response")}


def attack(task, server, folder, kills, draw, expected, *, chat=True):
    """Kill a run so often, resume it, and say what is wrong.

    Args:
        task: Folder of the task.
        server: The models' server.
        folder: Where to run.
        kills: How often.
        draw: Gives numbers in [0, 1).
        expected: The unbroken run's ranking.
        chat: Which dialect.

    Returns:
        What is wrong, and how many signals found the run alive.
    """
    wrong, hit = [], 0
    known, killed_off = set(), set()
    for count in range(kills):
        number = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT)[count % 4]
        before = len(server.asked)
        resume = (folder / "journal.jsonl").exists() and bool(
            (folder / "journal.jsonl").read_bytes().count(b"\n")
        )
        code = killed(task, server.port, folder, number, 0.25 * draw(), resume=resume, chat=chat)
        if code not in (0, EXITS[number]):
            wrong.append(f"exit {code} after {number!r}")
        hit += code != 0
        again = known & set(server.asked[before:])
        if again:
            wrong.append(f"asked again: {sorted(again)[:3]}")
        known |= held(folder)
        # What was sent whole just before a SIGKILL may not have been read; a signal waits for it.
        lost = set(server.answered) - known
        if code in (130, 143) and lost - killed_off:
            wrong.append(f"lost at {number!r}: {sorted(lost - killed_off)[:3]}")
        killed_off |= lost
    before = len(server.asked)
    found = run(task, server.port, folder, resume=True, chat=chat)
    if known & set(server.asked[before:]):
        wrong.append("asked again at the end")
    if toy.undated(found["ranking"][quiz.TASK]) != toy.undated(expected["ranking"][quiz.TASK]):
        wrong.append("another ranking")
    return wrong, hit
