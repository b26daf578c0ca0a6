"""What the name of a case says: sizes (`m=64`, `4096^3`, `8x32x64`), types, flags."""

from __future__ import annotations

import re

TYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
TYPES |= {name: name for name in (*TYPES.values(), "int8", "float8_e4m3fn", "float8_e5m2")}


class UnknownCase(Exception):
    """A name that is not understood, or not all of it."""


class NoPeer(Exception):
    """Why no other library is timed."""


def integer(text: str) -> int:
    """`64` or `2^28`."""
    base, _, exponent = text.partition("^")
    return int(base) ** int(exponent or 1)


class Case:
    """The words of a name. Who builds a problem asks for them; words that nobody asked for make the case unknown."""

    def __init__(self, op: str, name: str):
        self.op, self.name = op, name
        self.rest = name.replace(",", " ").split()

    def all_read(self) -> None:
        """Raises if words are left."""
        if self.rest:
            raise UnknownCase(f"not understood: {' '.join(self.rest)}")

    def has(self, key: str) -> bool:
        """Whether `key=` is there."""
        return any(word.startswith(f"{key}=") for word in self.rest)

    def _value(self, key: str) -> str | None:
        for word in self.rest:
            if word.startswith(f"{key}="):
                self.rest.remove(word)
                return word.removeprefix(f"{key}=")
        return None

    def number(self, key: str, default: float) -> float:
        """`key=0.5`."""
        value = self._value(key)
        return default if value is None else float(value)

    def get(self, key: str, default: int) -> int:
        """`key=64`, if it is there."""
        value = self._value(key)
        return default if value is None else integer(value)

    def sizes(self, *keys: str) -> tuple[int, ...]:
        """`key=64` of each, all of which must be there."""
        values = {key: self._value(key) for key in keys}
        if missing := [f"{key}=" for key, value in values.items() if value is None]:
            raise UnknownCase(f"no {' '.join(missing)}")
        return tuple(integer(value) for value in values.values() if value)

    def flag(self, words: str) -> bool:
        """Whether these words are there, one behind the other."""
        wanted = words.split()
        for at in range(len(self.rest) - len(wanted) + 1):
            if self.rest[at : at + len(wanted)] == wanted:
                del self.rest[at : at + len(wanted)]
                return True
        return False

    def one_of(self, *words: str, default: str = "") -> str:
        """The one of these flags that is there."""
        return next((word for word in words if self.flag(word)), default)

    def before(self, word: str, default: int) -> int:
        """The number before a word: `8 vectors`."""
        at = self.rest.index(word) if word in self.rest else 0
        if at == 0 or not self.rest[at - 1].isdigit():
            return default
        value = int(self.rest[at - 1])
        del self.rest[at - 1 : at + 1]
        return value

    def after(self, words: str, default: int) -> int:
        """The number behind words: `pages of 16`."""
        wanted = words.split()
        for at in range(len(self.rest) - len(wanted)):
            if self.rest[at : at + len(wanted)] == wanted and self.rest[at + len(wanted)].isdigit():
                value = int(self.rest[at + len(wanted)])
                del self.rest[at : at + len(wanted) + 1]
                return value
        return default

    def shape(self) -> tuple[int, ...]:
        """`8x32x64`."""
        word = next((word for word in self.rest if re.fullmatch(r"\d+(x\d+)+", word)), None)
        if word is None:
            raise UnknownCase("no shape")
        self.rest.remove(word)
        return tuple(map(int, word.split("x")))

    def product(self) -> tuple[int, int, int]:
        """m, n and k, or all of them as `4096^3`."""
        cube = next((word for word in self.rest if re.fullmatch(r"\d+\^3", word)), None)
        if cube is None:
            m, n, k = self.sizes("m", "n", "k")
            return m, n, k
        self.rest.remove(cube)
        size = int(cube.partition("^")[0])
        return size, size, size

    def dtype(self, default: str = "bfloat16") -> str:
        """The first type."""
        word = next((word for word in self.rest if word in TYPES), None)
        if word is None:
            return default
        self.rest.remove(word)
        return TYPES[word]
