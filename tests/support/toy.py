"""Toy models of known order, and a bank calibrated on them, for tests of the harness layer.

A toy model answers with a share of the words of the document's target, so its ROUGE-L grows with
that share. It sees the document through the request, which no real model could.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
from lm_eval.api.model import LM

ROOT = Path(__file__).resolve().parents[2]
TASK = "records_to_text"


class ToyLM(LM):
    """Keeps each word of the target with probability ``share``, drawn from the document's hash."""

    calls: ClassVar[list[tuple[str, int]]] = []

    def __init__(
        self,
        share=0.5,
        name="toy",
        fail_after=None,
        fail_file=None,
        wait=0.0,
        empty=False,
        none=False,
        batch_size=None,
        device=None,
        max_batch_size=None,
    ):
        super().__init__()
        self.share = float(share)
        self.name = name
        self.fail_after = None if fail_after is None else int(fail_after)
        self.fail_file = fail_file
        self.wait = float(wait)
        self.empty, self.none = empty, none
        self.asked = 0

    def answer(self, doc):
        seed = hashlib.sha256(f"{self.name}{json.dumps(doc, sort_keys=True)}".encode()).digest()
        rng = np.random.default_rng(list(seed))
        words = doc["target"].split()
        kept = [word if rng.random() < self.share else "um" for word in words]
        return " ".join(kept)

    def generate_until(self, requests, disable_tqdm=False):
        if self.fail_file and Path(self.fail_file).exists():
            raise RuntimeError("the card fell out of the bus")
        time.sleep(self.wait)
        found = []
        for request in requests:
            self.asked += 1
            if self.fail_after is not None and self.asked > self.fail_after:
                raise RuntimeError("the card fell out of the bus")
            ToyLM.calls.append((self.name, request.doc_id))
            found.append("" if self.empty else None if self.none else self.answer(request.doc))
        return found

    def loglikelihood(self, requests, disable_tqdm=False):
        raise NotImplementedError

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        raise NotImplementedError

    @property
    def tokenizer_name(self):
        return "toy"

    def chat_template(self, chat_template=False):
        return "toy-template"

    def apply_chat_template(self, chat_history, add_generation_prompt=True):
        return (
            "".join(f"<{turn['role']}>{turn['content']}" for turn in chat_history) + "<assistant>"
        )


def register():
    import lm_eval.models  # noqa: F401  the harness's own models have to be registered first
    from lm_eval.api.registry import model_registry

    if "toy" not in model_registry:
        model_registry.register("toy", target=ToyLM)


# Shares of the calibration models and of those to be ranked; the latter's true order is by share.
CALIBRATION = {f"cal-{share:.2f}": share for share in np.linspace(0.2, 0.9, 8)}
RANKED = {"weak": 0.4, "middle": 0.53, "strong": 0.66}


def models(names=RANKED):
    return [
        {"name": name, "model": "toy", "model_args": {"share": share, "name": name}}
        for name, share in names.items()
    ]


def command(*words, hash_seed="0", check=True, cwd=None):
    """Run the command line in a process of its own, with the toy models known to it."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from tests.support import toy; toy.register();"
        "from lm_eval_adaptive.cli.main import main; sys.exit(main(sys.argv[2:]))"
    )
    env = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "COLUMNS": "100",
    }
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), *map(str, words)],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if check and done.returncode:
        raise AssertionError(f"exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def candidate_words(names=RANKED):
    words = []
    for name, share in names.items():
        words += [
            "--model",
            "toy",
            "--model_args",
            f"share={share},name={name}",
            "--model_name",
            name,
        ]
    return words


def ranking_of(folder, task=TASK):
    (path,) = Path(folder).glob(f"ranking_{task}_*.json")
    return json.loads(path.read_text())


def undated(ranking):
    return {key: value for key, value in ranking.items() if key != "date"}


def journal(folder):
    """The lines of a journal as anybody's JSON reader has them."""
    lines = (Path(folder) / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]
