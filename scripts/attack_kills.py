"""Kill runs of a served task at random instants, resume them, and count what is wrong.

``python scripts/attack_kills.py --kills 100`` prints a line per run and the count; the exit code is
1 where anything was lost, asked twice, or ranked otherwise than by the unbroken run. Needs the
tests' packages, no network and no model: the server of the models is the tests' own.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("OPENAI_API_KEY", "none")

from tests.support import kills, quiz

PER_RUN = 5  # kills of one run before it is let finish


def main() -> int:
    """Attack as long as asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    draw = random.Random(given.seed).random
    done = alive = 0
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name, quiz.Server(wait=0.03) as server:
        folder = Path(name)
        task = quiz.make_task(folder / "task")
        whole = {
            chat: kills.run(task, server.port, folder / f"whole-{chat}", chat=chat)
            for chat in (True, False)
        }
        while done < given.kills:
            chat = bool(done // PER_RUN % 2)
            server.asked.clear()
            server.answered.clear()
            found, hit = kills.attack(
                task, server, folder / f"run-{done}", PER_RUN, draw, whole[chat], chat=chat
            )
            done, alive, wrong = done + PER_RUN, alive + hit, wrong + found
            print(f"{done} kills, {alive} of running processes, {len(wrong)} wrong {found}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
