"""Builds an object from a proto `oneof` with a table of builders, and reads what it is."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldOptions
from google.protobuf.message import Message

from object_detection.config import plugins
from object_detection.errors import UserError
from object_detection.registry import Registry

T = TypeVar('T')


def find_facts(config: Message, oneof: str, facts: FieldDescriptor, default: str = '') -> Any:
    """Returns what the schema says about the option that is set in `config`'s oneof.

    Args:
      config: the message that holds the oneof.
      oneof: the oneof's name in the .proto file.
      facts: the option of fields that says it, of protos/options.proto, such as `options_pb2.step`.
      default: name of the option that counts as set if none is.

    Returns:
      A `StepFacts` or the like; an empty one for an option without facts, as that of plug-ins, and
      if no option is set.
    """
    field = config.WhichOneof(oneof) or default
    options = config.DESCRIPTOR.fields_by_name[field].GetOptions() if field else FieldOptions()
    return options.Extensions[facts]


def build_oneof(config: Message, oneof: str, builders: Mapping[str, Callable[[Any], T]]) -> T:
    """Builds the option that is set in `config`'s oneof.

    Args:
      config: the message that holds the oneof, e.g. a `BoxCoder`.
      oneof: the oneof's name in the .proto file, e.g. 'box_coder_oneof'.
      builders: field name -> function from that field's message to the object; for a oneof with
        an option `plugin`, the registry of its parts.

    Returns:
      What the builder of the set field returns.

    Raises:
      ValueError: if no field of the oneof is set, or the field that is set has no builder; in the
        cases of `plugins.build` for a plug-in.
    """
    field = config.WhichOneof(oneof)
    name = f'{config.DESCRIPTOR.full_name}.{oneof}'
    options = [option.name for option in config.DESCRIPTOR.oneofs_by_name[oneof].fields]
    has_plugins = isinstance(builders, Registry)
    built = [
        each for each in options if each in builders or (has_plugins and each == plugins.FIELD)
    ]
    supported = ', '.join(sorted(built))
    if field is None:
        raise UserError(f'{name} is not set; expected one of: {supported}. Received: nothing.')
    if has_plugins and field == plugins.FIELD:
        path = f'{config.DESCRIPTOR.full_name}.{field}'
        return plugins.build(config.plugin, builders, path)
    if field not in builders:
        raise UserError(
            f'{name} is set to an option that is not supported; expected one of: {supported}. '
            f'Received: {field}.'
        )
    return builders[field](getattr(config, field))


def build_named(config: Message, oneof: str, builders: Mapping[str, Callable[[Any], T]]) -> T:
    """Builds as `build_oneof`; each error begins with the full name of the message or its option.

    Raises:
      ValueError: in the cases of `build_oneof`, and if the builder of the option raises one.
    """
    try:
        return build_oneof(config, oneof, builders)
    except ValueError as error:
        name = config.DESCRIPTOR.full_name
        if str(error).startswith((f'{config.DESCRIPTOR.file.package}.', name)):
            raise
        raise UserError(f'{name}: {error}') from error
