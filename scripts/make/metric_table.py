"""Writes ``docs/metrics.md``: which metrics of the harness's generation tasks can rank models.

    python scripts/make/metric_table.py [--output docs/metrics.md] [--json every_task.json]

Every generation task of the installed lm_eval is read, its YAML only: no data is loaded and no
function of a task is imported. A metric that the harness has by name is called on a sample answer,
and what it gives is put through the score adaptor that runs and calibration use.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections import Counter, defaultdict
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import DataError
from lm_eval_adaptive.host.scoring import CORPUS_METRICS, document_score
from lm_eval_adaptive.metrics import METRICS, register
from lm_eval_adaptive.metrics.words import UNSPACED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "docs" / "metrics.md"
YES, MAYBE, NO = "yes", "if numbers", "no"
# Aggregations that can only take a number per document.
_OF_NUMBERS = {"mean", "nanmean", "median"}
_SAMPLE = "a sample answer of six words"
# Metrics with fewer tasks than this share a line.
_FEW = 30
_EXAMPLES = 3

_ALONE = (
    "*Pair, scored alone*: the harness keeps reference and answer and computes one corpus "
    "score; here each document is scored alone, BLEU with effective order."
)
_SEVERAL = (
    "Where a document has several targets and the task has no `process_results`, the harness "
    "itself makes any metric 0 or 1; a metric of this package takes the best of them."
)
_HELPER = (
    "In a helper, `document_metrics(NAME, …)`; those that need references at most also by name "
    "in a `metric_list`. A round of answers is scored in one batch."
)
_BLANK = (
    "A blank answer has the worst value of the range (`bertscore_diff`: 0.5, as its formula "
    "says). No reference, or no verdict of a judge: no score, and the reason is kept. "
    "Several references: the best counts. In a plain run, where such documents occur, say "
    "`aggregation: nanmean` (or `mean_of_scored`, of this package, which does not bootstrap): the "
    "harness's `mean` of them is NaN. Lone surrogates in answers are read as U+FFFD."
)
_WORDS = """## Words, and other languages

`rouge1`, `rouge2`, `rougeL` compare words. On ASCII texts they are those of `rouge-score` and the
values equal its own to the last bit: lower case, runs of `a-z0-9`. On other texts likewise over all
of Unicode, where `rouge-score` drops every letter beyond ASCII:

1. NFC; lower case (İ as i); format characters out (soft hyphen, the joiners of Persian and Hindi,
   marks of direction, variation selectors), but for the zero-width space, which separates.
2. Digits of every script as 0 to 9: `१९६१` and `1961` are one word.
3. A word is a run of letters and digits with the marks on them (category M): the vowel signs of
   Hindi and Tamil, the points of Hebrew and Arabic belong to their letter. All else separates:
   punctuation (apostrophes too), symbols, emoji.
4. Scripts written without spaces are cut by characters, each with its marks:
   UNSPACED
   The vowels ำ and ຳ stay with their consonant, Khmer and Myanmar letters with those stacked below
   them; the vowels that Unicode calls letters (Thai า, เ) are characters of their own. Hangul and
   Vietnamese have spaces, and are cut there. A Latin name or a number between them is one word.

No stemming. `tests/golden/rouge_scripts.json` has values in twelve scripts from words cut by hand.

`sentence_bleu` takes sacrebleu's tokenizer `13a`, or `char` where more than half of the reference's
letters are of those scripts; `sentence_chrf` compares characters in any script. `span_score`
compares texts after case folding, NFC and with runs of spaces as one.

`fkgl` counts syllables as English has them. An answer less than half of whose letters are Latin
has the worst value; answers of 20 words and more with hardly a common English word are graded and
counted, and a warning says how many there were. Use it on English.

BERTScore reads as many tokens as its model has positions (`roberta-large`: 512) and compares the
beginnings alone of longer texts; a warning says how many were cut. Models known to read English
alone (`roberta-large`, the default, among them) get a warning with references in other scripts.
COMET's encoder cuts likewise, inside its package, and is not counted.
"""
_JUDGE = """## The judge

