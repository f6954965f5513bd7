"""Compares the first records of each reader with the config.

Otherwise a wrong label map, or a wrong type of masks, leads to a training that learns nothing or to
an error of TensorFlow that names no field.

Checks the annotation files and image folders of the readers that read no records.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Collection, Iterator, Sequence

from google.protobuf.message import DecodeError

from object_detection.builders.input_readers import rules
from object_detection.config import families, report, synthetic_data
from object_detection.core import tf_example_keys as keys
from object_detection.data import annotated_image, annotation_checks, label_map, tf_record_files
from object_detection.errors import UserError, format_list
from object_detection.protos import input_reader_pb2
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.validation import augmentation, warnings

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
            report.current().warn(f'{path}: {text}')
    elif needs_objects and not num_trained:
        crowds = ' that are no crowds' if num_usable else ''
        yield (
            f'{path}: expected images with objects{crowds}. Received: none in the first '
            f'{num_images} images.'
        )


# Minimum number of records with objects to check.
_MIN_RECORDS = 8
# Number of records with objects after which a reader without any mask is reported.
_MAX_WITHOUT_MASKS = 20
# Maximum number of records to search for a class of the label map. Usually the first has one;
# many are needed if a label map contains only a rare class.
_MAX_WITHOUT_CLASS = 5000
# Bytes of a reader's records that are checked for corruption, which takes seconds from a disk.
_MAX_BYTES = 1 << 30
# Annotators draw a little over the border; coordinates further outside were never normalized.
_MIN_COORDINATE, _MAX_COORDINATE = -0.5, 1.5
_TRAINING = 'train_input_reader'

# Bytes of a PNG file up to its number of bits.
_PNG_BITS = 25
_HELD = {'PNG_MASKS': 'PNG files', 'NUMERICAL_MASKS': 'numbers'}


class UnreadableError(Exception):
    """A file is no TFRecord file of examples; the message lacks the full stop of its sentence."""


def check_all(pipeline: TrainEvalPipelineConfig, parts: Collection[str]) -> Iterator[str]:
    """Reads the records of some readers from end to end; yields a sentence for corrupt files.

    A warning is logged for a training reader whose `max_number_of_boxes` is exceeded by an image.

    Args:
      pipeline: the config.
      parts: names of top-level fields; the first `_MAX_BYTES` of each of their readers are read.
    """
    for path, reader in warnings.readers(pipeline, parts):
        if synthetic_data.is_synthetic(reader):
            continue
        if rules.reads_annotations(reader):
            counts = object_counts(reader, path)
        else:
            counts = _object_counts(reader, path)
        try:
            most, name = max(counts, default=(0, ''))
        except UnreadableError as error:
            yield f'{path}.tf_record_input_reader.input_path: {error}.'
            continue
        if path == _TRAINING and most > reader.max_number_of_boxes:
            report.current().warn(
                f'{path}.max_number_of_boxes is {reader.max_number_of_boxes}, but {name} has '
                f'{most} objects: what is beyond that number after augmentation is left out, and '
                'trains as background.'
            )


def check_training(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields contradictions of the config to the first records of `train_input_reader`."""
    yield from _reader(pipeline, pipeline.train_input_reader, _TRAINING, needs_objects=True)


