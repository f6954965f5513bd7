"""The names of sets of TFRecord files, `PREFIX-00000-of-00010` to `PREFIX-00009-of-00010`.

Encodes the image ids of a COCO file as text that distinguishes numbers from texts.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

_WILDCARDS = frozenset('*?[')
_SHARD = re.compile(r'(.+)-(\d{5})-of-(\d{5})')

# `PREFIX.publishing` exists while a conversion replaces the shards of a prefix.
PUBLISHING = '.publishing'


class ShardName(NamedTuple):
    """The parts of the name `PREFIX-00003-of-00010`."""

    prefix: str
    shard: int
    num_shards: int


def parse(path: str) -> ShardName | None:
    """Returns the parts of a shard's path; None for a file that is not a shard of a set."""
    match = _SHARD.fullmatch(path)
    return ShardName(match[1], int(match[2]), int(match[3])) if match else None


def missing_shards(paths: Iterable[str]) -> list[str]:
    """Returns the paths that are missing for complete sets."""
    present = set(paths)
    sets = {(name.prefix, name.num_shards) for name in map(parse, present) if name}
    return sorted(
        path
        for prefix, num_shards in sets
        for path in (f'{prefix}-{shard:05d}-of-{num_shards:05d}' for shard in range(num_shards))
        if path not in present
    )


def problem(
    files: Sequence[str],
    pattern: str,
    *,
    glob: Callable[[str], list[str]],
    exists: Callable[[str], bool],
) -> str | None:
    """Describes why files are not a valid data set: a set is incomplete, or is being replaced.

    Args:
      files: the files that match the pattern.
      pattern: pattern in a config; a pattern without wildcards names a single file, of which only
        that is checked whether it is being replaced itself.
      glob: returns the files that match a pattern.
      exists: returns whether a file exists.

    Returns:
      Sentences with the expected and the existing files; None if there is no problem.
    """
    if not _WILDCARDS & set(pattern):
        return _being_replaced(pattern, pattern) if exists(pattern + PUBLISHING) else None
    names = [name for name in map(parse, files) if name]
    for prefix, num_shards in sorted({(name.prefix, name.num_shards) for name in names}):
        if exists(prefix + PUBLISHING):
            return _being_replaced(pattern, prefix)
        # A config may name a part of a set, but missing files mean an interrupted copy or download.
        present = glob(f'{prefix}-?????-of-{num_shards:05d}')
        missing = [] if _WILDCARDS & set(prefix) else missing_shards(present)
        if missing:
            return (
                f'expected all {num_shards} files of a set. Received: {pattern!r}, of which '
                f'{len(missing)} do not exist, such as {missing[0]}; to read a part of a set, '
                'name its files one by one.'
            )
    return None


def _being_replaced(pattern: str, prefix: str) -> str:
    return (
        f'expected a set of shards that belong together. Received: {pattern!r}, while '
        f'{prefix}{PUBLISHING} exists: a conversion is replacing them, or was stopped while it '
        'did; convert again.'
    )


def to_text(image_id: Any) -> str:
    """Returns image/source_id for an `images.id`, which `from_text` converts back.

    Numbers and texts are written unchanged, except texts that look like JSON: the text "12" keeps
    its quotation marks, so that it differs from the number 12.
    """
    if isinstance(image_id, str) and from_text(image_id) == image_id:
        return image_id
    return json.dumps(image_id)


def from_text(text: str) -> int | float | str:
    """Returns the `images.id` from which a source id was made.

    A text is a number only if it is a JSON number: "000123" remains a text.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    is_id = isinstance(value, int | float | str) and not isinstance(value, bool)
    # NaN is not equal to itself, so it cannot be an id.
    return value if is_id and value == value and json.dumps(value) == text else text
