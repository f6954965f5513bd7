"""How many mistakes in labels `tfod data check --model` finds: 50 are put into the set BCCD.

    python benchmarks/label_errors.py --data DIR --output DIR

Converts the training images of BCCD (see bccd.py), changes the labels in a fourth of the mistakes'
kinds each: labels are dropped, get another class, are shifted and rescaled, or are added where
nothing is. Trains the sample ssd_resnet18_fpn_bccd on the changed labels, lets `tfod data check`
rank them by that model, and prints how many of the mistakes are among the first ones ranked.
BCCD has mistakes of its own, which count as false alarms here.
"""

import json
import pathlib
from typing import Any, NamedTuple

import click
import learned
import numpy as np

from object_detection.core import tf_example_keys as keys
from object_detection.data import tf_record_files
from object_detection.protos.tf_example_pb2 import TfExample

_SAMPLE = 'ssd_resnet18_fpn_bccd'
_KINDS = ('missing', 'wrong_class', 'badly_drawn', 'spurious')
# IoU of a moved box with the right one, and of an added box with any other, at most.
_MOVED_IOU, _ADDED_IOU = (0.3, 0.6), 0.1


class Mistake(NamedTuple):
    """A mistake that was put in.

    Attributes:
      image: name of the image's file.
      kind: one of `_KINDS`.
      label: index of the changed label in its record; -1 of a dropped one.
      box: [ymin, xmin, ymax, xmax] of the dropped label, normalized.
    """

    image: str
    kind: str
    label: int
    box: tuple[float, ...]


@click.command(help=__doc__)
@click.option('--data', required=True, type=click.Path(exists=True, file_okay=False))
@click.option('--output', required=True, type=click.Path(file_okay=False))
@click.option('--num_mistakes', default=50, show_default=True)
@click.option('--top', default=100, show_default=True, help='How many of the ranking to look at.')
@click.option('--num_steps', default=0, help='Training steps; 0 = as in the sample config.')
@click.option('--max_minutes', default=30.0, show_default=True, help='For the training.')
@click.option('--seed', default=0, show_default=True, help='Of the mistakes and of the training.')
def main(
    data: str,
    output: str,
    num_mistakes: int,
    top: int,
    num_steps: int,
    max_minutes: float,
    seed: int,
) -> None:
    folder = pathlib.Path(output)
    clean = folder / 'clean'
    clean.mkdir(parents=True, exist_ok=True)
    for part in ('train', 'val'):
        learned.tfod(
            *('convert', 'voc', '--data_dir', data, '--set', part),
            *('--output', clean / part, '--shards', 1),
        )
    mistakes = write_mistakes(clean, folder, num_mistakes, seed)
    (folder / 'mistakes.json').write_text(json.dumps([each._asdict() for each in mistakes]))
    learned.train(_SAMPLE, folder, seed=seed, num_steps=num_steps, max_minutes=max_minutes)
    learned.tfod(
        *('data', 'check', folder / 'train-00000-of-00001', '--model', folder / 'model'),
        *('--label_map', folder / 'train_label_map.pbtxt', '--top', top),
        *('--output', folder / 'check.html', '--json', folder / 'check.json'),
    )
    report(folder, mistakes, top)


def write_mistakes(
    clean: pathlib.Path, folder: pathlib.Path, number: int, seed: int
) -> list[Mistake]:
    """Copies the records of `clean` to `folder`, with mistakes in those of the training."""
    random = np.random.default_rng(seed)
    for path in clean.glob('*.pbtxt'):
        (folder / path.name).write_bytes(path.read_bytes())
    for path in clean.glob('val-*'):
        (folder / path.name).write_bytes(path.read_bytes())
    (source,) = clean.glob('train-*')
    examples = [TfExample.FromString(content) for content in tf_record_files.records(source)]
    classes = sorted({label for each in examples for label in _classes(each)})
    mistakes: list[Mistake] = []
    # One mistake an image at most, so that the index of a label stays what it is.
    for index in random.permutation(len(examples)):
        kind = _KINDS[len(mistakes) % len(_KINDS)]
        mistake = _CHANGES[kind](examples[index].features.feature, classes, random)
        if mistake is not None:
            name = examples[index].features.feature[keys.FILENAME].bytes_list.value[0].decode()
            mistakes.append(Mistake(name, kind, mistake[0], tuple(mistake[1])))
        if len(mistakes) == number:
            break
    with open(folder / source.name, 'wb') as file:
        for each in examples:
            tf_record_files.write_record(file, each.SerializeToString(deterministic=True))
    return mistakes


