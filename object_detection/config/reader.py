"""Reads a pipeline config: a file, a second text proto merged over it, and single settings."""

import difflib
import re
from collections import Counter
from collections.abc import Iterable

from google.protobuf import descriptor_pool, text_format

from object_detection.config import overrides
from object_detection.errors import ConfigError, DataError, Problems, raise_if_any
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files, texts

__all__ = ['ConfigError', 'parse_pipeline', 'read_pipeline', 'read_text']

_UNKNOWN_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "([^"]+)"')
_UNKNOWN_VALUE = re.compile(r'Enum type "([\w.]+)" has no value named (\S+?)\.?$')
_REPEATED_FIELD = re.compile(r'Message type "([\w.]+)" should not have multiple "([^"]+)" fields')
_SECOND_OPTION = re.compile(
    r'Field "([^"]+)" is specified along with field "([^"]+)", another member of oneof "([^"]+)"'
)
_TEXT = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\''
_NAME = re.compile(r'\w+\s*:?\s*')
_SCALAR = re.compile(rf'(?:(?:{_TEXT})\s*)+|[^\s{{}}<>;,\]]+')
_BRACKET_OR_OTHER = re.compile(rf'{_TEXT}|#.*|[{{}}<>\[\]]')


def read_pipeline(
    path: str,
    *,
    overrides_text: str = '',
    settings: Iterable[str] = (),
    problems: Problems | None = None,
) -> TrainEvalPipelineConfig:
    """Reads a pipeline config and applies the changes of the command line.

    Args:
      path: a file with a text proto of `TrainEvalPipelineConfig`.
      overrides_text: a second text proto that is merged over the first (its repeated fields are
        appended, as `text_format.Merge` does), or the path of a file that holds one.
      settings: strings 'a.b.c=value', applied last and in order; see `overrides.apply_setting`.
      problems: gets the errors about unknown names and settings, which are left out of the config,
        so that the rest can be checked; None raises them.

    Raises:
      ConfigError: if a text is not valid; the message names the file, line and column, or the
        setting, and what was expected.
    """
    found = problems or Problems()
    pipeline = parse_pipeline(read_text(path), str(path), found)
    if overrides_text:
        pipeline.MergeFrom(_parse_overrides(overrides_text, found))
    for setting in settings:
        with found:
            overrides.apply_setting(pipeline, setting)
    if problems is None:
        found.raise_if_any()
    return pipeline


def parse_pipeline(
    text: str, origin: str, problems: Problems | None = None
) -> TrainEvalPipelineConfig:
    """Parses a text proto; errors begin with `origin`, line and column.

    A field that is written twice is an error; the last value does not win silently. All unknown
    names are reported at once, to `problems` as in `read_pipeline`.
    """
    found, moved, pipeline = [], Counter(), None
    while pipeline is None:
        try:
            pipeline = text_format.Parse(text, TrainEvalPipelineConfig())
        except text_format.ParseError as error:
            line, column = error.GetLine(), error.GetColumn()
            mended = _mend(text, str(error), line, column)
            if found and mended is None:
                break  # It may be a consequence of what stands in place of an unknown name.
            position = f'{line}:{column - moved[line]}' if line else 'end'
            hint = texts.first_invisible(text)
            hint = f' The text may have been copied from a page: {hint}.' if hint else ''
            found.append(f'{origin}:{position}: {_explain(str(error))}{hint}')
            if mended is None:
                break
            moved[line] += len(mended) - len(text)
            text = mended
    if problems is None or pipeline is None:
        raise_if_any([*(problems.sentences() if problems else ()), *found])
    with problems or Problems():
        raise_if_any(found)
    return pipeline


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


def _mend(text: str, message: str, line: int, column: int) -> str | None:
    """Returns a config without the unknown name that an error is about; None for other errors.

    A value becomes the nearest one. So does a field that holds a message, since the message would
    be missed, and others become blanks.
    """
    pool = descriptor_pool.Default()
    start = sum(len(each) + 1 for each in text.split('\n')[: line - 1]) + column - 1
    if found := _UNKNOWN_VALUE.search(message):
        names = [value.name for value in pool.FindEnumTypeByName(found[1]).values]
        new = (difflib.get_close_matches(found[2], names, n=1) or names)[0]
    elif found := _UNKNOWN_FIELD.search(message):
        names = [field.name for field in pool.FindMessageTypeByName(found[1]).fields]
        value = _NAME.match(text, start).end()
        nearest = difflib.get_close_matches(found[2], names, n=1)
        if not (nearest and text.startswith(('{', '<'), value)):
            end = _end_of_value(text, value)
            return text[:start] + re.sub(r'[^\n]', ' ', text[start:end]) + text[end:]
        new = nearest[0]
    else:
        return None
    return text[:start] + new + text[start + len(found[2]) :]


def _end_of_value(text: str, start: int) -> int:
    if not text.startswith(('{', '<', '['), start):
        scalar = _SCALAR.match(text, start)
        return scalar.end() if scalar else start
    depth = 0
    for found in _BRACKET_OR_OTHER.finditer(text, start):
        depth += (found[0] in '{<[') - (found[0] in '}>]')
        if not depth:
            return found.end()
    return len(text)


def _parse_overrides(value: str, problems: Problems) -> TrainEvalPipelineConfig:
    # All top-level fields are messages, so a text proto with content has a brace.
    if '{' in value or '<' in value:
        return parse_pipeline(value, '--config_override', problems)
    if not files.exists(value):
        raise ConfigError(
            '--config_override: expected a text proto, such as '
            f'`train_config {{ batch_size: 2 }}`, or a file with one. Received: {value}'
        )
    return parse_pipeline(read_text(value), value, problems)


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
