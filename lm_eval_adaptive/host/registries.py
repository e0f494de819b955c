"""What this package adds to the harness's registries: the replay model and its metrics."""

from __future__ import annotations


def register_all() -> None:
    """Make the replay model and this package's metrics known to the harness."""
    from lm_eval_adaptive.host.replay import register
    from lm_eval_adaptive.metrics import register as register_metrics

    register()
    register_metrics()
