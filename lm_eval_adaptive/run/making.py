"""``bank make``: models answer the same part of a benchmark, and a bank is made of it.

This module owns how far they are asked: in four steps up to the share that was named, the last ones
only where they would make the bank better. It is an adaptive run without a bank, of a length that
grows, so journal, resuming and files are those of any run. It imports the run and the forecast.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.core.making import Promise, promise
from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.run.loop import AdaptiveRun

if TYPE_CHECKING:
    from lm_eval_adaptive.run.contest import Contest, View
    from lm_eval_adaptive.run.loop import Opened

log = logging.getLogger(__name__)

STEPS = 4
# A first step of fewer documents shows nothing.
LEAST_STEP = 25


class MakingRun(AdaptiveRun):
    """A run whose models answer a share of the documents, the same ones; see the module.

    Attributes:
        said: What was decided after each step, a line each.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.said: list[str] = []
        heard = self._listen

        def listen(contest: Contest, event: str) -> None:
            heard(contest, event)
            if event == "round":
                self._go_on(contest)

        self._listen = listen

    def _open(self, manager: Any) -> Opened:
        opened = super()._open(manager)
        if len(opened) != 1:
            names = ", ".join(contest.task for _, contest in opened)
            raise UsageError(f"bank make takes one task, got {names}; make a bank for each")
        for _, contest in opened:
            self._ask_up_to(contest.first, self._lengths(contest.first)[0])
        return opened

    @staticmethod
    def _lengths(view: View) -> list[int]:
        """Documents after each step."""
        most = int(view.terms.options.items_per_model or 0)
        first = min(max(LEAST_STEP, most // STEPS), most)
        found = np.linspace(first, most, STEPS).round().astype(int)
        return sorted({int(each) for each in found})

    @staticmethod
    def _ask_up_to(view: View, length: int) -> None:
        config = view.procedure.config
        view.procedure.config = replace(config, items_per_model=length)

    def _go_on(self, contest: Contest) -> None:
        """After the last round of a step: whether there is another one."""
        view = contest.first
        state, length = view.state, int(view.procedure.config.items_per_model or 0)
        active = ~state.failed
        later = [each for each in self._lengths(view) if each > length]
        if not later or not active.any() or (state.asked[active] < length).any():
            return
        told = promise(state.responses[active], len(view.doc_ids), later[0])
        go_on = told is None or told.pays
        self._say(contest, length, told, later[0] if go_on else None)
        if go_on:
            self._ask_up_to(view, later[0])

    def _say(self, contest: Contest, length: int, told: Promise | None, then: int | None) -> None:
        if told is None:
            line = "too few models or documents to tell how good the bank will be"
        else:
            width = contest.first.terms.scale.width
            line = (
                f"tests of 20 items would err by {told.error * width:.3g} "
                f"({told.within * width:.3g} on these documents, {told.beyond * width:.3g} for the "
                f"others; held-out correlation {told.correlation:.2f})"
            )
        what = f"going on to {then}" if then else "more would not pay"
        said = f"{length} documents: {line}; {what}"
        self.said.append(said)
        log.warning("%s: %s", contest.task, said)
