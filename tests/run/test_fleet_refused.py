"""What a cluster refuses in one line before anything is asked, and what runs out of memory."""

from __future__ import annotations

import builtins
import socket

import pytest

from lm_eval_adaptive.errors import ModelError, UsageError
from lm_eval_adaptive.host.candidate import Candidate
from lm_eval_adaptive.host.registries import register_all
from lm_eval_adaptive.host.remote import Bite, ModelService, PlaceLostError, Question, travelling
from lm_eval_adaptive.host.settings import HarnessSettings, make_candidates
from lm_eval_adaptive.host.stop import Stop
from lm_eval_adaptive.run.config import AdaptiveConfig
from lm_eval_adaptive.run.executors import ray_checks
from lm_eval_adaptive.run.executors.local import Local
from lm_eval_adaptive.run.executors.ray import Fleet
from lm_eval_adaptive.run.executors.ray_checks import (
    Node,
    connect,
    here,
    needs_of,
    refuse_other_versions,
    replicas_of,
)
from tests.support import toy

GPUS = [Node("big", {"CPU": 16.0, "GPU": 8.0}), Node("small", {"CPU": 4.0, "GPU": 1.0})]
CPUS = [Node("one", {"CPU": 2.0}), Node("two", {"CPU": 2.0})]


@pytest.fixture(autouse=True)
def registered():
    register_all()
    toy.register()


def candidate(model="toy", settings=None, **more):
    (spec,) = make_candidates([{"name": "m", "model": model, **more}], "here")
    return Candidate(spec, settings or HarnessSettings())


def line(error):
    text = str(error.value)
    assert "\n" not in text
    return text


def test_without_ray_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def none(name, *args, **kwargs):
        if name == "ray":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", none)
    with pytest.raises(UsageError) as error:
        connect("")
    assert "lm-eval-adaptive[ray]" in line(error)


def test_no_cluster_at_the_address(monkeypatch):
    pytest.importorskip("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address, said in (
        (f"127.0.0.1:{port}", "no Ray cluster answers there"),
        ("nowhere", "expected ray:HOST:PORT"),
        ("127.0.0.1:99999", "no Ray cluster answers there"),
        ("ray://127.0.0.1:10001", "client port"),
    ):
        with pytest.raises(UsageError) as error:
            connect(address)
        assert said in line(error)


@pytest.mark.parametrize("name", ["python", "ray", "lm_eval", "lm-eval-adaptive"])
def test_other_versions_on_a_node(name, monkeypatch):
    monkeypatch.setattr(ray_checks, "version", lambda _: "1.0")
    refuse_other_versions("n1", here())
    with pytest.raises(UsageError) as error:
        refuse_other_versions("n1", {**here(), name: "0.9"})
    assert f"node n1 has {name} 0.9, the driver has" in line(error)
    with pytest.raises(UsageError, match="not installed"):
        refuse_other_versions("n1", {k: v for k, v in here().items() if k != name})


def test_a_model_takes_a_gpu_where_there_are_some_and_a_replayed_one_none():
    assert needs_of(candidate(), GPUS) == {"CPU": 1.0, "GPU": 1.0}
    assert needs_of(candidate(), CPUS) == {"CPU": 1.0}
    assert needs_of(candidate("replay"), GPUS) == {"CPU": 1.0}
    assert needs_of(candidate(model_args={"tensor_parallel_size": 4}), GPUS)["GPU"] == 4.0
    assert needs_of(candidate(resources={"num_gpus": 0.5}), GPUS)["GPU"] == 0.5


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"num_gpus": 9}, "9 GPU, and no node of the cluster has more than 8"),
        ({"num_cpus": 17}, "17 CPU, and no node of the cluster has more than 16"),
        ({"node:10.0.0.9": 0.001}, "0.001 node:10.0.0.9, and no node of the cluster has"),
    ],
)
def test_a_model_that_fits_on_no_node(resources, said):
    with pytest.raises(UsageError) as error:
        needs_of(candidate(resources=resources), GPUS)
    assert said in line(error)
    assert "big: 16 CPU 8 GPU" in line(error), "what there is is told"


def test_a_model_that_no_one_node_has_all_of():
    nodes = [Node("a", {"CPU": 8.0}), Node("b", {"CPU": 1.0, "GPU": 4.0})]
    with pytest.raises(UsageError) as error:
        needs_of(candidate(resources={"num_gpus": 4, "num_cpus": 8}), nodes)
    assert "no one node has all of it" in line(error)


