"""Serves real weights on this machine and ranks live configurations of them adaptively.

Two servers hold the same weights, so that models behind different servers are asked side by side;
the configurations differ in prompt or generation settings, see ``models``.
Arguments are handed to ``lm-eval-adaptive run --adaptive``.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from servers import CONCURRENT, WEIGHTS, Server

from lm_eval_adaptive.cli.main import main


def models(ports: tuple[int, int]) -> list[dict[str, Any]]:
    """Candidates behind two servers, as a ``--models`` file lists them."""
    url, other_url = (f"http://127.0.0.1:{port}/v1" for port in ports)
    chat = {
        "model": "local-chat-completions",
        "model_args": {
            "model": "smollm2",
            "base_url": f"{url}/chat/completions",
            "num_concurrent": CONCURRENT,
            "max_retries": 3,
        },
        "apply_chat_template": True,
    }
    completion = {
        "model": "local-completions",
        "model_args": {
            "model": "smollm2",
            "base_url": f"{other_url}/completions",
            "num_concurrent": CONCURRENT,
            "max_retries": 3,
            "tokenizer_backend": None,
            "tokenized_requests": False,
        },
    }
    return [
        {"name": "live-chat", **chat},
        {"name": "live-chat-hot", **chat, "gen_kwargs": {"do_sample": True, "temperature": 1.5}},
        {"name": "live-chat-short", **chat, "gen_kwargs": {"max_gen_toks": 10}},
        {"name": "live-completion", **completion},
        {"name": "live-completion-short", **completion, "gen_kwargs": {"max_gen_toks": 10}},
    ]


def run(options: list[str]) -> int:
    """Serve, rank, end the servers."""
    os.environ.setdefault("OPENAI_API_KEY", "none")
    output = Path("live_output") / datetime.now().strftime("%Y-%m-%dT%H-%M-%S")  # noqa: DTZ005
    output.mkdir(parents=True)
    servers = [Server(WEIGHTS["smollm2"]()) for _ in range(2)]
    try:
        listed = output / "models.yaml"
        listed.write_text(
            yaml.safe_dump(models((servers[0].port, servers[1].port))), encoding="utf-8"
        )
        command = ["run", "--adaptive", "--tasks", "records_to_text", "--models", str(listed)]
        command += ["--output_path", str(output), "--max_items", "40", *options]
        return main(command)
    finally:
        for server in servers:
            server.close()


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
