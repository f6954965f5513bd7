"""Calls a builder to find its errors."""

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import Message


def problems(
    build: Callable[..., Any], config: Message, path: str, *arguments: object
) -> Iterator[str]:
    """Yields the error of a builder of cheap objects as a sentence that begins with a field path.

    Args:
      build: called as `build(config, *arguments)`; what it returns is not used.
      config: the message to build from.
      path: path of the message in the pipeline config.
      *arguments: further arguments of the builder.
    """
    try:
        build(config, *arguments)
    except ValueError as error:
        message, own = str(error), config.DESCRIPTOR.full_name
        if message.startswith(own):
            message = path + message.removeprefix(own)
        elif not message.startswith(path):
            message = f'{path}: {message}'
        yield message.replace(f'{config.DESCRIPTOR.file.package}.', '')