def report(folder: pathlib.Path, mistakes: list[Mistake], top: int) -> None:
    """Prints how many of the mistakes are among the first of the ranking."""
    (checked,) = json.loads((folder / 'check.json').read_text())['sets']
    ranks = {
        mistake: next(
            (rank for rank, each in enumerate(checked['labels'], 1) if _is_found(mistake, each)),
            None,
        )
        for mistake in mistakes
    }
    print(f'of {len(checked["labels"])} labels that are ranked, the first {top}:')
    for kind in _KINDS:
        of_kind = [rank for mistake, rank in ranks.items() if mistake.kind == kind]
        found = sum(rank is not None and rank <= top for rank in of_kind)
        print(f'  {kind:12} {found} of {len(of_kind)}, at {sorted(r for r in of_kind if r)}')
    found = sum(rank is not None and rank <= top for rank in ranks.values())
    print(f'  in all       {found} of {len(mistakes)}')


def _is_found(mistake: Mistake, ranked: dict[str, Any]) -> bool:
    """Whether an entry of the ranking is the changed label, or where the dropped one was."""
    if ranked['image'] != mistake.image:
        return False
    if mistake.kind != 'missing':
        return ranked['label'] == mistake.label
    if ranked['kind'] != 'missing':
        return False
    return _iou(np.array(mistake.box), np.array([ranked['found_box']]))[0] >= 0.5


def _values(features, key: str):
    feature = features[key]
    return getattr(feature, feature.WhichOneof('kind')).value


def _lists(features, count: int) -> list:
    """Returns the lists with one value for each of `count` objects."""
    of_objects = [key for key in features if key.startswith('image/object/')]
    return [values for key in of_objects if len(values := _values(features, key)) == count]


def _classes(example: TfExample) -> list[tuple[bytes, int]]:
    features = example.features.feature
    keys_ = (keys.CLASS_TEXT, keys.CLASS_LABEL)
    return list(zip(*(_values(features, key) for key in keys_), strict=True))


def _boxes(features) -> np.ndarray:
    return np.stack([_values(features, key) for key in keys.BOX_SIDES], axis=1)


def _drop(features, classes, random) -> tuple[int, list[float]]:
    boxes = _boxes(features)
    row = int(random.integers(len(boxes)))
    for values in _lists(features, len(boxes)):
        del values[row]
    return -1, boxes[row].tolist()


def _swap(features, classes, random) -> tuple[int, list[float]]:
    labels = _values(features, keys.CLASS_LABEL)
    row = int(random.integers(len(labels)))
    others = [each for each in classes if each[1] != labels[row]]
    text, label = others[random.integers(len(others))]
    _values(features, keys.CLASS_TEXT)[row], labels[row] = text, label
    return row, _boxes(features)[row].tolist()


def _move(features, classes, random) -> tuple[int, list[float]] | None:
    boxes = _boxes(features)
    row = int(random.integers(len(boxes)))
    box = boxes[row]
    for _ in range(1000):
        size = (box[2:] - box[:2]) * random.uniform(0.6, 1.6, 2)
        center = (box[2:] + box[:2]) / 2 + (box[2:] - box[:2]) * random.uniform(-0.4, 0.4, 2)
        moved = np.concatenate([center - size / 2, center + size / 2]).clip(0, 1)
        if _MOVED_IOU[0] <= _iou(moved, box[None])[0] <= _MOVED_IOU[1]:
            _set_box(features, row, moved)
            return row, box.tolist()
    return None


def _add(features, classes, random) -> tuple[int, list[float]] | None:
    boxes = _boxes(features)
    like = int(random.integers(len(boxes)))
    size = boxes[like, 2:] - boxes[like, :2]
    for _ in range(1000):
        corner = random.uniform(0, 1 - size)
        box = np.concatenate([corner, corner + size])
        if _iou(box, boxes).max() <= _ADDED_IOU:
            for values in _lists(features, len(boxes)):
                values.append(values[like])
            _set_box(features, len(boxes), box)
            return len(boxes), box.tolist()
    return None


_CHANGES = dict(zip(_KINDS, (_drop, _swap, _move, _add), strict=True))


def _set_box(features, row: int, box: np.ndarray) -> None:
    for key, value in zip(keys.BOX_SIDES, box.tolist(), strict=True):
        _values(features, key)[row] = value


def _iou(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    sides = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    shared = np.maximum(sides, 0).prod(axis=1)
    return shared / ((box[2:] - box[:2]).prod() + (boxes[:, 2:] - boxes[:, :2]).prod(1) - shared)


if __name__ == '__main__':
    main()
