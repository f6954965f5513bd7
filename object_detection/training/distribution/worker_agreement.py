"""Checks that the workers of a training were started with the same config, files and versions.

Workers that differ would block or abort each other later, which a launcher would take for a lost
machine.
"""

import dataclasses
import hashlib
import importlib.metadata
import itertools
import os
import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from object_detection.builders.input_readers import annotation_files, rules
from object_detection.errors import ConfigError
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.system import files
from object_detection.training.distribution import collectives, strategies
from object_detection.training.monitoring.run_types import Intervals

# Machines may have copies of the files in different folders.
_FOLDER = re.compile(r'"[^"\n]*/([^"/\n]*)"')
_PACKAGES = ('tensorflow', 'keras', 'numpy')
# Longest text of a difference.
_MAX_LETTERS = 120


def check(
    strategy: tf.distribute.Strategy, config: TrainEvalPipelineConfig, intervals: Intervals
) -> None:
    """Checks that all workers have the same config, intervals, files and versions. Collective.

    Only the last component of a path is compared; names and sizes of local files of records; the
    content of label maps.

    Args:
      strategy: the strategy of the workers.
      config: the resolved config.
      intervals: of logging, checkpoints and evaluation.

    Raises:
      ConfigError: on all workers, with the first difference.
    """
    if strategies.num_workers(strategy) == 1:
        return
    own = describe(config, intervals)
    digests = [_digest(text) for text in own.values()]
    rows = collectives.gather_rows(strategy, np.array(digests, np.int64))
    for index, name in enumerate(own):
        if len(set(rows[:, index])) > 1:
            texts = collectives.gather_values(strategy, own[name])
            raise ConfigError(_difference(name, texts))


def describe(config: TrainEvalPipelineConfig, intervals: Intervals) -> dict[str, str]:
    """Returns what must be the same on all workers: description -> lines of text."""
    readers = {'train_input_reader': config.train_input_reader}
    if intervals.evaluation:
        readers |= {f'eval_input_reader[{n}]': r for n, r in enumerate(config.eval_input_reader)}
    return {
        'config and flags': _FOLDER.sub(r'"\1"', text_format.MessageToString(config)),
        'intervals': _lines(
            f'{name}: {value}' for name, value in dataclasses.asdict(intervals).items()
        ),
        'versions': _lines(f'{name} {importlib.metadata.version(name)}' for name in _PACKAGES),
        'input files': _lines(
            f'{where}: {line}' for where, reader in readers.items() for line in _described(reader)
        ),
    }


def _described(reader: InputReader) -> Iterator[str]:
    """Yields a line for each file of a reader."""
    coco = reader.coco_input_reader
    for pattern in (*reader.tf_record_input_reader.input_path, *coco.annotation_file):
        for path in sorted(tf.io.gfile.glob(pattern)):
            # Requests to a remote store for thousands of files would take minutes.
            size = '' if '://' in path else f', {os.path.getsize(path)} bytes'
            yield f'{os.path.basename(path)}{size}'
    if rules.reads_annotations(reader) and not coco.annotation_file:
        yield from annotation_files.described(reader)
    for path in (reader.label_map_path, reader.repeat_factor_sampling.image_counts_path):
        if path and files.exists(path):
            digest = hashlib.sha256(files.read_bytes(path)).hexdigest()
            yield f'{os.path.basename(path)}, sha256 {digest[:16]}'


def _lines(lines: Iterator[str]) -> str:
    return '\n'.join(lines)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], 'big', signed=True)


def _difference(name: str, texts: list[str]) -> str:
    """Returns a message with the first line in which a worker differs from worker 0."""
    other = next(index for index, text in enumerate(texts) if text != texts[0])
    pairs: Iterator[tuple[str, str]] = itertools.zip_longest(
        texts[0].splitlines(), texts[other].splitlines(), fillvalue='nothing'
    )
    first, second = next(pair for pair in pairs if pair[0] != pair[1])
    return (
        f'Workers: expected the same {name} of all. Received of worker 0: '
        f'{_truncate(first)}; of worker {other}: {_truncate(second)}.'
    )


def _truncate(line: str) -> str:
    line = line.strip()
    return line if len(line) <= _MAX_LETTERS else f'{line[:_MAX_LETTERS]}...'
