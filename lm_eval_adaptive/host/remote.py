"""A model that lives in another process: what crosses the wire, and both ends of it.

The far end (:class:`ModelService`) loads a model from its type and arguments and answers requests;
it needs neither the driver's paths nor its task, filters or metrics. The near end
(:class:`RemoteLM`, :func:`ask_remote`) renders prompts, makes answers durable as they come and
scores them. The wire itself is somebody else's (:class:`Line`): this module knows no cluster.
"""

from __future__ import annotations

import platform
import queue
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lm_eval_adaptive.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lm_eval_adaptive.host.candidate import Answer, Candidate, Watch
    from lm_eval_adaptive.host.settings import CandidateSpec, HarnessSettings
    from lm_eval_adaptive.host.stop import Stop


class PlaceLostError(ModelError):
    """A model's process or machine is gone, or ran out of memory; in another place it may answer.

    Args:
        text: What happened, in a line.
        spent: Whether the process is there and must not be used again.
    """

    def __init__(self, text: str, *, spent: bool = False) -> None:
        super().__init__(text)
        self.spent = spent


class Question(NamedTuple):
    """One request of the harness, as plain data.

    Attributes:
        place: Which of the asked requests it is.
        arguments: Prompt and generation settings.
        doc: The document.
        task: The task's name.
        doc_id: The document's true id.
        idx: Which of the document's requests.
    """

    place: int
    arguments: tuple[Any, ...]
    doc: Any
    task: str
    doc_id: int
    idx: int


class Bite(NamedTuple):
    """Requests of one call of the back end, and what its seeds are shifted by."""

    questions: tuple[Question, ...]
    shift: int


class Said(NamedTuple):
    """A response, or why there is none.

    Attributes:
        place: Whose.
        text: The response; None where the back end gave nothing.
        tokens: Of prompt and response, None where no tokenizer counts.
        failed: Why the whole call failed, "" where it did not.
        memory: Whether it failed for want of memory.
    """

    place: int
    text: str | None
    tokens: tuple[float, float] | None = None
    failed: str = ""
    memory: bool = False


class Facts(NamedTuple):
    """What the near end has to know of a loaded model.

    Attributes:
        batch_size: Documents in one call; 0 for a whole round.
        tokenizer_name: As the harness names the prompt format.
        counts: Whether a tokenizer counts.
        max_gen_toks: The model's own limit of an answer, None without one.
        multimodal: Whether it takes pictures or sound.
        failed: Why it did not load, "" where it did.
        memory: Whether it failed for want of memory.
        node: The machine's name.
    """

    batch_size: int = 0
    tokenizer_name: str = ""
    counts: bool = False
    max_gen_toks: int | None = None
    multimodal: bool = False
    failed: str = ""
    memory: bool = False
    node: str = ""


class Line(Protocol):
    """The way to a model's processes."""

    @property
    def replicas(self) -> int:
        """How many processes share the requests."""

    def call(self, name: str, *args: Any) -> Any:
        """One method of one :class:`ModelService`.

        Raises:
            PlaceLostError: Nobody answers there.
        """

    def stream(
        self, bites: Sequence[Bite], leave_off: Callable[[], bool], stop: Stop
    ) -> Iterator[Said]:
        """Responses as they come, in any order.

        Args:
            bites: What is asked; each goes to one process, the next to whichever is free.
            leave_off: Whether no further bite is to be sent.
            stop: Until when those that are out are waited for.

        Raises:
            PlaceLostError: Not all could be asked; what came before has been yielded.
        """


def is_memory(error: BaseException | None) -> bool:
    """Whether a back end ran out of memory, of the machine or of its GPU."""
    while error is not None:
        told = f"{type(error).__name__} {error}".lower()
        if isinstance(error, MemoryError) or "out of memory" in told or "outofmemory" in told:
            return True
        error = error.__cause__ or error.__context__
    return False


def travelling(settings: HarnessSettings) -> HarnessSettings:
    """The settings without what is the driver's own: tasks, paths, trackers."""
    return replace(
        settings,
        tasks=(),
        include_path=None,
        output_path=None,
        use_cache=None,
        metadata={},
        wandb_args={},
        wandb_config_args={},
        trackio_args={},
        hf_hub_log_args={},
    )