Settings under `metadata.metrics.judge` of the task's YAML:

| setting | default | |
|---|---|---|
| `rubric` | – | Jinja2 template of the request; sees the document's columns and `answer` |
| `scale` | [1, 10] | lowest and highest verdict |
| `model`, `base_url` | –, OpenAI's | or `LMEVAL_ADAPTIVE_JUDGE_MODEL`, `…_JUDGE_URL` |
| `system` | – | system message |
| `harness`, `model_args` | – | a model of the harness in place of a server |
| `max_tokens` | 256 | longest reply |
| `max_tokens_again` | 4096 | longest reply of the second attempt, 0 for none |
| `reasoning_effort` | – | sent as it is; or `LMEVAL_ADAPTIVE_JUDGE_REASONING_EFFORT` |
| `agreement` | 0 | documents to judge twice; or `LMEVAL_ADAPTIVE_JUDGE_AGREEMENT=20` |
| `concurrency` | 8 | requests at once |
| `retries`, `backoff`, `patience` | 14, 1 s, 600 s | see below |
| `timeout` | 120 s | for one reply |

**Verdict.** The last `Score: 7` (`Rating`, `Verdict`, `Grade`; `7/10`, `[[7]]`, JSON) of the reply
after its reasoning (`<think>…</think>` and its like), or a number that is the whole reply. A reply
that ended for length (`finish_reason: length`, or reasoning without an end) is no verdict, whatever
numbers stand in it: it is asked for again with `max_tokens_again`, and missing if that is cut too.

**Agreement.** The first `agreement` documents of a run are judged twice; on how many the verdicts
are the same, and how far apart they lie, is told. The first verdict counts.

**Dialects.** The request has temperature 0 and `max_tokens`. A server that refuses `max_tokens` by
name gets `max_completion_tokens`; one that refuses temperature gets none, and a warning says that
verdicts may differ between calls.

**Failures.** Servers that are busy or away (no connection, 408, 409, 425, 429, 5xx, an `error` body
with status 200) are asked again up to `retries` times, after waits that double from `backoff` to a
minute, with up to a quarter of jitter, or for as long as `Retry-After` says, and for `patience`
seconds of waiting in all. Replies without content have been paid for and are asked for twice more.
What then still fails (or is refused: too long, content policy) is that document's missing score
where the judge answers a short request beside it; where it does not, the run stops and can be
resumed. 401, 404 and redirects end it at once. Replies are cached as they come.

**Keys.** The key is `OPENAI_API_KEY`, or user and password in the address, which may carry a signed
query. None of them is written into messages, logs, signatures or the cache, nor what a server
repeats of them; redirects are not followed, so that no key goes elsewhere.
"""
_PLUGIN = """## In the plain harness

