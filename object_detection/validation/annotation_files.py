"""Checks the annotation files and image folders of the readers that read no records."""

import collections
import itertools
from collections.abc import Iterator, Sequence

from object_detection.builders import families
from object_detection.config import unsupported
from object_detection.data import annotated_image, annotation_checks, label_map
from object_detection.errors import format_list
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.validation import augmentation

_TRAINING = 'train_input_reader'
_AFTER_STEPS = ' (after train_config.data_augmentation_options)'
# Number of annotations to check, and number of images to search for one annotation.
_ENOUGH, _MAX_IMAGES = 100, 5000


def check(
    pipeline: TrainEvalPipelineConfig, reader: InputReader, path: str, *, needs_objects: bool
) -> Iterator[str]:
    """Yields contradictions between the files and the config.

    Args:
      pipeline: the config.
      reader: one of its readers, whose files exist.
      path: path of the reader in the config.
      needs_objects: whether there must be an object.
    """
    # Loads TensorFlow.
    from object_detection.builders.input_readers import annotation_files

    try:
        sources = annotation_files.build(reader, path)
    except ValueError as error:
        yield str(error)
        return
    for i, records in enumerate(sources):
        fields = annotation_files.fields(reader, path, i)
        yield from _images(records, fields.images)
        yield from _categories(pipeline, reader, records, fields.annotations)
    annotations = annotation_files.fields(reader, path).annotations
    if not path.startswith(_TRAINING):
        yield from _repeated_ids(sources, annotations)
    if needs_objects and not any(map(len, sources)):
        yield f'{annotations}: expected images. Received: none.'
        return
    skip_crowd = needs_objects and reader.skip_crowd
    yield from _objects(sources, annotations, needs_objects, skip_crowd)


def object_counts(reader: InputReader, path: str) -> Iterator[tuple[int, str]]:
    """Yields the number of usable objects of each of the first images, and its name.

    Args:
      reader: a reader whose files were checked.
      path: path of the reader in the config.
    """
    # Loads TensorFlow.
    from object_detection.builders.input_readers import annotation_files

    sources = annotation_files.build(reader, path)
    places = ((records, i) for records in sources for i in range(len(records)))
    for records, i in itertools.islice(places, _MAX_IMAGES):
        image_id = records.entries.image(i)['id']
        yield len(records.objects(i)[0]), f'image {image_id!r} of {records.path}'


def _images(records, path: str) -> Iterator[str]:
    missing = records.missing_images()
    first = next(missing, None)
    if first is not None:
        count = 1 + sum(1 for _ in missing)
        yield (
            f'{path}: expected all {len(records)} images of {records.path}. '
            f'Received: {count} missing, of which {first}.'
        )


def _repeated_ids(sources: Sequence, path: str) -> Iterator[str]:
    """Yields ids that two files share, since an evaluation identifies images by their ids."""
    seen: set = set()
    for records in sources:
        ids = set(records.image_ids())
        if repeated := seen & ids:
            yield (
                f'{path}: expected images of different ids in all files of an evaluation. '
                f'Received: {len(repeated)} that are in two files, such as {next(iter(repeated))}.'
            )
        seen |= ids


def _categories(
    pipeline: TrainEvalPipelineConfig, reader: InputReader, records, path: str
) -> Iterator[str]:
    labels = records.data.labels.values()
    if reader.label_map_path:
        known = label_map.load(reader.label_map_path).text_to_id
        texts = [label.text for label in labels]
        if texts and known.keys().isdisjoint(texts):
            yield (
                f'{path}: expected categories of the label map {reader.label_map_path}, '
                f'{format_list(map(repr, known))}. Received: {format_list(map(repr, texts))}.'
            )
        return
    ids = {label.label for label in labels}
    left = ids
    if path.startswith(_TRAINING):
        left = set(augmentation.ids_trained_on(ids, pipeline.train_config))
    num_classes = families.num_classes(pipeline.model)
    if max(left, default=0) > num_classes > 0:
        yield (
            f'{families.path(pipeline.model)}.num_classes is {num_classes}, but {path} has '
            f'category ids up to {max(left)}{"" if left == ids else _AFTER_STEPS}; expected at '
            f'least {max(left)}, or a label_map_path that numbers the categories by name.'
        )


def _objects(sources: Sequence, path: str, needs_objects: bool, skip_crowd: bool) -> Iterator[str]:
    places = ((records, i) for records in sources for i in range(len(records)))
    num_images = num_usable = num_trained = 0
    problems: list[str] = []
    notes: collections.Counter[str] = collections.Counter()
    try:
        for records, i in itertools.islice(places, _MAX_IMAGES):
            num_images += 1
            objects, of_image, of_boxes = records.objects(i)
            notes.update(of_boxes)
            num_usable += len(objects)
            num_trained += sum(not (skip_crowd and item.is_crowd) for item in objects)
            problems += of_image
            if num_trained and num_usable + len(problems) >= _ENOUGH:
                break
    except ValueError as error:
        yield f'{path}: {error}.'
        return
    if len(problems) > num_usable:
        yield (
            f'{path}: expected annotations that can be used. Received: {len(problems)} that cannot '
            f'be, of the first {num_usable + len(problems)}, for example {problems[0]}.'
        )
    elif text := annotation_checks.doubt(notes, num_usable):
        if 2 * notes[annotated_image.FIRST_PIXEL] > num_usable:
            yield f'{path}: {text}'
        else:
            unsupported.log_once(f'{path}: {text}')
    elif needs_objects and not num_trained:
        crowds = ' that are no crowds' if num_usable else ''
        yield (
            f'{path}: expected images with objects{crowds}. Received: none in the first '
            f'{num_images} images.'
        )
