"""A model to be ranked: loaded when first needed, asked a batch of documents at a time.

This module owns the harness's ``LM`` objects and what comes back from them; it imports the harness
inside functions, and the task wrapper. It does not know scores' ranges nor who is asked next.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import logging
import math
import queue
import threading
from collections.abc import Callable  # noqa: TC003  dataclasses are looked at
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lm_eval_adaptive.errors import ModelError, UsageError
from lm_eval_adaptive.host.draws import TASK_CODE, seed_everything
from lm_eval_adaptive.host.environment import NULL_ANSWER
from lm_eval_adaptive.host.remote import ask_remote
from lm_eval_adaptive.host.served import NO_ANSWER, POLL, Fault, Served, Session
from lm_eval_adaptive.host.settings import effective, folder_name
from lm_eval_adaptive.host.stop import Stop
from lm_eval_adaptive.host.task import (
    DocumentResult,
    PromptSettings,
    build_instances,
    process_answers,
)
from lm_eval_adaptive.redact import redact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lm_eval_adaptive.host.settings import CandidateSpec, HarnessSettings
    from lm_eval_adaptive.host.task import TaskDocs

log = logging.getLogger(__name__)


CHARACTERS_PER_TOKEN = 4
SEEDS_APART = 1009  # more than there are rounds, so that no two batches draw alike


class NoAnswerError(ModelError):
    """The back end answered a request with nothing at all; asking again may help."""


@dataclass(frozen=True)
class Refusal:
    """That a model gave no answer to a document.

    Attributes:
        doc_id: The document's true id.
        prompt_hash: The harness's hash of the prompt.
        reason: Why, in a line.
    """

    doc_id: int
    prompt_hash: str
    reason: str


def _nobody(*_: object) -> None:
    """Told of what happens where nobody listens."""


@dataclass(frozen=True)
class Watch:
    """Who is told of what while a model is asked, and when to leave off.

    Attributes:
        stop: Whether the run is to stop.
        enough: Whether the model failed so often that it is asked nothing more.
        came: Called with a document's id and its responses the moment the last one is there.
        fate: Called with why a document has no answer, "" where it has one, at the same moment.
        waits: Called with what is waited for while the server is away, "" when it is back.
    """

    stop: Stop = field(default_factory=Stop)
    enough: Callable[[], bool] = lambda: False
    came: Callable[[int, tuple[str, ...]], None] = _nobody
    fate: Callable[[str], None] = _nobody
    waits: Callable[[str], None] = _nobody


@dataclass(frozen=True)
class Answer:
    """What a model said to one document.

    Attributes:
        doc_id: The document's true id.
        prompt_hash: The harness's hash of the prompt.
        resps: Its responses, one per repeat.
        result: What filters and metrics made of them.
        input_tokens: Tokens of the prompt, once per response.
        output_tokens: Tokens of all responses.
        counted: Whether a tokenizer counted them; else they are characters / 4.
        most_output: Most tokens that all responses can have had, and that are paid for.
    """

    doc_id: int
    prompt_hash: str
    resps: tuple[str, ...]
    result: DocumentResult
    input_tokens: float
    output_tokens: float
    counted: bool
    most_output: float = float("inf")


class Candidate:
    """One model, with its own prompt settings and its own copy of each task.

    Args:
        spec: What the user asked for.
        settings: The run's harness settings.
    """

    def __init__(self, spec: CandidateSpec, settings: HarnessSettings) -> None:
        self.spec = spec
        self.settings = effective(spec, settings)
        self.prompt = PromptSettings(
            num_fewshot=self.settings.num_fewshot,
            fewshot_seed=self.settings.seed[3],
            system_instruction=self.settings.system_instruction,
            apply_chat_template=self.settings.apply_chat_template,
            fewshot_as_multiturn=bool(self.settings.fewshot_as_multiturn),
            gen_kwargs=self.settings.gen_kwargs,
        )
        # Where an executor loads it; None for this process.
        self.place: Callable[[Candidate], Any] | None = None
        self._lm: Any = None
        self._cache: Any = None
        self._served: Served | None = None

    @property
    def name(self) -> str:
        """The model's name in the ranking."""
        return self.spec.name

    @property
    def batch(self) -> int:
        """How many documents the back end takes at once: batch size or concurrency, at least 1."""
        sizes = [1]
        if isinstance(self.settings.batch_size, int):
            sizes.append(self.settings.batch_size)
        elif str(self.settings.batch_size).isdecimal():
            sizes.append(int(str(self.settings.batch_size)))
        concurrent = self.spec.model_args.get("num_concurrent", 1)
        if str(concurrent).isdecimal():
            sizes.append(int(concurrent))
        return max(sizes)

    def check(self) -> None:
        """Refuse a model type the harness does not have.

        Raises:
            UsageError: No such type; the message names near ones.
        """
        import difflib

        from lm_eval.api.registry import get_model, model_registry
        from lm_eval.models import MODEL_MAPPING

        self._refuse_engines_made_anew()
        known = set(MODEL_MAPPING) | set(model_registry.keys())
        if self.spec.model in known:
            return
        try:
            get_model(self.spec.model)
        except Exception as error:
            near = difflib.get_close_matches(self.spec.model, sorted(known), n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "see `lm-eval run --help`"
            raise UsageError(
                f"the harness has no model type {self.spec.model!r} (model {self.name}); {hint}"
            ) from error

    def _refuse_engines_made_anew(self) -> None:
        """Refuse ``data_parallel_size`` above 1: the harness would build engines in every call.

        Raises:
            UsageError: It is asked for.
        """
        given = self.spec.model_args.get("data_parallel_size", 1)
        try:
            count = int(given)
        except (TypeError, ValueError):
            return  # the back end says what is wrong with it
        if count > 1:
            raise UsageError(
                f"model {self.name}: data_parallel_size={count} makes the harness build its "
                "engines anew in every call, and an adaptive run calls in every round; serve it "
                "once (docs/serving.md: one server with several GPUs, num_concurrent above 1), "
                "use tensor_parallel_size, or replicas with --executor ray"
            )

    @property
    def lm(self) -> Any:
        """The loaded model.

        Raises:
            ModelError: It does not load.
        """
        if self._lm is None:
            self._lm = self._load()
        return self._lm

    @property
    def _kind(self) -> Any:
        """The harness's class of this model type.

        Raises:
            UsageError: Its module does not import, for want of an extra of the harness's mostly.
        """
        from lm_eval.api.registry import get_model

        try:
            return get_model(self.spec.model)
        except Exception as error:
            raise UsageError(
                f"model {self.name}: the harness's model type {self.spec.model!r} does not import "
                f"here: {_first_line(error)}; install what it needs (lm_eval's extra of that name)"
            ) from error

    @property
    def side_by_side(self) -> bool:
        """Whether the model works elsewhere (behind an API), so that others can be asked at once.

        The harness's API models share a base class; a model of another kind can say so itself with
        a class attribute ``side_by_side``.
        """
        kind = self._kind
        return bool(getattr(kind, "side_by_side", False)) or any(
            each.__name__ == "TemplateAPI" for each in kind.__mro__
        )

    @property
    def is_served(self) -> bool:
        """Whether a server that the harness's API models speak to holds it."""
        return any(each.__name__ == "TemplateAPI" for each in self._kind.__mro__)

    @property
    def keeps_state(self) -> bool:
        """Whether an answer depends on what was asked before; a back end's class says so itself."""
        return bool(getattr(self._kind, "keeps_state", False))

    @property
    def multimodal(self) -> bool:
        """Whether the model takes pictures or sound besides text, as the harness asks its kind."""
        kind = self._lm if self._lm is not None else self._kind
        return bool(getattr(kind, "MULTIMODAL", False))

    def unload(self) -> None:
        """Put the model away and give its memory back."""
        import ctypes
        import gc
        import sys

        self._lm = self._cache = self._served = None
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
        if sys.platform == "linux":  # glibc keeps freed memory of its own accord
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL("libc.so.6").malloc_trim(0)

    @property
    def loaded(self) -> Any:
        """The model if it is loaded, else None."""
        return self._lm

    def _load(self) -> Any:
        if self.place is not None:
            return self.place(self)
        log.info("loading %s (%s)", self.name, self.spec.model)
        kind = self._kind
        arguments = dict(self.spec.model_args)
        if self.settings.trust_remote_code and _takes(kind, "trust_remote_code"):
            arguments.setdefault("trust_remote_code", True)  # as the harness's command line does
        try:
            lm = kind.create_from_arg_obj(
                arguments,
                {
                    "batch_size": self.settings.batch_size,
                    "max_batch_size": self.settings.max_batch_size,
                    "device": self.settings.device,
                },
            )
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(
                f"model {self.name} ({self.spec.model}) does not load: {_first_line(error)}; check "
                "its --model_args"
            ) from error
        _detect_batch_size_once(lm)
        if lm.world_size > 1:
            raise UsageError(
                f"model {self.name} runs on {lm.world_size} processes; adaptive runs take one "
                "process: start without accelerate launch or torchrun, and use the back end's own "
                "parallelism (vllm, parallelize=True)"
            )
        if any(each.__name__ == "TemplateAPI" for each in type(lm).__mro__):
            self._served = Served(lm)
        return lm

    @property
    def fingerprint(self) -> str:
        """Hash of what decides this model's answers to a prompt."""
        recipe = [
            self.spec.model,
            redact(self.spec.model_args),  # a new key changes no answer
            redact(self.settings.gen_kwargs),
            str(self.settings.apply_chat_template),
        ]
        text = json.dumps(recipe, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _asking(self) -> Any:
        """What to send requests to: the model, or a cache in front of it.

        The harness's cache key holds no model, so every model gets a database of its own.
        """
        if self.settings.use_cache is None:
            return self.lm
        if self._cache is None:
            from lm_eval.api.model import CachingLM

            base = f"{self.settings.use_cache}_{folder_name(self.name)}_{self.fingerprint}"
            self._cache = CachingLM(self.lm, f"{base}_rank0.db")
        return self._cache

    def count_tokens(self, text: str) -> tuple[float, bool]:
        """Tokens of a text, and whether the model's tokenizer counted them (else characters/4)."""
        encode = getattr(self.lm, "tok_encode", None)
        if encode is not None and getattr(self.lm, "tokenizer", None) is not None:
            try:
                return float(len(encode(text))), True
            except Exception as error:  # noqa: BLE001  tokenizers of many back ends
                log.debug("%s cannot count tokens: %s", self.name, error)
        return len(text) / CHARACTERS_PER_TOKEN, False

    def most_tokens(self, request: Any) -> tuple[float, float]:
        """Tokens of a request's prompt, and the most that its answer can have.

        A local model is not loaded for that: a text has no more tokens than bytes.
        """
        prompt = _prompt_text(request)
        counted = self.side_by_side or self._lm is not None
        tokens = self.count_tokens(prompt)[0] if self.side_by_side else len(prompt.encode())
        return float(tokens), _answer_limit(request, self.lm if counted else None)

    def chat_template(self) -> Any:
        """The callable that renders a conversation, None where no template is applied."""
        return self.lm.apply_chat_template if self.prompt.apply_chat_template else None

    def serve(self, docs: TaskDocs, metrics: Sequence[str] | None = None) -> Any:
        """This model's own copy of a task; ``metrics`` as for :meth:`TaskDocs.serve`."""
        if self.prompt.apply_chat_template:
            self.lm.chat_template(self.prompt.apply_chat_template)  # picks a template by name
        return docs.serve(self.prompt, metrics)

    def ask(
        self, task: Any, doc_ids: Sequence[int], seed_shift: int, watch: Watch | None = None
    ) -> Iterator[Answer | Refusal]:
        """Ask the model some documents.

        Args:
            task: The model's served task.
            doc_ids: Which documents.
            seed_shift: Added to the seeds, so that rounds of a sampling model differ and a resumed
                round draws what the unbroken one would have.
            watch: Who is told, and when to leave off.

        Yields:
            What became of the documents, one by one: of a model behind an API as answers come, of
            another batch by batch. Those that were not asked any more are left out.

        Raises:
            NoAnswerError: Some documents got no answer at all (None); those that got one have been
                yielded.
            ModelError: The back end raised, gave too few responses, or was away for too long.
            AdaptiveError: No answer can be scored, see ``process_answers``.
        """
        watch = watch or Watch()
        _ = self.lm
        if self._served is not None:
            yield from self._ask_served(task, doc_ids, watch, self._served)
            return
        if self.place is not None:
            yield from ask_remote(self, task, doc_ids, seed_shift, watch)
            return
        size = self._bite(len(doc_ids))
        for start in range(0, len(doc_ids), size):
            if watch.stop.wanted:
                return
            bite = doc_ids[start : start + size]
            # Each draws as if it were asked by itself: after an interruption it is.
            shift = (seed_shift + SEEDS_APART * bite[0]) % 2**31
            for answer in self._ask_at_once(task, bite, shift):
                watch.fate("")
                yield answer

    def _bite(self, most: int) -> int:
        """Documents in one call of a local back end: a batch is the most that can be lost."""
        size = getattr(self.lm, "batch_size", None)
        return size if isinstance(size, int) and size > 0 else max(most, 1)

    def _ask_at_once(self, task: Any, doc_ids: Sequence[int], seed_shift: int) -> Iterator[Answer]:
        """Ask in one call of the back end; see :meth:`ask`."""
        instances = build_instances(task, doc_ids, self.prompt, self.chat_template())
        requests = [each for each in instances for _ in range(each.repeats or 1)]
        asking = self._asking()
        if not self.side_by_side:  # the generators are shared by all threads
            seed_everything(self.settings.seed, seed_shift)
        try:
            responses = asking.generate_until(requests)
        except (ModelError, UsageError):
            raise
        except Exception as error:
            raise ModelError(
                f"model {self.name} failed on {len(doc_ids)} document(s) of {task.config.task}: "
                f"{_first_line(error)}"
            ) from error
        if responses is None or len(responses) != len(requests):
            got = "nothing" if responses is None else f"{len(responses)} responses"
            raise ModelError(f"model {self.name} gave {got} to {len(requests)} requests")
        silent: dict[int, str] = {}
        for request, response in zip(requests, responses, strict=True):
            if isinstance(response, str) and response != NULL_ANSWER:
                request.resps.append(response)
                continue
            silent[int(request.doc_id)] = "null" if response == NULL_ANSWER else repr(response)
            self._forget(request)
        answered = [each for each in instances if each.doc_id not in silent]
        yield from self.scored(task, answered)
        if silent:
            doc_id, what = next(iter(silent.items()))
            raise NoAnswerError(
                f"model {self.name} gave {what} instead of text to {len(silent)} of "
                f"{len(instances)} document(s) of {task.config.task}, the first is doc {doc_id}"
            )

    def _ask_served(
        self, task: Any, doc_ids: Sequence[int], watch: Watch, served: Served
    ) -> Iterator[Answer | Refusal]:
        """Ask a model behind an API: a thread sends and hears, this one scores what has come."""
        instances = build_instances(task, doc_ids, self.prompt, self.chat_template())
        requests = [each for each in instances for _ in range(each.repeats or 1)]
        heard: queue.Queue[tuple[int, str | Fault | OSError]] = queue.Queue()
        found: dict[int, list[str]] = {}
        failed: set[int] = set()
        lock = threading.Lock()

        def told(place: int, what: str | Fault) -> None:
            request = requests[place]
            if isinstance(what, str):
                with lock:
                    mine = found.setdefault(int(request.doc_id), [])
                    mine.append(what)
                    whole = len(mine) == (request.repeats or 1)
                if whole:
                    watch.fate("")
                    try:
                        watch.came(int(request.doc_id), tuple(mine))
                    except OSError as error:  # a full disk is no fault of the model's
                        heard.put((place, error))
                        return
            elif int(request.doc_id) not in failed:
                failed.add(int(request.doc_id))
                watch.fate(what.what)
            heard.put((place, what))

        session = Session(requests, watch.stop, watch.enough, told, watch.waits, served.retries)
        sending = _Sending(self._asking(), served, session, requests)
        sending.start()
        settled: set[int] = set()
        try:
            while not (sending.over.is_set() and heard.empty()) and not watch.stop.overdue:
                come = _all_there(heard)
                settled |= {place for place, _ in come}
                yield from self._settled(task, instances, requests, come, found)
        finally:  # also when scoring fails: what is out is waited for and told, nothing is sent
            session.closed = True
            if not watch.stop.overdue:
                sending.over.wait(watch.stop.grace)
        if sending.over.is_set():
            for answer in self._from_cache(task, instances, requests, sending.responses, settled):
                watch.fate("")
                yield answer
        if sending.error is not None:
            raise ModelError(
                f"model {self.name} failed on {len(doc_ids)} document(s) of {task.config.task}: "
                f"{_first_line(sending.error)}"
            ) from sending.error
        if session.lost:
            raise ModelError(f"model {self.name}: {session.lost}")

    def _settled(
        self,
        task: Any,
        instances: Sequence[Any],
        requests: Sequence[Any],
        come: Sequence[tuple[int, str | Fault]],
        found: Mapping[int, Sequence[str]],
    ) -> Iterator[Answer | Refusal]:
        """What has become of the documents that requests were settled of."""
        refused = {}
        for place, what in come:
            if isinstance(what, Fault):
                self._forget(requests[place])
                refused[int(requests[place].doc_id)] = what.what
        whole = {int(requests[place].doc_id) for place, _ in come} - refused.keys()
        ready = []
        for instance in instances:
            doc_id = int(instance.doc_id)
            if doc_id in refused:
                yield Refusal(doc_id, prompt_hash(instance.arguments[0]), refused[doc_id])
            elif doc_id in whole and len(found[doc_id]) == (instance.repeats or 1):
                instance.resps[:] = found[doc_id]
                ready.append(instance)
        yield from self.scored(task, ready)

    def _from_cache(
        self,
        task: Any,
        instances: Sequence[Any],
        requests: Sequence[Any],
        responses: Sequence[Any],
        settled: AbstractSet[int],
    ) -> Iterator[Answer]:
        """Answers that were never sent for, because ``--use_cache`` had them."""
        kept: dict[int, list[str]] = {}
        for place, (request, response) in enumerate(zip(requests, responses, strict=False)):
            if place in settled:
                continue
            if isinstance(response, str) and response not in (NULL_ANSWER, NO_ANSWER):
                kept.setdefault(int(request.doc_id), []).append(response)
            else:
                self._forget(request)
        ready = []
        for instance in instances:
            mine = kept.get(int(instance.doc_id), [])
            if len(mine) == (instance.repeats or 1):
                instance.resps[:] = mine
                ready.append(instance)
        yield from self.scored(task, ready)

    def score(self, task: Any, responses: Mapping[int, Sequence[str]]) -> Iterator[Answer]:
        """Score what the model said before, by document, without asking it."""
        instances = build_instances(task, list(responses), self.prompt, self.chat_template())
        for instance in instances:
            instance.resps[:] = responses[int(instance.doc_id)]
        yield from self.scored(task, instances)

    def _forget(self, request: Any) -> None:
        """Take a missing answer out of the cache, so that it can be asked for again."""
        if self._cache is not None:
            from lm_eval.api.model import hash_args

            self._cache.dbdict.pop(hash_args("generate_until", request.args), None)

    def scored(self, task: Any, instances: Sequence[Any]) -> Iterator[Answer]:
        """Filter and score answered instances."""
        if not instances:
            return
        with TASK_CODE:  # answers are awaited side by side, scored in turn
            results = process_answers(task, instances)
        for instance, result in zip(instances, results, strict=True):
            prompt = instance.arguments[0]
            tokens_in, counted = self.count_tokens(_prompt_text(instance))
            yield Answer(
                doc_id=int(instance.doc_id),
                prompt_hash=prompt_hash(prompt),
                resps=tuple(instance.resps),
                result=result,
                input_tokens=tokens_in * len(instance.resps),
                output_tokens=sum(self.count_tokens(each)[0] for each in instance.resps),
                counted=counted,
                # What characters tell of an answer may be more than it can have had.
                most_output=(
                    math.inf if counted else _answer_limit(instance, self.lm) * len(instance.resps)
                ),
            )


def _takes(kind: Any, name: str) -> bool:
    """Whether a model's constructor takes an argument."""
    parameters = inspect.signature(kind.__init__).parameters.values()
    return any(each.name == name or each.kind is each.VAR_KEYWORD for each in parameters)


def _detect_batch_size_once(lm: Any) -> None:
    """Have ``--batch_size auto`` try sizes once for a model, not anew in every round."""
    detect = getattr(lm, "_detect_batch_size", None)
    if detect is None:
        return
    found: list[Any] = []

    def once(*args: Any, **kwargs: Any) -> Any:
        if args or kwargs:  # for given requests, which rank tests of likelihood ask for
            return detect(*args, **kwargs)
        if not found:
            found.append(detect())
        return found[0]

    lm._detect_batch_size = once  # noqa: SLF001  no public way to set what auto finds


def _prompt_text(request: Any) -> str:
    prompt = request.arguments[0]
    return prompt if isinstance(prompt, str) else str(prompt[0])


_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
DEFAULT_LENGTH = 256  # the harness's own, where neither task nor model says


def _answer_limit(request: Any, lm: Any) -> float:
    """Most tokens of an answer: what the request asks for, else the model's own limit."""
    settings = request.arguments[1] if len(request.arguments) > 1 else {}
    asked = [settings[name] for name in _LENGTHS if name in settings]
    length = asked[0] if asked else getattr(lm, "max_gen_toks", None) or DEFAULT_LENGTH
    return float(length)


def _all_there(
    heard: queue.Queue[tuple[int, str | Fault | OSError]],
) -> list[tuple[int, str | Fault]]:
    """What has come, waiting a little where nothing has.

    Raises:
        OSError: An answer could not be made durable.
    """
    come: list[tuple[int, str | Fault]] = []
    wait = POLL
    while True:
        try:
            place, what = heard.get(timeout=wait) if wait else heard.get_nowait()
        except queue.Empty:
            return come
        if isinstance(what, OSError):
            raise what
        come.append((place, what))
        wait = 0.0


class _Sending(threading.Thread):
    """One call of a served back end, in a thread that nobody has to wait for.

    Args:
        asking: The model, or a cache in front of it.
        served: Its hooks.
        session: What becomes of the requests.
        requests: What is asked.
    """

    def __init__(self, asking: Any, served: Served, session: Session, requests: list[Any]) -> None:
        super().__init__(daemon=True)
        self._asking, self._served = asking, served
        self._session, self._requests = session, requests
        self.responses: Sequence[Any] = ()
        self.error: Exception | None = None
        self.over = threading.Event()

    def run(self) -> None:
        """Ask; see the class."""
        self._served.session = self._session
        try:
            self.responses = self._asking.generate_until(self._requests) or ()
        except Exception as error:  # noqa: BLE001  told where it is waited for
            self.error = error
        finally:
            if self._served.session is self._session:
                self._served.session = None
            self.over.set()


def prompt_hash(prompt: Any) -> str:
    """The harness's hash of a prompt, also of one that UTF-8 cannot hold."""
    from lm_eval.utils import hash_string

    try:
        return str(hash_string(prompt))
    except UnicodeEncodeError:
        return hashlib.sha256(str(prompt).encode("utf-8", "surrogatepass")).hexdigest()


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