class ModelService:
    """The far end: one model, loaded once, when it is first needed.

    Args:
        spec: The model.
        settings: The run's settings, see :func:`travelling`.
    """

    def __init__(self, spec: CandidateSpec, settings: HarnessSettings) -> None:
        from lm_eval_adaptive.host.candidate import Candidate
        from lm_eval_adaptive.host.environment import hush_bars
        from lm_eval_adaptive.host.registries import register_all

        hush_bars()
        register_all()
        self._candidate = Candidate(spec, settings)

    def facts(self) -> Facts:
        """Load, and tell of the model."""
        mine = self._candidate
        try:
            lm = mine.lm
        except Exception as error:  # noqa: BLE001  told at the near end, in its words
            return Facts(failed=str(error), memory=is_memory(error), node=platform.node())
        size = getattr(lm, "batch_size", None)
        most = getattr(lm, "max_gen_toks", None)
        if not (isinstance(size, int) and size > 0):
            size = 1 if mine.side_by_side else 0  # what holds no weights gains nothing by batches
        return Facts(
            batch_size=size,
            tokenizer_name=str(getattr(lm, "tokenizer_name", "")),
            counts=mine.count_tokens("a")[1],
            max_gen_toks=most if isinstance(most, int) else None,
            multimodal=mine.multimodal,
            node=platform.node(),
        )

    def count(self, text: str) -> float:
        """Tokens of a text."""
        return self._candidate.count_tokens(text)[0]

    def render(self, history: Any, options: dict[str, Any]) -> Any:
        """A conversation by the model's chat template."""
        return self._candidate.lm.apply_chat_template(history, **options)

    def template(self, name: Any) -> Any:
        """Pick a chat template by name."""
        return self._candidate.lm.chat_template(name)

    def answer(self, bite: Bite) -> Iterator[Said]:
        """Responses of one call, each as the back end has it."""
        from lm_eval_adaptive.host.draws import seed_everything

        seed_everything(self._candidate.settings.seed, bite.shift)
        heard: queue.Queue[Said | None] = queue.Queue()
        threading.Thread(target=self._call, args=(bite, heard), daemon=True).start()
        while (said := heard.get()) is not None:
            yield said

    def _call(self, bite: Bite, heard: queue.Queue[Said | None]) -> None:
        from lm_eval.api.instance import Instance

        from lm_eval_adaptive.errors import first_line

        told: set[int] = set()

        def tell(question: Question, text: Any) -> None:
            if question.place in told:
                return
            told.add(question.place)
            plain = text if isinstance(text, str) else None
            heard.put(Said(question.place, plain, self._tokens(question, plain)))

        try:
            lm = self._candidate.lm
            by_prompt = {str(each.arguments[0]): each for each in bite.questions}
            if len(by_prompt) == len(bite.questions):  # else whose a response is stands in no hook
                lm.set_cache_hook(_Hook(by_prompt, tell))
            requests = [
                Instance(
                    request_type="generate_until",
                    doc=each.doc,
                    arguments=each.arguments,
                    idx=each.idx,
                    metadata=(each.task, each.doc_id, 1),
                )
                for each in bite.questions
            ]
            responses = lm.generate_until(requests)
            if responses is None or len(responses) != len(requests):
                got = "nothing" if responses is None else f"{len(responses)} responses"
                raise ModelError(f"gave {got} to {len(requests)} requests")  # noqa: TRY301
            for question, text in zip(bite.questions, responses, strict=True):
                tell(question, text)
        except Exception as error:  # noqa: BLE001  told at the near end, in its words
            what = str(error) if isinstance(error, ModelError) else first_line(error)
            heard.put(Said(-1, None, None, what, is_memory(error)))
        finally:
            heard.put(None)

    def _tokens(self, question: Question, text: str | None) -> tuple[float, float] | None:
        prompt = question.arguments[0]
        prompt = prompt if isinstance(prompt, str) else str(prompt[0])
        sent, counted = self._candidate.count_tokens(prompt)
        return (sent, self._candidate.count_tokens(text)[0]) if counted and text else None


class _Hook:
    """What the harness's back ends tell of each response as they have it, for its cache."""

    def __init__(
        self, by_prompt: dict[str, Question], tell: Callable[[Question, Any], None]
    ) -> None:
        self._by_prompt, self._tell = by_prompt, tell

    def add_partial(self, attr: str, req: Any, res: Any) -> None:
        question = self._by_prompt.get(str(req[0])) if attr == "generate_until" else None
        if question is not None and isinstance(res, str):
            self._tell(question, res)


