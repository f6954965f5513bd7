"""Reads a pipeline config: a file, a second text proto merged over it, and single settings."""

import re
from collections.abc import Iterable

from google.protobuf import descriptor_pool, text_format

from object_detection.config import overrides
from object_detection.errors import ConfigError, DataError
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files, texts

__all__ = ['ConfigError', 'parse_pipeline', 'read_pipeline', 'read_text']

_UNKNOWN_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "([^"]+)"')
_UNKNOWN_VALUE = re.compile(r'Enum type "([\w.]+)" has no value named (\S+?)\.?$')
_REPEATED_FIELD = re.compile(r'Message type "([\w.]+)" should not have multiple "([^"]+)" fields')
_SECOND_OPTION = re.compile(
    r'Field "([^"]+)" is specified along with field "([^"]+)", another member of oneof "([^"]+)"'
)


def read_pipeline(
    path: str, *, overrides_text: str = '', settings: Iterable[str] = ()
) -> TrainEvalPipelineConfig:
    """Reads a pipeline config and applies the changes of the command line.

    Args:
      path: a file with a text proto of `TrainEvalPipelineConfig`.
      overrides_text: a second text proto that is merged over the first (its repeated fields are
        appended, as `text_format.Merge` does), or the path of a file that holds one.
      settings: strings 'a.b.c=value', applied last and in order; see `overrides.apply_setting`.

    Raises:
      ConfigError: if a text is not valid; the message names the file, line and column, or the
        setting, and what was expected.
    """
    pipeline = parse_pipeline(read_text(path), str(path))
    if overrides_text:
        pipeline.MergeFrom(_parse_overrides(overrides_text))
    for setting in settings:
        overrides.apply_setting(pipeline, setting)
    return pipeline


def parse_pipeline(text: str, origin: str) -> TrainEvalPipelineConfig:
    """Parses a text proto; errors begin with `origin`, line and column.

    A field that is written twice is an error; the last value does not win silently.
    """
    try:
        return text_format.Parse(text, TrainEvalPipelineConfig())
    except text_format.ParseError as error:
        position = f'{error.GetLine()}:{error.GetColumn()}' if error.GetLine() else 'end'
        hint = texts.first_invisible(text)
        hint = f' The text may have been copied from a page: {hint}.' if hint else ''
        raise ConfigError(f'{origin}:{position}: {_explain(str(error))}{hint}') from None


def read_text(path: str) -> str:
    """Reads a text file.

    Raises:
      ConfigError: if there is no such file or it holds no text; the message is one sentence.
    """
    try:
        return texts.decode(files.read_bytes(str(path)), str(path))
    except FileNotFoundError:
        raise ConfigError(f'{path}: there is no such file.') from None
    except IsADirectoryError:
        raise ConfigError(f'{path}: is a folder; expected a config file.') from None
    except DataError:
        raise ConfigError(f'{path}: is not a text file; expected a text proto.') from None
    except OSError as error:
        raise ConfigError(f'{path}: cannot be read: {error.strerror}.') from None


def _parse_overrides(value: str) -> TrainEvalPipelineConfig:
    # All top-level fields are messages, so a text proto with content has a brace.
    if '{' in value or '<' in value:
        return parse_pipeline(value, '--config_override')
    if not files.exists(value):
        raise ConfigError(
            '--config_override: expected a text proto, such as '
            f'`train_config {{ batch_size: 2 }}`, or a file with one. Received: {value}'
        )
    return parse_pipeline(read_text(value), value)


def _explain(message: str) -> str:
    """Turns protobuf's message into a sentence that says what to write instead."""
    pool = descriptor_pool.Default()
    if found := _UNKNOWN_FIELD.search(message):
        return overrides.unknown_field(pool.FindMessageTypeByName(found[1]), found[2])
    if found := _UNKNOWN_VALUE.search(message):
        return overrides.unknown_value(pool.FindEnumTypeByName(found[1]), found[2])
    if found := _REPEATED_FIELD.search(message):
        owner = found[1].rpartition('.')[2]
        return f'{owner}.{found[2]} is written twice; it takes one value.'
    if found := _SECOND_OPTION.search(message):
        return f'only one of `{found[2]}` and `{found[1]}` may be set (oneof {found[3]}).'
    if 'Expected identifier' in message:
        return 'expected the name of a field here.'
    # Other messages are readable without the position and the quoted line before them.
    return re.sub(r"^\d+:\d+ : ('.*': )?", '', message, flags=re.DOTALL).rstrip('.') + '.'
