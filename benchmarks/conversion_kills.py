"""Converts to one prefix again and again, two jobs at a time, and kills them at random moments.

    python benchmarks/conversion_kills.py --rounds 50

Each job converts a generated data set of its own, whose class names the job in records, label map
and report. Half of the kills (SIGKILL) come after a random time, half in front of a random renaming
of a file, which is while a set is published. After each round the files under final names must be
one complete set, that of a job of this round or the one before it, unless `PREFIX.publishing` makes
readers refuse them. Printed is how the rounds ended; the program fails if one ended otherwise.
"""

import argparse
import collections
import json
import multiprocessing
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

import apache_beam.io.filesystems
import numpy as np
import tensorflow as tf
from PIL import Image

from object_detection.data import shard_names
from object_detection.data.formats.coco import CocoSource
from object_detection.dataset_tools.converters import conversion
from object_detection.utils import label_map_util

_IMAGES = 40
_SIDE = 64
_MAX_SHARDS = 4
_REFUSED = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--rounds', type=int, default=50)
    parser.add_argument('--seed', type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = run(pathlib.Path(name), arguments.rounds, random.Random(arguments.seed))
    for key, value in result.items():
        print(f'{key:>48} {value}')
    sys.exit(result['wrong'] > 0)


def run(folder: pathlib.Path, rounds: int, moments: random.Random) -> dict[str, int]:
    """Returns how many rounds ended in which way."""
    (folder / 'out').mkdir()
    counts = collections.Counter(rounds=rounds, wrong=0)
    start = time.monotonic()
    first = _start(folder, 'job0', 2, 0)
    first.join()
    duration, before = time.monotonic() - start, _state(folder / 'out')
    assert before == 'job0', before
    for number in range(1, rounds + 1):
        names = [f'job{number}a', f'job{number}b']
        codes = _round(folder, names, duration, moments)
        after = _state(folder / 'out')
        counts[_describe(before, after, names)] += 1
        counts.update(f'jobs: {_ENDS.get(code, "failed")}' for code in codes)
        wrong = _problem(before, after, dict(zip(names, codes, strict=True)))
        if wrong:
            counts['wrong'] += 1
            print(f'round {number}: {wrong}; {names} ended with {codes}: {before} -> {after}')
        before = after
    _start(folder, 'last', 1, 0).join()
    left = [path.name for path in (folder / 'out').iterdir() if '.tmp-' in path.name]
    counts['temporary files after a last conversion'] = len(left)
    counts['wrong'] += _state(folder / 'out') != 'last' or bool(left)
    return dict(counts)


_ENDS = {0: 'published', _REFUSED: 'refused', -signal.SIGKILL: 'killed'}


def _round(
    folder: pathlib.Path, names: list[str], duration: float, moments: random.Random
) -> list[int]:
    """Runs two jobs, kills each with a chance; returns their exit codes."""
    jobs = []
    for name in names:
        renaming = moments.randint(1, 8) if moments.random() < 0.35 else 0
        jobs.append(_start(folder, name, moments.randint(1, _MAX_SHARDS), renaming))
        time.sleep(moments.uniform(0, duration))
    for job in moments.sample(jobs, len(jobs)):
        if moments.random() < 0.35:
            time.sleep(moments.uniform(0, duration))
            job.kill()
    for job in jobs:
        job.join()
    return [job.exitcode for job in jobs]


def _start(
    folder: pathlib.Path, name: str, num_shards: int, renaming: int
) -> multiprocessing.Process:
    _write_data(folder / name, name)
    arguments = (folder / name, str(folder / 'out' / 'set'), num_shards, renaming)
    # A copy of this process has imported what it needs.
    job = multiprocessing.get_context('fork').Process(target=_convert, args=arguments)
    job.start()
    return job


def _convert(data: pathlib.Path, prefix: str, num_shards: int, renaming: int) -> None:
    file_systems = apache_beam.io.filesystems.FileSystems
    rename, calls = file_systems.rename, []

    def count(sources: list[str], destinations: list[str]) -> None:
        calls.append(sources)
        if len(calls) == renaming:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(sources, destinations)

    file_systems.rename = count
    source = CocoSource(str(data), str(data / 'a.json'))
    try:
        conversion.convert(source, prefix, num_shards)
    except ValueError:
        os._exit(_REFUSED)


def _write_data(folder: pathlib.Path, name: str) -> None:
    folder.mkdir()
    images, annotations = [], []
    for number in range(1, _IMAGES + 1):
        pixels = np.random.default_rng(number).integers(0, 256, (_SIDE, _SIDE, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f'{number}.jpg')
        images.append({'id': number, 'file_name': f'{number}.jpg'})
        box = {'bbox': [8, 8, 20, 20], 'category_id': 1}
        annotations.append({'id': number, 'image_id': number, **box})
    document = {'images': images, 'annotations': annotations}
    document['categories'] = [{'id': 1, 'name': name}]
    (folder / 'a.json').write_text(json.dumps(document))


def _state(out: pathlib.Path) -> str:
    """Returns the job whose set is there; 'refused' by readers; else what is wrong."""
    files = sorted(str(path) for path in out.glob('set-?????-of-?????'))
    pattern = str(out / 'set-?????-of-?????')
    problem = shard_names.problem(
        files, pattern, glob=tf.io.gfile.glob, exists=lambda path: os.path.exists(path)
    )
    # Before the first shard has its name, there may be no file to read.
    if problem or not files:
        return 'refused' if (out / 'set.publishing').exists() else problem or 'no set'
    records = [*tf.data.TFRecordDataset(files).as_numpy_iterator()]
    found = {_class_of(record) for record in records}
    found |= {*label_map_util.get_label_map_dict(str(out / 'set_label_map.pbtxt'))}
    report = json.loads((out / 'set.report.json').read_text())
    found.add(os.path.basename(report['source']['image_dir']))
    is_complete = len(records) == _IMAGES and len(files) == report['num_shards']
    return found.pop() if len(found) == 1 and is_complete else f'{len(records)} of {found}'


def _class_of(record: bytes) -> str:
    features = tf.train.Example.FromString(record).features.feature
    return features['image/object/class/text'].bytes_list.value[0].decode()


def _describe(before: str, after: str, names: list[str]) -> str:
    if after == before:
        return 'sets: the earlier one'
    if after in names:
        return f'sets: that of the {"first" if after == names[0] else "second"} job'
    return f'sets: {after if after == "refused" else "wrong"}'


def _problem(before: str, after: str, codes: dict[str, int]) -> str:
    """Returns what is wrong after a round; '' if nothing is."""
    published = [name for name, code in codes.items() if code == 0]
    killed = [name for name, code in codes.items() if code == -signal.SIGKILL]
    if any(code not in _ENDS for code in codes.values()):
        return 'a job failed'
    if after == 'refused':
        return '' if killed or before == 'refused' else 'nobody was killed'
    # A killed job may have published before it was killed.
    if after not in {before, *published, *killed}:
        return 'records, label map or report of different jobs'
    return (
        'a job reports success, and its set is not there' if published and after == before else ''
    )


if __name__ == '__main__':
    main()