@dataclass
class RemoteLM:
    """The near end: what the rest of the program takes for the loaded model.

    Attributes:
        line: The way to it.
        facts: What is known of it.
    """

    line: Line
    facts: Facts
    world_size: int = 1
    rank: int = 0
    known: dict[str, float] = field(default_factory=dict)

    @property
    def MULTIMODAL(self) -> bool:  # noqa: N802  the harness's name
        """Whether it takes pictures or sound."""
        return self.facts.multimodal

    @property
    def batch_size(self) -> int | None:
        """Documents in one call, None for a whole round."""
        return self.facts.batch_size or None

    @property
    def tokenizer(self) -> object | None:
        """Something, where the model's tokenizer counts."""
        return self if self.facts.counts else None

    @property
    def tokenizer_name(self) -> str:
        """As the harness names the prompt format."""
        return self.facts.tokenizer_name

    @property
    def max_gen_toks(self) -> int | None:
        """The model's own limit of an answer."""
        return self.facts.max_gen_toks

    def tok_encode(self, text: str) -> range:
        """As many elements as the text has tokens."""
        if text not in self.known:
            self.known[text] = float(self.line.call("count", text))
        return range(int(self.known[text]))

    def apply_chat_template(self, chat_history: Any, **options: Any) -> Any:
        """A conversation by the model's own template."""
        return self.line.call("render", chat_history, options)

    def chat_template(self, chat_template: Any = False) -> Any:
        """Pick a template by name."""
        return self.line.call("template", chat_template)


def ask_remote(
    candidate: Candidate, task: Any, doc_ids: Sequence[int], seed_shift: int, watch: Watch
) -> Iterator[Answer]:
    """Ask a model that lives elsewhere; see :meth:`Candidate.ask`.

    Each answer is told (``watch.came``) the moment its last response is here, then scored.

    Raises:
        NoAnswerError: As there.
        PlaceLostError: The model's place is gone; what came before has been yielded.
        ModelError: The back end raised.
    """
    from lm_eval_adaptive.host.candidate import SEEDS_APART, NoAnswerError
    from lm_eval_adaptive.host.environment import NULL_ANSWER
    from lm_eval_adaptive.host.task import build_instances

    lm: RemoteLM = candidate.lm
    lm.known.clear()
    instances = build_instances(task, doc_ids, candidate.prompt, candidate.chat_template())
    by_doc = {int(each.doc_id): each for each in instances}
    asked: list[Any] = []
    size = lm.batch_size or -(-len(doc_ids) // lm.line.replicas)
    bites = []
    for start in range(0, len(doc_ids), size):
        part = doc_ids[start : start + size]
        questions = []
        for instance in (by_doc[doc_id] for doc_id in part):
            for _ in range(instance.repeats or 1):
                questions.append(_question(len(asked), instance))
                asked.append(instance)
        bites.append(Bite(tuple(questions), (seed_shift + SEEDS_APART * part[0]) % 2**31))
    found: dict[int, dict[int, str]] = {}
    silent: dict[int, str] = {}
    for said in lm.line.stream(bites, watch.enough, watch.stop):
        if said.failed:
            text = (
                f"model {candidate.name} failed on {len(doc_ids)} document(s) of "
                f"{task.config.task}: {said.failed}"
            )
            raise PlaceLostError(text, spent=True) if said.memory else ModelError(text)
        instance = asked[said.place]
        doc_id = int(instance.doc_id)
        if said.text is None or said.text == NULL_ANSWER:
            silent[doc_id] = repr(None) if said.text is None else "null"
            continue
        if said.tokens is not None:
            prompt = instance.arguments[0]
            lm.known[prompt if isinstance(prompt, str) else str(prompt[0])] = said.tokens[0]
            lm.known[said.text] = said.tokens[1]
        mine = found.setdefault(doc_id, {})
        mine[said.place] = said.text
        if len(mine) == (instance.repeats or 1):
            instance.resps[:] = [mine[place] for place in sorted(mine)]
            watch.fate("")
            watch.came(doc_id, tuple(instance.resps))
            yield from candidate.scored(task, [instance])
    if silent:
        doc_id, what = next(iter(silent.items()))
        raise NoAnswerError(
            f"model {candidate.name} gave {what} instead of text to {len(silent)} of "
            f"{len(instances)} document(s) of {task.config.task}, the first is doc {doc_id}"
        )


def _question(place: int, instance: Any) -> Question:
    return Question(
        place,
        tuple(instance.args),
        instance.doc,
        str(instance.task_name),
        int(instance.doc_id),
        int(instance.idx),
    )
