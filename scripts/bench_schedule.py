"""Wall time of both schedules, eight models of unequal latency: docs/clusters.md.

    python scripts/bench_schedule.py

Toy models of the tests answer 60 documents each of ``records_to_text``, .02 to .2 s an answer, in
rounds of four. Printed beside the slowest model's own answering time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LATENCIES = (0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.12, 0.2)


def main() -> int:
    """Run both, print."""
    sys.path.insert(0, str(ROOT))
    from lm_eval_adaptive.api import simple_evaluate
    from lm_eval_adaptive.run.config import AdaptiveConfig
    from tests.support import toy

    toy.register()
    kind: Any = toy.ToyLM
    plain, spent = kind.generate_until, dict.fromkeys(range(len(LATENCIES)), 0.0)

    def slow(self: Any, requests: Any, **_: Any) -> Any:
        took = LATENCIES[int(self.name)] * len(requests)
        spent[int(self.name)] += took
        time.sleep(took)
        return plain(self, requests)

    kind.side_by_side, kind.generate_until = True, slow
    names = {str(place): 0.3 + 0.06 * place for place in spent}
    for schedule in ("lockstep", "async"):
        spent.update(dict.fromkeys(spent, 0.0))
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            simple_evaluate(
                toy.models(names),
                [toy.TASK],
                AdaptiveConfig(items_per_model=60, round_size=4, schedule=schedule),
                output_path=f"{folder}/out",
            )
            wall = time.perf_counter() - began
        most = max(spent.values())
        print(
            f"{schedule}: {wall:.1f} s, {wall / most:.2f} of the slowest model's own {most:.1f} s"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
