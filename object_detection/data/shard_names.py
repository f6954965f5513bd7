"""The names of sets of TFRecord files, `PREFIX-00000-of-00010` to `PREFIX-00009-of-00010`."""

import re
from collections.abc import Iterable
from typing import NamedTuple

_SHARD = re.compile(r'(.+)-(\d{5})-of-(\d{5})')

# `PREFIX.publishing` exists while the shards of a prefix belong to two sets.
PUBLISHING = '.publishing'


class ShardName(NamedTuple):
    """The parts of the name `PREFIX-00003-of-00010`."""

    prefix: str
    shard: int
    num_shards: int


def parse(path: str) -> ShardName | None:
    """Returns the parts of a shard's path; None for a file that is no shard of a set."""
    match = _SHARD.fullmatch(path)
    return ShardName(match[1], int(match[2]), int(match[3])) if match else None


def missing_shards(paths: Iterable[str]) -> list[str]:
    """Returns the paths that are missing between those of whole sets."""
    present = set(paths)
    sets = {(name.prefix, name.num_shards) for name in map(parse, present) if name}
    return sorted(
        path
        for prefix, num_shards in sets
        for path in (f'{prefix}-{shard:05d}-of-{num_shards:05d}' for shard in range(num_shards))
        if path not in present
    )
