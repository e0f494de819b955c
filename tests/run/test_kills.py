"""Signals and kills: nothing that came is lost, nothing that is known is asked again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from lm_eval_adaptive.host.stop import Stop
from lm_eval_adaptive.run.stopping import heeding_signals
from tests.support import kills, quiz, toy

pytest.importorskip("aiohttp")

SEED = 20261201


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    return quiz.make_task(tmp_path_factory.mktemp("quiz"))


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def test_20_kills_at_random_instants_change_nothing_and_ask_nothing_twice(task, tmp_path):
    draw = random.Random(SEED).random
    hit = 0
    for chat in (True, False):
        with quiz.Server(wait=0.03) as server:
            expected = kills.run(task, server.port, tmp_path / f"whole-{chat}", chat=chat)
            for number in range(2):
                folder = tmp_path / f"{chat}-{number}"
                server.asked.clear()
                server.answered.clear()
                wrong, alive = kills.attack(task, server, folder, 5, draw, expected, chat=chat)
                assert not wrong, (chat, number, wrong)
                hit += alive
    assert hit >= 10, "most runs were alive when the signal came"


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 143, "stopped by SIGHUP"),
        (signal.SIGINT, 130, "stopped by you"),
    ],
)
def test_a_signal_waits_for_what_is_out_writes_it_and_says_how_to_go_on(
    task, tmp_path, number, code, said
):
    """Four requests are out at a time: those in flight when the signal comes are not lost."""
    folder = tmp_path / "out"
    with quiz.Server(wait=0.5) as server:
        url = f"base_url=http://127.0.0.1:{server.port}/v1/chat/completions"
        child = subprocess.Popen(
            [
                sys.executable, "-m", "lm_eval_adaptive", "run", "--adaptive", "--tasks", quiz.TASK,
                "--include_path", task, "--bank", "none", "--metric", "score", "--range", "0,1",
                "--items_per_model", "40", "--round_size", "40", "--apply_chat_template",
                "--model", "local-chat-completions", "--model_name", "a-0.8",
                "--model_args", f"model=a-0.8,num_concurrent=4,{url}",
                "--output_path", str(folder),
            ],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(toy.ROOT)},
        )  # fmt: skip
        deadline = time.monotonic() + 90
        while len(server.answered) < 6 and time.monotonic() < deadline:
            time.sleep(0.02)
        child.send_signal(number)
        _, stderr = child.communicate(timeout=40)
        answered, asked = set(server.answered), len(server.asked)
    assert child.returncode == code, stderr
    assert "Traceback" not in stderr
    last = stderr.splitlines()[-1]
    assert said in last
    assert f"--resume {folder}" in last
    assert "waiting at most 30 s for what is out" in stderr
    assert kills.held(folder) == answered, "every answer that came is in the journal"
    assert 6 <= len(answered) < 40
    assert asked == len(answered), "nothing was asked after the signal"


def signalled(*numbers):
    """This process, when signals come and it has nothing else to do."""
    for number in numbers:
        os.kill(os.getpid(), number)
    time.sleep(30)


def test_a_second_signal_and_the_end_of_patience_stop_at_once():
    stop = Stop(grace=60.0)
    with heeding_signals(stop), pytest.raises(KeyboardInterrupt):
        signalled(signal.SIGTERM, signal.SIGTERM)
    assert stop.wanted
    before = signal.getsignal(signal.SIGTERM)
    assert before == signal.SIG_DFL, "handlers are put back"
    started = time.monotonic()
    with heeding_signals(Stop(grace=0.1)), pytest.raises(KeyboardInterrupt):
        signalled(signal.SIGTERM)
    assert time.monotonic() - started < 10


def test_while_a_model_loads_a_signal_is_heard_at_once():
    stop = Stop()
    stop.at_once = True
    with heeding_signals(stop), pytest.raises(KeyboardInterrupt):
        signalled(signal.SIGINT)


def test_other_threads_than_the_main_one_change_no_handler():
    found = []

    def look():
        with heeding_signals(Stop()):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.SIG_DFL]
