"""Mutated annotation files, label maps, configs and images through what reads them; see fuzz.py.

A mutated data set is read as what it was before, as if a user had named its files, and every format
of `data/formats/formats.py` tries to find its data sets in it. `--data` adds folders to those of
fuzz_data_sets.py.
"""

import collections
import dataclasses
import itertools
import pathlib
import shutil
from collections.abc import Callable, Sequence

import fuzz_data_sets
import mutations
import numpy as np

_IMAGE_SUFFIXES = ('.jpg', '.jpeg', '.png', '.bmp', '.gif', '.webp', '.tif', '.tiff')
# Files of a data set and their sizes that are copied and mutated.
_MAX_FILES, _MAX_BYTES = 60, 1 << 20
_MAX_IMAGES = 8
_LABEL_MAP = 'item { id: 1 name: "cat" } item { id: 2 name: "dog" display_name: "Dog" }'
_PIPELINE = """model { faster_rcnn { num_classes: 2 image_resizer { keep_aspect_ratio_resizer {
min_dimension: 60 max_dimension: 100 } } } } train_config { batch_size: 2 num_steps: 10 }
train_input_reader { label_map_path: "map.pbtxt"
tf_record_input_reader { input_path: "train-*" } }"""


def run(
    seed: int,
    count: int,
    folder: pathlib.Path,
    beat: pathlib.Path,
    data: Sequence[str] = (),
) -> dict[str, int]:
    """Mutates `count` files; returns the counts of outcomes by kind of file."""
    generator = np.random.default_rng(seed)
    counts: collections.Counter[str] = collections.Counter()
    seeds, work = folder / 'seeds', folder / 'input'
    fuzz_data_sets.write(seeds)
    for index, path in enumerate(data):
        _copy(pathlib.Path(path), seeds / f'{index}_{pathlib.Path(path).name}')
    folders = sorted(path for path in seeds.iterdir() if path.is_dir())
    targets = [*_FILES.items(), *((each.name, _Folder(each, work)) for each in folders)]
    for number in range(count):
        beat.touch()
        name, target = targets[number % len(targets)]
        counts[f'{name}: mutated'] += 1
        if isinstance(target, _Folder):
            outcomes = target.mutated(generator)
        else:
            content, read = target
            path = _emptied(work) / 'file'
            change = mutations.mutate if read is _read_image else mutations.mutate_text
            path.write_bytes(change(content(), generator))
            outcomes = {_outcome(lambda path=path, read=read: read(path))}
        counts.update(f'{name}: {outcome}' for outcome in outcomes)
    return counts


def _emptied(folder: pathlib.Path) -> pathlib.Path:
    """Makes the folder of the input, which is that of a finding."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _outcome(read: Callable[[], object]) -> str:
    """Returns the class of the error of a call, or 'read'; lets errors that are defects pass."""
    from object_detection.errors import UserError

    try:
        read()
    except (UserError, OSError) as error:
        return getattr(error, 'reason', type(error).__name__)
    return 'read'


class _Folder:
    """A data set that is mutated.

    Args:
      source: its folder.
      work: the folder that its copies are written to.
    """

    def __init__(self, source: pathlib.Path, work: pathlib.Path):
        from object_detection.data.file_access import LocalFiles
        from object_detection.data.formats import formats

        self._source, self._work, self._files = source, work, LocalFiles()
        found = formats.detect(str(self._copied()), self._files)
        self._known = [(name, each.source) for name, sets in found.items() for each in sets]
        self._known += [
            (n, dataclasses.replace(s, bodies=True)) for n, s in self._known if n == 'pets'
        ]

    def _copied(self) -> pathlib.Path:
        return pathlib.Path(shutil.copytree(self._source, _emptied(self._work) / 'data'))

    def mutated(self, generator: np.random.Generator) -> set[str]:
        """Mutates a file, looks for data sets of every format, and reads them; see `_outcome`."""
        from object_detection.data.formats.formats import ANNOTATION_FORMATS

        copied = self._copied()
        paths = sorted(path for path in copied.rglob('*') if path.is_file())
        texts = [path for path in paths if path.suffix.lower() not in _IMAGE_SUFFIXES]
        # Mostly annotations; they are fewer than the images.
        among = texts if texts and generator.random() < 0.8 else paths
        path = among[generator.integers(len(among))]
        change = mutations.mutate_text if path in texts else mutations.mutate
        path.write_bytes(change(path.read_bytes(), generator))
        outcomes: set[str] = set()
        sources = list(self._known)
        for name, row in ANNOTATION_FORMATS.items():
            found: list = []
            outcome = _outcome(
                lambda row=row, found=found: found.extend(
                    row.source.detect(str(copied), self._files)
                )
            )
            if outcome != 'read':
                outcomes.add(f'{name}, detect: {outcome}')
            sources += [(name, item.source) for item in found if (name, item.source) not in sources]
        for name, source in sources:
            outcome, read = _opened(name, source, self._files)
            outcomes |= read
            if outcome != 'read':
                outcomes.add(f'{name}, open: {outcome}')
        return outcomes or {'no format'}


def _opened(name: str, source, files) -> tuple[str, set[str]]:
    outcomes: set[str] = set()
    return _outcome(lambda: outcomes.update(_read(name, source, files))), outcomes


def _read(name: str, source, files) -> set[str]:
    """Opens a data set and reads its first images; returns the outcomes."""
    from object_detection.data.formats import source as formats_source

    opened = source.open(files, None)
    outcomes: set[str] = set()
    for entry in itertools.islice(source.entries(files), _MAX_IMAGES):

        def read(entry=entry) -> None:
            frames = [formats_source.ImageEntry(*each) for each in entry.image.get('frames', ())]
            for each in frames or [entry]:
                image = formats_source.read(opened.reader, each, files).image
                boxes = image.boxes
                assert boxes.shape == (len(image), 4), boxes.shape
                assert ((boxes >= 0) & (boxes <= 1)).all(), boxes
                assert (boxes[:, 2:] > boxes[:, :2]).all(), boxes

        outcomes.add(f'{name}: {_outcome(read)}')
    return outcomes


def _read_label_map(path: pathlib.Path) -> None:
    from object_detection.data import label_map

    read = label_map.load(str(path))
    assert all(category['id'] > 0 for category in read.categories)


def _read_config(path: pathlib.Path) -> None:
    from object_detection.config import reader

    reader.read_pipeline(str(path), overrides_text='', settings=())


def _read_image(path: pathlib.Path) -> None:
    from object_detection.data import annotation_checks

    file = annotation_checks.check_image(path.read_bytes(), (None, None), 1 << 24)
    assert min(file.height, file.width) > 0


# Name -> the content and the function that reads a changed one.
_FILES = {
    'label map': (_LABEL_MAP.encode, _read_label_map),
    'config': (_PIPELINE.encode, _read_config),
    'JPEG image': (lambda: fuzz_data_sets.image('JPEG'), _read_image),
    'PNG image': (lambda: fuzz_data_sets.image('PNG'), _read_image),
}


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies the first small files of a data set, an image for each few files of annotations."""
    paths = [p for p in sorted(source.rglob('*')) if p.is_file() and p.stat().st_size < _MAX_BYTES]
    for path in paths[:_MAX_FILES]:
        copied = target / path.relative_to(source)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)
