"""Large logs on several cores: the same runs as read one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lm_eval_adaptive.banks.log_scores import score_matrix
from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.logs import find_runs

from ..fixtures.logs import TASK, sample, write_run  # noqa: TID252  a package of the tests alone

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path) -> Path:
    for place, model in enumerate(("a", "b", "c", "d", "e")):
        write_run(tmp_path, model, [sample(n, (n + place) / 9) for n in range(5)])
    return tmp_path


@pytest.fixture
def two_helpers(monkeypatch):
    monkeypatch.setattr("lm_eval_adaptive.host.logs.runs.helpers_for", lambda _: 2)


def test_helpers_give_the_runs_that_one_process_gives(folder, monkeypatch):
    alone = find_runs(folder, TASK)
    monkeypatch.setattr("lm_eval_adaptive.host.logs.runs.helpers_for", lambda _: 2)
    together = find_runs(folder, TASK)
    one, other = score_matrix(alone, "rougeL"), score_matrix(together, "rougeL")
    assert one.matrix.models == other.matrix.models == tuple("abcde")
    assert one.matrix.items == other.matrix.items
    assert one.matrix.scores.tolist() == other.matrix.scores.tolist()
    for name, column in one.matrix.item_attributes.items():
        assert column.tolist() == other.matrix.item_attributes[name].tolist()
    assert [run.sha256 for run in alone] == [run.sha256 for run in together]
    assert list(together[3].answers) == list(alone[3].answers)


@pytest.mark.usefixtures("two_helpers")
def test_a_helper_s_refusal_is_the_reader_s(folder):
    (file,) = (folder / "d").glob("samples_*")
    whole = file.read_text().splitlines()
    file.write_text("\n".join([whole[0], whole[1][:40], whole[2]]))
    with pytest.raises(DataError, match="line 2: is no JSON") as caught:
        find_runs(folder, TASK)
    assert str(file) in str(caught.value)