def check_evaluation(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields contradictions of the config to the first records of every `eval_input_reader`."""
    for index, reader in enumerate(pipeline.eval_input_reader):
        yield from _reader(pipeline, reader, f'eval_input_reader[{index}]')


@dataclasses.dataclass
class _Seen:
    """The findings in the records with objects that were read so far."""

    count: int = 0
    mask_type: str | None = None
    texts: dict[str, None] = dataclasses.field(default_factory=dict)
    has_known_class: bool = False
    box_problems: list[str] = dataclasses.field(default_factory=list)

    def add(self, features, known: dict[str, int]) -> None:
        self.count += 1
        problem = _box_problem(features)
        self.box_problems += [f'{_name(features)}: {problem}'] if problem else []
        masks = features.get(keys.MASK)
        if masks is not None and masks.bytes_list.value:
            self.mask_type = self.mask_type or 'PNG_MASKS'
        elif masks is not None and masks.float_list.value:
            self.mask_type = self.mask_type or 'NUMERICAL_MASKS'
        texts = _texts(features)
        self.texts.update(dict.fromkeys(texts))
        # Records without class texts hold ids, which need no label map.
        self.has_known_class |= not texts or not known.keys().isdisjoint(texts)


def _reader(
    pipeline: TrainEvalPipelineConfig,
    reader: InputReader,
    path: str,
    *,
    needs_objects: bool = False,
) -> Iterator[str]:
    if synthetic_data.is_synthetic(reader):
        return
    if rules.reads_annotations(reader):
        yield from check(pipeline, reader, path, needs_objects=needs_objects)
        return
    known = label_map.load(reader.label_map_path).text_to_id if reader.label_map_path else None
    seen, looked_at = _Seen(has_known_class=known is None), 0
    try:
        for features in itertools.islice(_features(reader), _MAX_WITHOUT_CLASS):
            looked_at += 1
            if not _has_objects(features, needs_objects and reader.skip_crowd, needs_objects):
                continue
            seen.add(features, known or {})
            _warn_of_bits(features, pipeline, path)
            problem = _label_problem(features, known, pipeline, path)
            problem = problem or _score_problem(features, pipeline, path)
            problem = problem or _context_problem(features, pipeline)
            if problem:
                yield f'{path}, {_name(features)}: {problem}'
                return
            needs_masks = reader.load_instance_masks and seen.mask_type is None
            needs_more = seen.count < (_MAX_WITHOUT_MASKS if needs_masks else _MIN_RECORDS)
            if seen.has_known_class and not needs_more:
                break
    except UnreadableError as error:
        yield f'{path}.tf_record_input_reader.input_path: {error}.'
        return
    if not looked_at:
        yield (
            f'{path}.tf_record_input_reader.input_path: expected files with records. '
            f'Received files without any: {format_list(map(repr, _files(reader)))}.'
        )
        return
    if not seen.count:
        if needs_objects:
            yield (
                f'{path}.tf_record_input_reader.input_path: expected records with objects '
                f'({keys.YMIN} and so on) of a weight above 0'
                f'{", which are no crowds" if reader.skip_crowd else ""}. Received: none in the '
                f'first {looked_at} records.'
            )
        return
    # Training drops and reports a few wrong boxes; if most are wrong, it is an error.
    if 2 * len(seen.box_problems) > seen.count:
        yield f'{path}, {seen.box_problems[0]}'
    if reader.load_instance_masks:
        yield from _masks(reader, path, seen)
    if not seen.has_known_class:
        yield (
            f'{path}.label_map_path: {reader.label_map_path} has none of the classes of the first '
            f'{seen.count} records with objects. They have {format_list(map(repr, seen.texts))}; '
            f'the label map has {format_list(map(repr, known))}.'
        )


def _object_counts(reader: InputReader, path: str) -> Iterator[tuple[int, str]]:
    """Yields the number of objects and the name of each record of the first files."""
    import tensorflow as tf

    num_bytes, names = 0, _files(reader)
    for number, name in enumerate(names):
        if num_bytes > _MAX_BYTES:
            report.current().warn(
                f'{path}.tf_record_input_reader.input_path: the first {number} of {len(names)} '
                'files were read for damage; training reads all.'
            )
            return
        num_bytes += tf.io.gfile.stat(name).length
        for features in read_features(name, of_frames=rules.holds_sequences(reader)):
            yield len(features[keys.YMIN].float_list.value), f'{_name(features)} in {name}'


def _box_problem(features) -> str | None:
    sides = [features[side].float_list.value for side in keys.BOX_SIDES]
    if len({len(values) for values in sides}) > 1:
        return f'expected as many values of each side of the boxes. Received: {_lengths(sides)}.'
    if not all(map(math.isfinite, itertools.chain(*sides))):
        return 'expected finite coordinates of the boxes. Received: NaN or infinity.'
    lowest, highest = min(map(min, sides)), max(map(max, sides))
    if lowest >= _MIN_COORDINATE and highest <= _MAX_COORDINATE:
        ymin, xmin, ymax, xmax = sides
        if all(ymin[n] > ymax[n] or xmin[n] > xmax[n] for n in range(len(ymin))):
            return (
                f'expected boxes with ymin < ymax and xmin < xmax. Received: {len(ymin)} boxes of '
                'the other order; are the sides swapped?'
            )
        return None
    return (
        'expected boxes normalized to the image, 0..1. Received: coordinates from '
        f'{lowest:g} to {highest:g}; divide pixels by the height and width of the image.'
    )


def _lengths(sides) -> str:
    return ', '.join(
        f'{len(values)} {name.rpartition("/")[2]}'
        for name, values in zip(keys.BOX_SIDES, sides, strict=True)
    )


def _warn_of_bits(features, pipeline: TrainEvalPipelineConfig, path: str) -> None:
    model = families.options(pipeline.model)
    if model is not None and model.image_resizer.HasField('value_range'):
        return
    values = features[keys.ENCODED].bytes_list.value
    header = values[0][:_PNG_BITS] if values else b''
    if header.startswith(b'\x89PNG') and header.endswith(b'\x10'):
        report.current().warn(
            f'{path}: records hold PNG images of 16 bits, such as {_name(features)}. The upper '
            '8 bits of each value are read, so that images of 12 bits are nearly black; declare '
            'their values, for example by '
            f'--set {families.path(pipeline.model)}.image_resizer.value_range.max=4095.'
        )


def _has_objects(features, skip_crowd: bool, is_training: bool) -> bool:
    """Whether a record has an object that is read, of a weight above 0 for a training."""
    count = len(features[keys.YMIN].float_list.value)
    crowds = features[keys.IS_CROWD].int64_list.value if skip_crowd else ()
    weights = features[keys.WEIGHT].float_list.value if is_training else ()
    pairs = itertools.zip_longest(crowds[:count], weights[:count])
    found = [not crowd and (weight is None or weight > 0) for crowd, weight in pairs]
    return any(found) if found else count > 0


def _label_problem(features, known, pipeline: TrainEvalPipelineConfig, path: str) -> str | None:
    if known is not None and _texts(features):
        return None  # Classes are found by their texts.
    labels = features[keys.CLASS_LABEL].int64_list.value
    if path == _TRAINING:
        labels = augmentation.ids_trained_on(labels, pipeline.train_config)
    num_classes = families.num_classes(pipeline.model)
    if not labels or not num_classes or (max(labels) <= num_classes and 0 not in labels):
        return None
    if max(labels) <= num_classes:
        return 'expected labels from 1 on, as 0 is the background. Received: label 0.'
    return (
        f'expected labels up to {families.path(pipeline.model)}.num_classes = {num_classes}. '
        f'Received: label {max(labels)}.'
    )


def _score_problem(features, pipeline: TrainEvalPipelineConfig, path: str) -> str | None:
    if path != _TRAINING or not pipeline.train_config.use_multiclass_scores:
        return None
    num_scores = len(features[keys.CLASS_SCORES].float_list.value)
    num_boxes = len(features[keys.YMIN].float_list.value)
    num_classes = families.num_classes(pipeline.model)
    if num_scores in (0, num_boxes * num_classes) or not num_classes:
        return None
    return (
        f'expected {num_boxes * num_classes} values of image/object/class/multiclass_scores, one '
        f'for each of {num_classes} classes (without background) of {num_boxes} boxes. '
        f'Received: {num_scores}.'
    )


def _context_problem(features, pipeline: TrainEvalPipelineConfig) -> str | None:
    size = families.needs(pipeline.model).example_options.get('context_size')
    if size is None:
        return None
    lengths = features[keys.CONTEXT_FEATURE_LENGTH].int64_list.value
    if lengths and lengths[0] == size[1]:
        return None
    return (
        f'expected an {keys.CONTEXT_FEATURE_LENGTH} of {size[1]}, as '
        f'{families.path(pipeline.model)}.context_config.context_feature_length says. '
        f'Received: {lengths[0] if lengths else "none"}.'
    )


def _name(features) -> str:
    values = features[keys.SOURCE_ID].bytes_list.value
    source_id = values[0].decode(errors='replace') if values else ''
    return f'record with source id {source_id!r}' if source_id else 'a record without source id'


def _masks(reader: InputReader, path: str, seen: _Seen) -> Iterator[str]:
    is_png = reader.mask_type == input_reader_pb2.PNG_MASKS
    expected = 'PNG_MASKS' if is_png else 'NUMERICAL_MASKS'
    if seen.mask_type is None:
        yield (
            f'{path}.load_instance_masks is true, but the first {seen.count} records with objects '
            'have no masks; convert the data with `tfod convert coco --masks`.'
        )
    elif seen.mask_type != expected:
        said = '' if reader.HasField('mask_type') else ' (not set)'
        yield (
            f'{path}.mask_type is {expected}{said}, but the records hold masks as '
            f'{_HELD[seen.mask_type]}; set it to {seen.mask_type}.'
        )


def _texts(features) -> list[str]:
    values = features[keys.CLASS_TEXT].bytes_list.value
    return [value.decode(errors='replace') for value in values]


def _features(reader: InputReader) -> Iterator:
    """Yields the features of the reader's examples, a map from keys to tf.train.Feature.

    Records that cannot be read are left out, as training does unless it is strict.
    """
    for name in _files(reader):
        yield from read_features(
            name, of_frames=rules.holds_sequences(reader), skips_bad=not reader.strict_data
        )


def read_features(name: str, *, of_frames: bool = False, skips_bad: bool = False) -> Iterator:
    """Yields the features of each example of a TFRecord file, a map from keys to tf.train.Feature.

    Args:
      name: path of the file.
      of_frames: whether the records are tf.SequenceExamples, whose annotated frames are examples.
      skips_bad: whether corrupt records are left out, as long as there are others.

    Raises:
      UnreadableError: if the file is no TFRecord file, or holds no examples; without `skips_bad`,
        if it is corrupt.
    """
    import tensorflow as tf

    records = _intact_records(name) if skips_bad else tf_record_files.records(name)
    problem, has_good = None, False
    try:
        for record in records:
            try:
                frames = _frames(record) if of_frames else [record]
                found = [tf.train.Example.FromString(frame).features.feature for frame in frames]
            except (DecodeError, UserError) as error:
                problem = problem or error
                if not skips_bad:
                    break
            else:
                has_good = True
                yield from found
    except tf_record_files.CorruptFileError as error:
        raise UnreadableError(str(error)) from None
    if problem and not (skips_bad and has_good):
        text = str(problem).removesuffix('.') if isinstance(problem, UserError) else ''
        raise UnreadableError(f'{name}: {text or "holds records that are no examples"}')


def _frames(record: bytes) -> list[bytes]:
    from object_detection.data import sequence_examples  # loads TensorFlow

    return [frame for frame in sequence_examples.frames(record) if frame is not None]


def _intact_records(name: str) -> Iterator[bytes]:
    index, has_intact, error = tf_record_files.index(name), False, None
    for offset in map(int, index.offsets):
        try:
            if offset in index.corrupt:
                raise index.corrupt[offset]
            record = tf_record_files.read_record(name, offset)
        except tf_record_files.CorruptFileError as found:
            error = error or found
        else:
            has_intact = True
            yield record
    if error and not has_intact:
        raise error


def _files(reader: InputReader) -> list[str]:
    import tensorflow as tf

    patterns = reader.tf_record_input_reader.input_path
    return [name for pattern in patterns for name in sorted(tf.io.gfile.glob(pattern))]
