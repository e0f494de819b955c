"""Models as actors of a real Ray cluster of two node processes, and what is killed in it."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import time

import pytest

from lm_eval_adaptive.errors import ModelError
from lm_eval_adaptive.run.executors.ray_line import RayLine
from tests.support import fleet, quiz

ray = pytest.importorskip("ray", reason="Ray is not installed (extra [ray])")


@pytest.fixture(scope="module", autouse=True)
def own_handler():
    """What Ray does with SIGTERM in this process is no other test's affair."""
    own = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, own)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def task(place):
    return quiz.make_task(place / "task")


@pytest.fixture(scope="module")
def logs(place):
    return fleet.logs(place / "logs")


@pytest.fixture(scope="module")
def expected(place, task, logs):
    """The unbroken run in one process."""
    return told(fleet.run(fleet.models(logs), task, place / "local"))


@pytest.fixture(scope="module")
def cluster():
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(fleet.cluster())
        except Exception as error:  # noqa: BLE001  no shared memory, no ports, too slow a machine
            pytest.skip(f"no Ray cluster starts here: {type(error).__name__}: {error}")
        yield made


def told(found):
    """A ranking without its date, and without latencies, which the models' arguments name."""
    ranking = json.loads(json.dumps(found["ranking"][quiz.TASK]))
    del ranking["date"]
    for model in ranking["config"]["models"]:
        del model["model_args"]["latency"]
    return ranking


def once_each(folder):
    asked = [(r["model"], r["doc_id"]) for r in fleet.records(folder) if r["type"] == "response"]
    return len(asked) == len(set(asked)) == 36


def test_a_run_on_a_cluster_equals_a_local_one_with_replicas_and_in_turns(
    place, task, logs, expected, cluster
):
    """Four places: one model takes three of them as replicas, and the others wait for room."""
    made, _ = cluster
    models = fleet.models(logs)
    models[1]["replicas"] = 3
    found = fleet.run(models, task, place / "ray", executor=f"ray:{made.address}")
    assert told(found) == expected
    assert once_each(place / "ray")
    kinds = [(r["type"], r["model"]) for r in fleet.records(place / "ray") if r.get("model")]
    assert {kind for kind, _ in kinds} >= {"response", "answer"}


def test_models_of_a_cluster_need_not_wait_for_each_other(place, task, logs, expected, cluster):
    """Of a fixed length and a bank that shares documents, async asks what lockstep asks."""
    made, _ = cluster
    found = fleet.run(
        fleet.models(logs), task, place / "async", executor=f"ray:{made.address}", schedule="async"
    )
    own = told(found)
    for one, other in zip(own["ranking"], expected["ranking"], strict=True):
        assert (one["model"], one["score"], one["items"]) == (
            other["model"], other["score"], other["items"],
        )  # fmt: skip
    assert once_each(place / "async")
    rounds = [r["round"] for r in fleet.records(place / "async") if r["type"] == "round"]
    taken = [r["round"] for r in fleet.records(place / "async") if r["type"] == "taken"]
    assert sorted(taken) == rounds


def test_processes_that_end_while_they_load_are_not_started_for_ever(logs, cluster):
    """Negative control: the same line with a class that loads is ready."""
    from ray.util.placement_group import placement_group

    made, _ = cluster
    ray.init(made.address, log_to_driver=False, ignore_reinit_error=True)

    class Ends:
        def facts(self):
            os._exit(1)

    class Loads:
        def facts(self):
            from types import SimpleNamespace

            return SimpleNamespace(node="here")

    def ready(kind):
        needs = {"CPU": 1.0}
        group = placement_group([needs])
        line = RayLine("m", ray.remote(kind), (), group, needs, 1, 0)
        deadline = time.monotonic() + 30
        try:
            while not line.ready(0.1):
                assert time.monotonic() < deadline
        finally:
            line.close()
        return True

    assert ready(Loads)
    with pytest.raises(ModelError, match="ended 3 times before it had loaded"):
        ready(Ends)
    ray.shutdown()


def test_a_driver_killed_goes_on_in_another_folder(place, task, logs, expected, cluster):
    made, _ = cluster
    first, second = place / "killed", place / "elsewhere"
    context = multiprocessing.get_context("spawn")
    child = context.Process(
        target=fleet.run,
        args=(fleet.models(logs, 0.15), task, first),
        kwargs={"executor": f"ray:{made.address}"},
    )
    child.start()
    deadline = time.monotonic() + 60
    while len(fleet.answers(first)) < 9 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(child.pid, signal.SIGKILL)
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    shutil.copytree(first, second)
    before = fleet.answers(second)
    assert 9 <= len(before) < 36, "it was killed on the way"
    models = fleet.models(logs, 0.15)
    found = fleet.run(models, task, second, executor=f"ray:{made.address}", resume=True)
    assert told(found) == expected
    assert once_each(second), "what had reached the driver was asked again"


def test_a_worker_and_a_node_killed_lose_nothing_and_change_nothing(
    place, task, logs, expected, cluster, caplog
):
    """The node is lost for good: its models go on in what is left, in turns."""
    made, (_, doomed) = cluster
    folder = place / "faults"

    def kill_worker():
        pid = fleet.workers(doomed)[1][0]
        os.kill(pid, signal.SIGKILL)
        return pid

    with (
        fleet.once(folder, 4, kill_worker) as worker,
        fleet.once(folder, 18, lambda: fleet.kill_node(doomed)) as node,
    ):
        found = fleet.run(fleet.models(logs, 0.2), task, folder, executor=f"ray:{made.address}")
    assert worker, "a worker was killed in a round"
    assert node[0], "a node with a model on it was killed in a round"
    assert told(found) == expected
    assert once_each(folder)
    gone = [each.getMessage() for each in caplog.records if "is gone" in each.getMessage()]
    # A node may be lost between two answers of its model, which then finds a new place unasked.
    assert gone, "what was met in a round is told"
    assert all("asking again" in each for each in gone)