By name in a YAML once this package's command line runs, or from lm_eval's main branch of September
2026 on, which reads entry points, in plain `lm_eval` too: the metrics above that need references at
most; the filter `after_reasoning`, which drops `<think>…</think>` and its like
from answers (one cut in its reasoning is empty); the aggregation `mean_of_scored`. Before that,
`metric: !function lm_eval_adaptive.metrics.registry.rougeL` works anywhere.
"""


@dataclass(frozen=True)
class Verdict:
    """What can be said of a metric of a task from its configuration alone.

    Attributes:
        metric: Its name.
        shape: Where its value for a document comes from.
        works: YES, MAYBE or NO.
        why: The reason where it is not YES.
    """

    metric: str
    shape: str
    works: str
    why: str = ""


def _is_function(value: object, folder: str = "/") -> bool:
    """A ``!function`` that was not resolved: the YAML reader leaves a path."""
    return callable(value) or (isinstance(value, str) and folder in value)


def _short(value: object) -> str:
    return str(value).rsplit("/", 1)[-1].rpartition(".")[2] if value else ""


def _from_hub(name: str) -> Verdict:
    why = "fetched at run time, which takes a network; a metric of this package takes none"
    return Verdict(name, "hub: `evaluate.load`", MAYBE, why)


def _by_name(name: str) -> Verdict:
    """A metric of the registry, called on a sample as the harness calls it."""
    from lm_eval.api.registry import metric_registry

    if name not in metric_registry:
        return _from_hub(name)
    function = metric_registry.get(name)
    try:
        value = function(references=[_SAMPLE], predictions=[_SAMPLE])
    except TypeError:
        value = function([_SAMPLE, _SAMPLE])
    if isinstance(value, dict):
        value = value[name]
    shape = "harness metric: pair, scored alone" if name in CORPUS_METRICS else "harness metric"
    try:
        document_score(name, value)
    except DataError as error:
        reason = str(error).split(": it ", 1)[-1].split("; choose")[0]
        return Verdict(name, shape, NO, reason)
    return Verdict(name, shape, YES)


def metric_verdict(entry: Mapping[str, Any], *, own_results: bool) -> Verdict:
    """The verdict on one entry of a ``metric_list``.

    Args:
        entry: The entry, functions unresolved.
        own_results: Whether the task has a ``process_results`` of its own.
    """
    name, aggregation = entry.get("metric"), entry.get("aggregation")
    unclear = (
        "its own aggregation takes whatever the function gives for a document; `calibrate` says "
        "at the first document whether that is a number"
    )
    if own_results:
        name = str(name)
        if aggregation in _OF_NUMBERS or (aggregation is None and name not in CORPUS_METRICS):
            return Verdict(name, "task's process_results, averaged", YES)
        if isinstance(aggregation, str) and not _is_function(aggregation):
            try:
                document_score(name, (_SAMPLE, _SAMPLE))
            except DataError:
                return Verdict(name, f"task's process_results, {aggregation}", MAYBE, unclear)
            return Verdict(name, "task's process_results: pair, scored alone", YES)
        return Verdict(name, "task's process_results, own aggregation", MAYBE, unclear)
    if entry.get("hf_evaluate"):
        return _from_hub(str(name))
    if _is_function(name):
        if aggregation in _OF_NUMBERS:
            return Verdict(_short(name), "task's metric function, averaged", YES)
        return Verdict(_short(name), "task's metric function, own aggregation", MAYBE, unclear)
    return _by_name(str(name))


def task_verdicts(config: Mapping[str, Any]) -> list[Verdict]:
    """The verdicts on all metrics of a task's configuration."""
    # The harness's own default for generation tasks.
    entries = config.get("metric_list") or [{"metric": "exact_match"}]
    own = config.get("process_results") is not None
    return list(dict.fromkeys(metric_verdict(entry, own_results=own) for entry in entries))


