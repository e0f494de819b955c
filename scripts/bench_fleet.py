r"""A simulated fleet: many models on few or many GPUs, by the real choice of what is asked.

    python scripts/bench_fleet.py --models 100 --items 1000 --gpus 1 8 64

Models answer from a made-up matrix of scores; the procedure of a run (``core/procedure.py``) says
who is asked what in each round, and a clock that nobody waits for says how long that takes: loading
a model, reading prompts, writing answers, a batch of which takes as long as its longest. On G GPUs
a round's models are packed, those that are loaded first; a model that is not loaded pays its load.
*full* has each model loaded once and asked everything; *rounds* is what an adaptive run does
(lockstep: a round begins when the last one's answers are all there); *own time* is what the package
itself took on this machine, and is not in the others. *no waiting* is a bound: the same answers and
loads with GPUs never idle.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from lm_eval_adaptive.core.build import calibrate
from lm_eval_adaptive.core.matrix import ScoreMatrix
from lm_eval_adaptive.core.procedure import Procedure
from lm_eval_adaptive.core.rules import ProcedureConfig
from lm_eval_adaptive.core.state import Stop

CALIBRATING = 17


@dataclass(frozen=True)
class Speeds:
    """How long models take, seconds and tokens.

    Attributes:
        load: Loading each model, shape (m,).
        prompt: Reading a prompt.
        token: Writing a token of every answer of a batch.
        tokens: Tokens of each answer, shape (m, n).
        batch: Answers at once.
    """

    load: np.ndarray
    prompt: float
    token: np.ndarray
    tokens: np.ndarray
    batch: int

    @classmethod
    def of(cls, models: int, items: int, batch: int, rng: np.random.Generator) -> Speeds:
        """Models of 1 to 70 billion weights, answers of about 120 tokens."""
        size = np.exp(rng.uniform(np.log(1.0), np.log(70.0), models))
        return cls(
            load=20.0 + 2.0 * size,
            prompt=0.02,
            token=0.008 + 0.0006 * size,
            tokens=rng.lognormal(np.log(110.0), 0.5, (models, items)),
            batch=batch,
        )

    def answering(self, model: int, items: list[int]) -> float:
        """Seconds that a model takes to answer some documents, in batches."""
        own = self.tokens[model, items]
        starts = range(0, len(items), self.batch)
        longest = sum(float(own[start : start + self.batch].max()) for start in starts)
        return len(items) * self.prompt + longest * float(self.token[model])


class Fleet:
    """GPUs, each with the model that it holds and when it is free."""

    def __init__(self, gpus: int, speeds: Speeds) -> None:
        self.speeds = speeds
        self.free = np.zeros(gpus)
        self.holds = np.full(gpus, -1)
        self.loads, self.busy = 0, 0.0

    def play(self, asks: dict[int, list[int]], begin: float) -> float:
        """When a round that begins then is over: models that are loaded go first."""
        waiting = sorted(asks, key=lambda model: (model not in self.holds, model))
        end = begin
        for model in waiting:
            own = np.flatnonzero(self.holds == model)
            place = int(own[0]) if len(own) else int(np.argmin(np.maximum(self.free, begin)))
            start = max(float(self.free[place]), begin)
            took = self.speeds.answering(model, asks[model])
            if self.holds[place] != model:
                took += float(self.speeds.load[model])
                self.loads += 1
                self.holds[place] = model
            self.free[place] = start + took
            self.busy += took
            end = max(end, start + took)
        return end


def main() -> int:
    """Simulate, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--round_size", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    m, n = args.models, args.items
    theta = rng.normal(size=CALIBRATING + m)
    height, slope = rng.normal(0.3, 1.0, n), np.exp(rng.normal(-0.2, 0.3, n))
    mean = 1.0 / (1.0 + np.exp(-(slope * theta[:, None] + height)))
    scores = np.clip(mean + rng.normal(0.0, 0.15, mean.shape), 0.0, 1.0)
    names = tuple(f"m{row:03d}" for row in range(CALIBRATING))
    items = tuple(f"i{column:05d}" for column in range(n))
    bank = calibrate(
        ScoreMatrix(names, items, scores[:CALIBRATING]),
        task="t",
        metric="m",
        score_range=(0.0, 1.0),
        response_model="robust-2pl",
    )
    truth = scores[CALIBRATING:]
    speeds = Speeds.of(m, n, args.batch, rng)
    everything = {model: list(range(n)) for model in range(m)}
    print(f"{m} models, {n} documents, batches of {args.batch}")
    print("| GPUs | how | hours | GPU hours | loads | answers | no waiting, hours |")
    print("|---|---|---|---|---|---|---|")
    for gpus in args.gpus:
        fleet = Fleet(gpus, speeds)
        over = fleet.play(everything, 0.0)
        print(
            f"| {gpus} | full | {over / 3600:.2f} | {fleet.busy / 3600:.2f} | {fleet.loads} | "
            f"{m * n:,} | {fleet.busy / gpus / 3600:.2f} |",
            flush=True,
        )
    for size in args.round_size:
        config = ProcedureConfig(round_size=size, seed=args.seed)
        procedure = Procedure.for_bank(bank, np.ones(m), config)
        state = procedure.start()
        fleets = [Fleet(gpus, speeds) for gpus in args.gpus]
        clocks = [0.0] * len(fleets)
        began, rounds = time.process_time(), 0
        while not isinstance(step := procedure.next(state), Stop):
            asks = {ask.model: list(ask.items) for ask in step.asks}
            for ask in step.asks:
                for item in ask.items:
                    state.record(ask.model, item, float(truth[ask.model, item]))
            clocks = [fleet.play(asks, clock) for fleet, clock in zip(fleets, clocks, strict=True)]
            rounds += 1
        own = time.process_time() - began
        for fleet, clock, gpus in zip(fleets, clocks, args.gpus, strict=True):
            print(
                f"| {gpus} | rounds of {size} | {clock / 3600:.2f} | {fleet.busy / 3600:.2f} | "
                f"{fleet.loads} | {int(state.administered.sum()):,} | "
                f"{fleet.busy / gpus / 3600:.2f} |",
                flush=True,
            )
        decided = sum(
            pair.verdict != "undecided" for pair in procedure.pairs(state) if pair.required
        )
        print(
            f"  {rounds} rounds, own time {own:.0f} s of processor, {decided} of {m - 1} "
            f"neighbours told apart, {step.reason}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