def test_replicas_share_the_room():
    needs = {"m": {"CPU": 1.0}, "n": {"CPU": 1.0}}
    assert replicas_of(candidate(replicas=4), needs, CPUS) == 4
    assert replicas_of(candidate(replicas="auto"), needs, CPUS) == 2
    with pytest.raises(UsageError) as error:
        replicas_of(candidate(replicas=5), needs, CPUS)
    assert "asks for 5 replicas, and the cluster has room for 4" in line(error)


@pytest.mark.parametrize("value", [0, -1, "many", True, 1.5])
def test_replicas_that_are_no_number(value):
    with pytest.raises(UsageError, match="replicas must be a whole number above 0, or auto"):
        candidate(replicas=value)


@pytest.mark.parametrize(
    "value", [3, "two", {"num_gpus": -1}, {"num_gpus": 1.5}, {"num_gpus": "x"}]
)
def test_resources_that_are_no_amounts(value):
    with pytest.raises(UsageError, match="resources"):
        candidate(resources=value)


def test_what_has_no_replicas_is_refused_before_the_cluster_is_looked_for(monkeypatch):
    monkeypatch.setattr(toy.ToyLM, "keeps_state", True, raising=False)
    served = {"model_args": {"model": "x", "base_url": "http://127.0.0.1:9/v1/completions"}}
    cached = HarnessSettings(use_cache="db")
    for each, said in (
        (candidate(replicas=2), "keeps state"),
        (candidate("local-completions", replicas=2, **served), "num_concurrent"),
        (candidate(settings=cached), "--use_cache"),
    ):
        with pytest.raises(UsageError) as error:
            Fleet("127.0.0.1:1").open([each], Stop())
        assert said in line(error)


def test_a_local_run_has_neither_resources_nor_replicas():
    Local().open([candidate()], Stop())
    for more in ({"replicas": 2}, {"resources": {"num_gpus": 1}}):
        with pytest.raises(UsageError) as error:
            Local().open([candidate(**more)], Stop())
        assert "--executor ray" in line(error)


@pytest.mark.parametrize("value", ["slurm", "local:8", ""])
def test_an_executor_of_another_name(value):
    with pytest.raises(UsageError, match="--executor must be local, ray or ray:ADDRESS"):
        AdaptiveConfig(executor=value)
    assert "executor" not in AdaptiveConfig(executor="ray").choices(), "it changes no ranking"


class _Forgetful(toy.ToyLM):
    """Tells the harness's cache of each answer, and has no memory left at the third."""

    def generate_until(self, requests, disable_tqdm=False):
        for number, request in enumerate(requests):
            if number == 2:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            text = self.answer(request.doc)
            self.cache_hook.add_partial("generate_until", request.args, text)
        return []


def test_what_came_before_the_memory_ran_out_is_told_and_the_place_is_not_used_again(monkeypatch):
    from lm_eval.api.registry import model_registry

    if "forgetful" not in model_registry:
        model_registry.register("forgetful", target=_Forgetful)
    made = candidate("forgetful")
    service = ModelService(made.spec, travelling(made.settings))
    assert not service.facts().failed
    questions = tuple(
        Question(n, (f"p{n}", {}), {"target": f"word{n} and more"}, "t", n, 0) for n in range(4)
    )
    said = list(service.answer(Bite(questions, 0)))
    assert [each.place for each in said] == [0, 1, -1]
    assert said[-1].memory
    assert "out of memory" in said[-1].failed
    fleet, restarted = Fleet(""), []

    class Line:
        def restart(self):
            restarted.append(True)

    fleet._placed["m"] = made, Line()
    assert fleet.mend(made, PlaceLostError("gone"))
    assert not restarted
    assert fleet.mend(made, PlaceLostError("out of memory", spent=True))
    assert restarted
    assert not fleet.mend(made, ModelError("its own fault"))


def test_a_model_that_does_not_load_says_so_in_its_words():
    made = candidate("replay", model_args={"samples": "/nowhere"})
    facts = ModelService(made.spec, travelling(made.settings)).facts()
    assert "/nowhere" in facts.failed
    assert not facts.memory


def test_the_drivers_paths_stay_at_home():
    settings = HarnessSettings(include_path="/mine", output_path="/mine", tasks=("t",))
    assert "/mine" not in str(travelling(settings))
