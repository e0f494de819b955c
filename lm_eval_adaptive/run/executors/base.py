"""What an executor has to offer: a place for a model, and whether others can be asked meanwhile.

This module owns the protocol between the asking of models (``run/asking.py``: threads, retries,
what is noted) and whoever loads them. The driver alone writes the journal: an executor brings
models, it notes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lm_eval_adaptive.host.candidate import Candidate
    from lm_eval_adaptive.host.stop import Stop


class Executor(Protocol):
    """Where models live.

    Attributes:
        loads: How often a model was loaded.
    """

    loads: int

    def open(self, candidates: Sequence[Candidate], stop: Stop) -> None:
        """Look at all that is known before anything is asked, and get ready.

        Raises:
            UsageError: A model cannot be placed, or the cluster is not one to run on.
        """

    def takes_turns(self, candidate: Candidate) -> bool:
        """Whether a model is asked alone, in the caller's thread, after the others."""

    def bring(self, candidate: Candidate) -> None:
        """Load a model if it is not loaded, putting others away as needed; called from any thread.

        Raises:
            ModelError: It does not load, or no place came free.
        """

    def leave(self, candidate: Candidate) -> None:
        """A model has answered what it was brought for; its place may go to another."""

    def mend(self, candidate: Candidate, error: BaseException) -> bool:
        """Whether a failure was the place's, not the model's, so that asking again may help."""

    def close(self) -> None:
        """Give every place back."""
