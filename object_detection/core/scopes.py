"""Contexts that code far below asks for, without an argument through all layers between."""


class Scope:
    """The base of a context that is on while it is entered, however often; one kind a subclass.

    All threads share it.
    """

    _depth = 0

    def __enter__(self) -> None:
        type(self)._depth += 1

    def __exit__(self, *error: object) -> None:
        type(self)._depth -= 1

    @classmethod
    def is_on(cls) -> bool:
        return cls._depth > 0
