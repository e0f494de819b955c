"""Objects of a JSON file, read field by field.

This module owns the refusals of a reader of records: which field, what it is, what was expected. It
imports the errors only. What is written next to a field that is read here is ignored, so that files
of later minor versions can be read.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Union

from lm_eval_adaptive.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

# One line for a reader and, in Python 3.10, no other way to name itself.
Json = Union[None, bool, int, float, str, list["Json"], dict[str, "Json"]]  # noqa: UP007


class Fields:
    """One object.

    Args:
        value: What the file holds.
        name: What to call it in a refusal, as a path from the file's top; "" at the top.

    Raises:
        DataError: It is no object. Every method raises it for a field that is missing (unless it
            has a default) or of another type.
    """

    def __init__(self, value: Json, name: str = "") -> None:
        if not isinstance(value, dict):
            raise DataError(f"{name or 'it'} is {_kind(value)}, expected an object")
        self._value, self._name = value, name

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def __len__(self) -> int:
        return len(self._value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def _refuse(self, name: str, expected: str) -> DataError:
        return DataError(f"{self._at(name)} is {self._value[name]!r}, expected {expected}")

    def _at(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name

    def _get(self, name: str) -> Json:
        if name not in self._value:
            raise DataError(f"{self._at(name)} is missing")
        return self._value[name]

    def is_null(self, name: str) -> bool:
        """Whether the field is null or missing."""
        return self._value.get(name) is None

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        if default is not None and name not in self._value:
            return default
        found = self._get(name)
        if not isinstance(found, str):
            raise self._refuse(name, "a text")
        return found

    def number(self, name: str, default: float | None = None) -> float:
        """A finite number."""
        if default is not None and name not in self._value:
            return default
        found = self._get(name)
        if not _is_number(found):
            raise self._refuse(name, "a finite number")
        return found  # type: ignore[return-value]  # a number, see above

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        if default is not None and name not in self._value:
            return default
        found = self._get(name)
        if not isinstance(found, int) or isinstance(found, bool):
            raise self._refuse(name, "a whole number")
        return found

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false."""
        if default is not None and name not in self._value:
            return default
        found = self._get(name)
        if not isinstance(found, bool):
            raise self._refuse(name, "true or false")
        return found

    def values(self, name: str) -> list[Json]:
        """A list; an empty one where the field is missing."""
        found = self._value.get(name, [])
        if not isinstance(found, list):
            raise self._refuse(name, "a list")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts; an empty one where the field is missing."""
        found = self.values(name)
        if not all(isinstance(each, str) for each in found):
            raise self._refuse(name, "a list of texts")
        return tuple(str(each) for each in found)

    def two_numbers(self, name: str) -> tuple[float, float]:
        """A list of two finite numbers."""
        found = self.values(name) if name in self._value else self._get(name)
        if not isinstance(found, list) or len(found) != 2 or not all(map(_is_number, found)):
            raise self._refuse(name, "two finite numbers")
        first, second = found
        return first, second  # type: ignore[return-value]  # numbers, see above

    def object(self, name: str) -> Fields:
        """An object; an empty one where the field is missing."""
        return Fields(self._value.get(name, {}), self._at(name))

    def objects(self, name: str) -> list[Fields]:
        """A list of objects; an empty one where the field is missing."""
        return [
            Fields(each, f"{self._at(name)}[{place}]")
            for place, each in enumerate(self.values(name))
        ]

    def named_objects(self) -> list[tuple[str, Fields]]:
        """All fields of this object, which are objects themselves."""
        return [(name, self.object(name)) for name in self._value]


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _kind(value: Json) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"