def generation_tasks() -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Configurations of all generation tasks of the installed lm_eval, and tasks in Python."""
    import lm_eval.tasks
    from lm_eval.tasks._index import Kind, TaskIndex

    index = TaskIndex.build([Path(lm_eval.tasks.__file__).parent])
    configs, classes = {}, []
    for name, entry in sorted(index.items()):
        config = entry.cfg or {}
        if entry.kind == Kind.PY_TASK:
            classes.append(name)
        # A configuration that names no output type is one of generation, the harness's default.
        elif entry.kind == Kind.TASK and config.get("output_type", "generate_until") == (
            "generate_until"
        ):
            configs[name] = config
    return configs, classes


def _best(verdicts: Iterable[Verdict]) -> str:
    found = {each.works for each in verdicts}
    return YES if YES in found else MAYBE if MAYBE in found else NO


def _rows(found: Mapping[str, list[Verdict]]) -> list[tuple[str, ...]]:
    tasks: dict[Verdict, list[str]] = defaultdict(list)
    for name, verdicts in found.items():
        for verdict in verdicts:
            tasks[verdict].append(name)
    common = {each: names for each, names in tasks.items() if len(names) >= _FEW}
    rows = [
        (each.works, -len(names), f"`{each.metric}`", each.shape, names, each.why)
        for each, names in common.items()
    ]
    rest: dict[tuple[str, str, str], dict[str, list[str]]] = defaultdict(dict)
    for each, names in tasks.items():
        if each not in common:
            rest[each.works, each.shape, each.why][each.metric] = names
    for (works, shape, why), metrics in rest.items():
        names = sorted({name for some in metrics.values() for name in some})
        listed = sorted(metrics, key=lambda metric: (-len(metrics[metric]), metric))
        more = f" and {len(listed) - 4} more" if len(listed) > 5 else ""
        shown = listed if not more else listed[:4]
        label = ", ".join(f"`{metric}`" for metric in shown) + more
        rows.append((works, -len(names), label, shape, names, why))
    order = {YES: 0, MAYBE: 1, NO: 2}
    rows.sort(key=lambda row: (order[row[0]], row[1], row[2], row[3]))
    return [
        (label, shape, works + (f": {why}" if why else ""), str(-count), _examples(names))
        for works, count, label, shape, names, why in rows
    ]


def _examples(names: list[str]) -> str:
    """Tasks of different families, the shortest names first."""
    families: dict[str, str] = {}
    for name in sorted(names, key=lambda each: (len(each), each)):
        families.setdefault(name.split("_")[0].split("-")[0], name)
    return ", ".join(list(families.values())[:_EXAMPLES])


def table_text(found: Mapping[str, list[Verdict]], classes: list[str]) -> str:
    """The page.

    Args:
        found: Verdicts by task.
        classes: Names of tasks that are written in Python.
    """
    counts = Counter(_best(verdicts) for verdicts in found.values())
    lines = [
        "# Metrics that can rank models",
        "",
        f"Made by `scripts/make/metric_table.py` from lm_eval {version('lm_eval')}; do not edit.",
        "",
        (
            "An adaptive run needs a number per document. Of the harness's "
            f"{len(found)} generation tasks, {counts[YES]} have a metric that gives one, "
            f"{counts[MAYBE]} decide it in functions of their own, and {counts[NO]} have none. "
            f"{len(classes)} more are Python classes, which decide when they are loaded "
            f"({_examples(classes)}, …)."
        ),
        "",
        "Use `--metric NAME` in `calibrate`; the task's YAML stays as it is.",
        "",
        "| metric | a document's value | works | tasks | for example |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(row)} |" for row in _rows(found)]
    lines += [
        "",
        _ALONE,
        "",
        _SEVERAL,
        "",
        "## Metrics of this package",
        "",
        _HELPER,
        "",
        "| metric | range | better | reads | needs |",
        "|---|---|---|---|---|",
    ]
    for metric in METRICS.values():
        extra = f"`[{metric.extra}]`" if metric.extra else "–"
        reads = ", ".join(("answer", *metric.needs))
        ends = f"{metric.lo:g} to {metric.hi:g}" + (", clipped" if metric.open_ended else "")
        better = "higher" if metric.higher_is_better else "lower"
        lines.append(f"| `{metric.name}` | {ends} | {better} | {reads} | {extra} |")
    lines += [
        "",
        _BLANK,
        "",
        _WORDS.replace("UNSPACED", _listed(UNSPACED)),
        _JUDGE,
        _PLUGIN,
    ]
    return "\n".join(lines)


def _listed(scripts: Iterable[str]) -> str:
    names = [name.replace("_", " ") for name in scripts]
    text = f"{', '.join(names[:-1])} and {names[-1]}."
    return "\n   ".join(textwrap.wrap(text, 90))


def make() -> tuple[str, dict[str, list[Verdict]]]:
    """The page, and the verdicts behind it."""
    register()
    configs, classes = generation_tasks()
    found = {name: task_verdicts(config) for name, config in configs.items()}
    return table_text(found, classes), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--json", type=Path, help="verdicts on every task, as JSON")
    options = parser.parse_args()
    text, found = make()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    print(f"wrote {options.output}: {len(found)} tasks")
    if options.json:
        rows = {name: [vars(each) for each in verdicts] for name, verdicts in found.items()}
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
