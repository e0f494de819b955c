"""A bank in the terminal, and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lm_eval_adaptive.report.texts import console_of_users, printable

if TYPE_CHECKING:
    from lm_eval_adaptive.core.bank import ItemBank


def show_bank(bank: ItemBank) -> None:
    """Print what a bank holds."""
    from rich.table import Table
    from rich.text import Text

    console = console_of_users()
    info = bank.info
    arrow = "higher is better" if info.scale.higher_is_better else "lower is better"
    version = f" version {info.task_version}" if info.task_version else ""
    lines = [
        f"bank      {bank.path} (sha256 {bank.sha256[:12]})",
        f"task      {info.task}{version}",
        (
            f"metric    {info.metric}, filter {info.filter}, {arrow}, range {info.scale.lo:g} to "
            f"{info.scale.hi:g} ({info.range_source}), {info.clipped:.1%} of the scores clipped"
        ),
        f"model     {info.response_model}",
        f"items     {len(bank)}, of which {int(bank.kept.sum())} may be asked",
        f"difficulty     {_spread(bank.parameters.difficulty)}",
        f"discrimination {_spread(bank.parameters.discrimination)}",
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True, highlight=False)
    table = Table(title="calibration models")
    for name in ("model", "score", "ability", "items"):
        table.add_column(name, justify="left" if name == "model" else "right", overflow="fold")
    for model in sorted(info.models, key=lambda each: -each.mean_score):
        table.add_row(
            Text(printable(model.name)),
            f"{model.mean_raw:.4g}",
            f"{model.theta:+.2f}",
            str(model.n_scores),
        )
    console.print(table)
    for notice in info.notices:
        console.print(f"notice: {notice}", markup=False, soft_wrap=True)


def _spread(values: Any) -> str:
    low, middle, high = np.percentile(values, [5, 50, 95])
    return f"median {middle:.2f}, 5 % {low:.2f}, 95 % {high:.2f}"


def bank_as_json(bank: ItemBank) -> dict[str, Any]:
    """A bank as plain data: its information and one mapping per item."""
    from lm_eval_adaptive.core.bank_info import info_to_json

    def number(value: float) -> float | None:
        return None if not np.isfinite(value) else float(value)

    return {
        "path": bank.path,
        "sha256": bank.sha256,
        "info": info_to_json(bank.info),
        "items": [
            {
                "doc_id": int(bank.doc_id[row]),
                "content_hash": bank.content_hash[row],
                "difficulty": float(bank.parameters.difficulty[row]),
                "difficulty_se": float(np.sqrt(bank.parameters.covariance[row, 0, 0])),
                "discrimination": float(bank.parameters.discrimination[row]),
                "discrimination_se": float(np.sqrt(bank.parameters.covariance[row, 1, 1])),
                "noise": float(bank.parameters.noise[row]),
                "n_scores": int(bank.n_scores[row]),
                "mean_score": number(bank.mean_score[row]),
                "item_rest_correlation": number(bank.item_rest_correlation[row]),
                "kept": bool(bank.kept[row]),
                "reason": bank.reason[row],
            }
            for row in range(len(bank))
        ],
    }
