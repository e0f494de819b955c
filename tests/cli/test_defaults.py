"""Every default and every list of choices stands once: --help tells what the classes do."""

from __future__ import annotations

import argparse

import pytest

from lm_eval_adaptive.banks.options import CalibrateOptions
from lm_eval_adaptive.cli.main import build_parser
from lm_eval_adaptive.core.plan import Plan
from lm_eval_adaptive.core.response import RESPONSE_MODELS
from lm_eval_adaptive.core.sampler import SAMPLERS
from lm_eval_adaptive.run.config import AdaptiveConfig


@pytest.fixture(scope="module")
def commands():
    _, subparsers = build_parser()
    return {
        name: {action.dest: action for action in parser._actions}
        for name, parser in subparsers.choices.items()
    }


TOLD = ("confidence", "correction", "pairs", "min_items", "futility")


@pytest.mark.parametrize("name", TOLD)
def test_the_help_of_a_run_tells_the_default_that_holds(commands, name):
    action = commands["run"][name]
    assert action.default is argparse.SUPPRESS, "what the user did not say, the class does"
    told = action.help.rpartition("(")[2].rstrip(")").removeprefix("default: ")
    assert told == str(getattr(AdaptiveConfig, name))


def test_the_core_and_the_options_have_the_same_defaults():
    rules = AdaptiveConfig().procedure(1.0, 1, 0)
    fresh = type(rules)(round_size=None)
    assert rules == fresh, "AdaptiveConfig without options is ProcedureConfig without options"


def test_choices_are_those_that_the_core_has(commands):
    assert set(commands["run"]["sampler"].choices) == {"auto", *SAMPLERS}
    for command in ("run", "calibrate"):
        assert set(commands[command]["response_model"].choices) == {"auto", *RESPONSE_MODELS}


def test_a_simulation_without_options_is_the_plan_without_options(commands):
    plan, options = Plan(), commands["simulate"]
    names = (
        "holdout",
        "calibration",
        "partitions",
        "seed",
        "confidence",
        "round_size",
        "max_items",
    )
    assert {name: options[name].default for name in names} == {
        name: getattr(plan, name) for name in names
    }
    assert tuple(options["items_per_model"].default) == plan.lengths
    assert tuple(options["methods"].default) == plan.methods


def test_a_calibration_without_options_is_that_of_its_class(commands):
    options = commands["calibrate"]
    plain = CalibrateOptions(task="", metric="")
    for name in ("response_model", "clip", "lower_is_better", "licence", "update"):
        assert options[name].default == getattr(plain, name), name
