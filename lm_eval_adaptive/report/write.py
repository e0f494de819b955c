"""The report of a run or a bank as a file: a page, Markdown, CSV or a picture.

This module owns the forms that a report is written in, and where. It asks no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval_adaptive.errors import UsageError
from lm_eval_adaptive.report.forms import render_csv, render_markdown
from lm_eval_adaptive.report.input import views_of
from lm_eval_adaptive.report.page import write_text
from lm_eval_adaptive.report.run_page import render_page

if TYPE_CHECKING:
    from pathlib import Path

    from lm_eval_adaptive.report.input import Standings

FORMS = {
    "html": "report.html",
    "md": "report.md",
    "csv": "ranking.csv",
    "png": "ranking.png",
}


def write_report(
    source: Path,
    output: Path | None = None,
    form: str = "html",
    standings: Standings | None = None,
) -> Path:
    """Write the report of a run that is finished, going on, or was interrupted; or of a bank.

    Reads only: the journal of a run that is going on is not touched.

    Args:
        source: The run's ``--output_path``, one ranking file in it, or a bank (``.parquet``).
        output: The file to write, or a folder for it; None is ``report.html`` (``report.md``,
            ``ranking.csv``, ``ranking.png``) in the run's folder, and ``NAME.html`` beside a bank.
        form: ``html``, ``md``, ``csv`` or ``png``.
        standings: What tells how far the tasks are that have no ranking file.

    Returns:
        The file written.

    Raises:
        UsageError: There is no such file or folder, or no run in it, or no such form.
        DataError: A ranking file or the journal cannot be read.
        BankError: The bank cannot be read.
    """
    if form not in FORMS:
        raise UsageError(f"--format must be one of {', '.join(FORMS)}; got {form!r}")
    if source.suffix == ".parquet":
        return _write_bank(source, output, form)
    folder, views = views_of(source, standings or (lambda *_: {}))
    target = output or folder
    if target.is_dir():
        target /= FORMS[form]
    if form == "png":
        from lm_eval_adaptive.report.picture import write_picture

        return write_picture(target, views)
    render = {"html": render_page, "md": render_markdown, "csv": render_csv}[form]
    return write_text(target, render(views))


def _write_bank(source: Path, output: Path | None, form: str) -> Path:
    from lm_eval_adaptive.core.bank import ItemBank
    from lm_eval_adaptive.report.bank_page import write_bank_report

    if form != "html":
        raise UsageError(
            f"--format {form} is for runs; a bank's numbers are in `bank show {source} --json`"
        )
    target = output or source.with_suffix(".html")
    if target.is_dir():
        target /= source.with_suffix(".html").name
    return write_bank_report(ItemBank.load(source), target)
