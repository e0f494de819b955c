"""What `docs/clusters.md` and `docs/serving.md` show has the form it should have."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from lm_eval_adaptive.host.settings import make_candidates

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks(page, kind):
    return re.findall(rf"```{kind}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def test_the_models_file_is_one():
    (text,) = blocks("serving.md", "yaml")
    first, second = make_candidates(yaml.safe_load(text), "docs/serving.md")
    assert [first.name, second.name] == ["a", "b"]
    assert first.model_args["num_concurrent"] == 32


def test_the_job_is_a_kubernetes_job():
    ray, job = (yaml.safe_load(text) for text in blocks("clusters.md", "yaml"))
    assert (ray["apiVersion"], ray["kind"]) == ("ray.io/v1", "RayJob")
    assert "--executor ray" in ray["spec"]["entrypoint"]
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    script = container["args"][0]
    assert "--resume /out/run" in script
    mounts = {each["name"] for each in container["volumeMounts"]}
    assert mounts == {each["name"] for each in job["spec"]["template"]["spec"]["volumes"]}
    subprocess.run(["sh", "-n", "-c", script], check=True)


def test_the_scripts_are_shell():
    for text in blocks("clusters.md", "bash"):
        subprocess.run(["bash", "-n", "-c", text], check=True)
