"""Tries a builder, to find what it objects to."""

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import Message


def problems(
    build: Callable[..., Any], config: Message, path: str, *arguments: object
) -> Iterator[str]:
    """Yields what a builder of cheap objects raises as a sentence that begins with a field's path.

    Args:
      build: called as `build(config, *arguments)`; what it returns is not used.
      config: the message to build from.
      path: of the message in the pipeline config.
      *arguments: further ones of the builder.
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
