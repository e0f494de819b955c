"""Replayed models of the quiz, a cluster of two nodes on this machine, and runs on it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time

from tests.support import quiz

NAMES = ("a-0.8", "b-0.6", "c-0.4")
RULES = {"bank": "none", "metric": "score", "range": (0.0, 1.0), "items_per_model": 12}


def logs(folder, names=NAMES):
    """What each model says to each document, as the harness logs it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        rows = [
            {
                "doc_id": number,
                "doc": {
                    "number": number,
                    "question": f"Question {number}?",
                    "answer": quiz.answer_of(number),
                },
                "target": quiz.answer_of(number),
                "arguments": {
                    "gen_args_0": {"arg_0": f"Question {number}?", "arg_1": {"until": ["\n\n"]}}
                },
                "resps": [[quiz.said_by(name, number)]],
                "filtered_resps": [quiz.said_by(name, number)],
                "filter": "none",
                "metrics": ["score"],
                "score": quiz.score_of(name, number),
            }
            for number in range(quiz.DOCUMENTS)
        ]
        place = folder / name / f"samples_{quiz.TASK}_2026-01-01T00-00-00.jsonl"
        place.parent.mkdir(exist_ok=True)
        place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def models(folder, latency=0.0, **more):
    return [
        {
            "name": name,
            "model": "replay",
            "model_args": {"samples": str(folder / name), "latency": latency},
            **more,
        }
        for name in NAMES
    ]


def run(models, task, folder, *, executor="local", resume=False, **rules):
    from lm_eval_adaptive.api import simple_evaluate
    from lm_eval_adaptive.run.config import AdaptiveConfig

    return simple_evaluate(
        models,
        [quiz.TASK],
        AdaptiveConfig(**{**RULES, "round_size": 4, "executor": executor, **rules}),
        resume=folder if resume else None,
        **({} if resume else {"output_path": str(folder)}),
        include_path=task,
    )


def records(folder):
    path = folder / "journal.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def answers(folder):
    """(model, document) of each answer in the journal, in its order."""
    return [(r["model"], r["doc_id"]) for r in records(folder) if r["type"] == "answer"]


@contextlib.contextmanager
def cluster(nodes=2, cpus=2):
    """A head without room, and nodes that are processes of their own."""
    import ray
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    heart = {"health_check_period_ms": 500, "health_check_failure_threshold": 6}
    small["_system_config"] = {**heart, "health_check_initial_delay_ms": 0}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    mine = [made.add_node(num_cpus=cpus, object_store_memory=80 * 2**20) for _ in range(nodes)]
    made.wait_for_nodes()
    try:
        yield made, mine
    finally:
        ray.shutdown()
        made.shutdown()


def workers(node):
    """Processes of the models that have their place on a node, or not there."""
    from ray._private.state import actors

    alive = [each for each in actors().values() if each["State"] == "ALIVE"]
    there = [each["Pid"] for each in alive if each["Address"]["NodeID"] == node.node_id]
    return there, [each["Pid"] for each in alive if each["Pid"] not in there]


def kill_node(node):
    """All processes of a node end by SIGKILL, as by a loss of power.

    Returns:
        How many models had their place there.
    """
    there, _ = workers(node)
    pids = [info.process.pid for info in node.all_processes["raylet"]]
    for pid in [*pids, *there]:
        os.kill(pid, signal.SIGKILL)
    return len(there)


@contextlib.contextmanager
def once(folder, count, act):
    """Do something as soon as a journal holds so many answers; gives what came of it."""
    done = []

    def watch():
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if len(answers(folder)) >= count:
                done.append(act())
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield done
    thread.join(60)
