"""Mutated TFRecords through the training input; see fuzz.py."""

import collections
import io
import json
import pathlib
import re
import struct
from collections.abc import Sequence

import google_crc32c
import mutations
import numpy as np

_RECORDS_PER_FILE = 250
# The reason of one in so many bad records is looked for.
_EXPLAINED = 8
# Shares of files whose bytes are changed, beside the records in them.
_CHANGED_FILES = 0.2
_CLASSES, _MAX_BOXES, _SIZE, _CROP = 3, 8, 32, 8
_CONFIG = f"""
model {{ faster_rcnn {{
  num_classes: {_CLASSES}
  number_of_stages: 3
  image_resizer {{ fixed_shape_resizer {{ height: {_SIZE} width: {_SIZE} }} }}
  feature_extractor {{ type: "faster_rcnn_resnet50_keras" }}
  second_stage_box_predictor {{ mask_rcnn_box_predictor {{ predict_instance_masks: true }} }}
}} }}
train_config {{ batch_size: 4 }}
"""
_AUGMENTATION = """train_config {
  data_augmentation_options { random_horizontal_flip {} }
  data_augmentation_options { random_crop_image {} }
}"""


def run(
    seed: int,
    count: int,
    folder: pathlib.Path,
    beat: pathlib.Path,
    data: Sequence[str] = (),
    *,
    augments: bool = True,
) -> dict[str, int]:
    """Trains, without a model, on `count` mutated records; returns counts by reason.

    Args:
      seed: determines the mutations; with odd ones, masks are read.
      count: number of records.
      folder: gets the records and a list of the bad ones.
      beat: file that is touched whenever something was done.
      data: unused.
      augments: whether images are flipped and cropped; the graph of this takes seconds.
    """
    del data
    import tensorflow as tf

    from object_detection.builders import dataset_builder

    generator = np.random.default_rng(seed)
    counts = collections.Counter(mutated=count)
    files = []
    for start in range(0, count, _RECORDS_PER_FILE):
        size = min(_RECORDS_PER_FILE, count - start)
        records = [_mutated(generator, counts) for _ in range(size)]
        counts['parses'] += sum(map(_parses, records))
        files.append(folder / f'{start:08d}.record')
        files[-1].write_bytes(_framed(records, generator, counts))
    (folder / 'map.pbtxt').write_text(
        ''.join(f'item {{ id: {i} name: "class {i}" }}\n' for i in range(1, _CLASSES + 1))
    )
    left_out = _counter(folder / 'bad_records.jsonl', beat)
    # Every other chunk has masks.
    pipeline = _pipeline(folder, has_masks=bool(seed % 2), augments=augments)
    dataset = dataset_builder.build_train(pipeline, seed=seed, left_out=left_out)
    shapes = tf.nest.map_structure(lambda spec: spec.shape, dataset.element_spec)
    for batch in dataset:
        beat.touch()
        counts['images'] += len(batch['image'])
        _check(batch, shapes)
    beat.touch()
    counts.update(_left_out(folder / 'bad_records.jsonl', left_out))
    return counts


def _left_out(path: pathlib.Path, left_out) -> dict[str, int]:
    """Returns counts by reason, and the reasons of kind 'other'."""
    counts = left_out.counts()
    entries = map(json.loads, path.read_text().splitlines() if path.exists() else [])
    reasons = [entry['reason'] for entry in entries if entry['kind'] == 'other']
    counts['reason not looked for'] = reasons.count('not looked for')
    counts['other'] = len(reasons) - counts['reason not looked for']
    found = {f'left out: {kind}': count for kind, count in counts.items()}
    # Without the numbers and texts of the record.
    plain = (re.sub(r"[0-9]+|'.*?'", '?', reason)[:90] for reason in reasons)
    others = collections.Counter(f'left out: other: {reason}' for reason in plain)
    del others['left out: other: not looked for']
    return {**found, **others}


def _counter(path: pathlib.Path, beat: pathlib.Path):
    """Counts bad records; the reasons of only some, since finding them takes most of the time."""
    from object_detection.data.pipeline import bad_records

    class Counter(bad_records.BadRecords):
        def add_record(self, place, number, serialized, explain) -> None:
            beat.touch()
            if number % _EXPLAINED and not bad_records.is_marker(serialized):
                explain = _not_looked_for
            super().add_record(place, number, serialized, explain)

    return Counter('fuzz', max_share=1.0, path=path)


def _not_looked_for(serialized: bytes) -> str:
    return 'not looked for'


def _pipeline(folder: pathlib.Path, *, has_masks: bool, augments: bool):
    from google.protobuf import text_format

    from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

    pipeline = text_format.Parse(_CONFIG, TrainEvalPipelineConfig())
    if augments:
        text_format.Merge(_AUGMENTATION, pipeline)
    reader = pipeline.train_input_reader
    reader.label_map_path = str(folder / 'map.pbtxt')
    reader.tf_record_input_reader.input_path.append(str(folder / '*.record'))
    reader.num_epochs, reader.max_number_of_boxes = 1, _MAX_BOXES
    reader.drop_remainder = False
    reader.load_instance_masks, reader.mask_type = has_masks, 2  # PNG_MASKS
    reader.max_image_pixels = 1 << 22
    return pipeline


def _check(batch: dict, shapes: dict) -> None:
    """Raises AssertionError for a wrong shape, or a box that training cannot use."""
    size = len(batch['image'])
    for name in shapes.keys() - {'stream_state'}:
        found, shape = batch[name].shape, shapes[name]
        assert found[0] == size, (name, found)
        assert shape[1:].is_compatible_with(found[1:]), (name, found, shape)
    boxes, count = batch['groundtruth_boxes'].numpy(), batch['num_groundtruth_boxes'].numpy()
    assert boxes.shape == (size, _MAX_BOXES, 4), boxes.shape
    assert ((boxes >= 0) & (boxes <= 1 + 1e-5)).all(), boxes
    assert np.isfinite(batch['image'].numpy()).all()
    for i in range(size):
        real = boxes[i, : count[i]]
        assert (real[:, 2:] >= real[:, :2]).all(), real


def _example(generator: np.random.Generator):
    """Makes a whole record of 1 to 4 objects with masks, as a proto."""
    import tensorflow as tf

    height, width = generator.integers(4, 40, 2)
    proto = tf.train.Example()
    features = proto.features.feature
    image = generator.integers(0, 256, (height, width, 3), np.uint8)
    features['image/encoded'].bytes_list.value.append(
        _encoded(image, ['JPEG', 'PNG', 'BMP', 'GIF', 'WEBP'][generator.integers(5)], generator)
    )
    features['image/source_id'].bytes_list.value.append(b'%d' % generator.integers(1 << 30))
    features['image/height'].int64_list.value.append(int(height))
    features['image/width'].int64_list.value.append(int(width))
    count = int(generator.integers(1, 5))
    corners = np.sort(generator.random([count, 2, 2]), axis=1)
    for index, side in enumerate(('ymin', 'xmin', 'ymax', 'xmax')):
        values = corners[:, index // 2, index % 2].tolist()
        features[f'image/object/bbox/{side}'].float_list.value.extend(values)
    classes = generator.integers(1, _CLASSES + 1, count).tolist()
    features['image/object/class/label'].int64_list.value.extend(classes)
    texts = [b'class %d' % number for number in classes]
    features['image/object/class/text'].bytes_list.value.extend(texts)
    for _ in range(count):
        mask = (generator.random([height, width]) > 0.5).astype(np.uint8)
        features['image/object/mask'].bytes_list.value.append(_encoded(mask, 'PNG', generator))
    features['image/object/is_crowd'].int64_list.value.extend([0] * count)
    features['image/object/area'].float_list.value.extend([1.0] * count)
    return proto


def _encoded(image: np.ndarray, kind: str, generator: np.random.Generator) -> bytes:
    from PIL import Image

    file, options = io.BytesIO(), {}
    if kind in ('GIF', 'WEBP') and generator.random() < 0.5:
        options = {'save_all': True, 'append_images': [Image.fromarray(255 - image)]}
    Image.fromarray(image).save(file, kind, **options)
    return file.getvalue()


def _mutated(generator: np.random.Generator, counts: collections.Counter) -> bytes:
    """Makes a record with one or two mutations, and perhaps changed bytes."""
    proto = _example(generator)
    for _ in range(generator.integers(1, 3)):
        kind = list(_MUTATIONS)[generator.integers(len(_MUTATIONS))]
        counts[f'mutation: {kind}'] += 1
        _MUTATIONS[kind](proto.features.feature, generator)
    serialized = proto.SerializeToString()
    if generator.random() < 0.15:
        counts['mutation: bytes of the record'] += 1
        serialized = mutations.mutate(serialized, generator)
    return serialized


def _values(feature):
    """Returns the list of a feature's values, whatever its type."""
    return getattr(feature, feature.WhichOneof('kind') or 'int64_list').value


def _pick(features, generator: np.random.Generator) -> str:
    names = sorted(features)
    return names[generator.integers(len(names))] if names else 'image/encoded'


def _change_bytes(features, generator: np.random.Generator) -> None:
    name = ('image/encoded', 'image/object/mask')[generator.integers(2)]
    values = features[name].bytes_list.value
    if values:
        index = generator.integers(len(values))
        values[index] = mutations.mutate(values[index], generator)


def _change_number(features, generator: np.random.Generator) -> None:
    name = _pick(features, generator)
    values = _values(features[name])
    if not values:
        return
    index = generator.integers(len(values))
    if features[name].HasField('float_list'):
        values[index] = mutations.FLOATS[generator.integers(len(mutations.FLOATS))]
    elif features[name].HasField('int64_list'):
        values[index] = mutations.INTEGERS[generator.integers(len(mutations.INTEGERS))]
    else:
        values[index] = generator.bytes(generator.integers(20))


def _drop_values(features, generator: np.random.Generator) -> None:
    values = _values(features[_pick(features, generator)])
    del values[generator.integers(len(values) + 1) :]


def _repeat_values(features, generator: np.random.Generator) -> None:
    values = _values(features[_pick(features, generator)])
    values.extend(list(values) * int(generator.integers(1, 4)))


def _drop_key(features, generator: np.random.Generator) -> None:
    name = _pick(features, generator)
    if name in features:
        del features[name]


def _splice_keys(features, generator: np.random.Generator) -> None:
    """Gives a key the values of another one, whose type may differ."""
    target, source = (_pick(features, generator) for _ in range(2))
    features[target].CopyFrom(features[source])


def _change_type(features, generator: np.random.Generator) -> None:
    feature = features[_pick(features, generator)]
    feature.Clear()
    kind = generator.integers(3)
    if kind == 0:
        feature.float_list.value.extend([1.0] * int(generator.integers(5)))
    elif kind == 1:
        feature.int64_list.value.extend([1] * int(generator.integers(5)))
    else:
        feature.bytes_list.value.extend([b'x'] * int(generator.integers(5)))


def _bomb(features, generator: np.random.Generator) -> None:
    """An image or mask whose header says that it has billions of pixels."""
    name = ('image/encoded', 'image/object/mask')[generator.integers(2)]
    sides = [int(generator.integers(1, 1 << 30)) for _ in range(2)]
    features[name].bytes_list.value[:] = [mutations.bomb(sides, generator)]


_MUTATIONS = {
    'bytes of an image': _change_bytes,
    'number': _change_number,
    'values dropped': _drop_values,
    'values repeated': _repeat_values,
    'key dropped': _drop_key,
    'keys spliced': _splice_keys,
    'type changed': _change_type,
    'decompression bomb': _bomb,
}


def _parses(serialized: bytes) -> bool:
    import tensorflow as tf

    try:
        tf.train.Example.FromString(serialized)
    except Exception:  # The class of errors depends on the implementation of protocol buffers.
        return False
    return True


def _framed(
    records: Sequence[bytes], generator: np.random.Generator, counts: collections.Counter
) -> bytes:
    """Makes a TFRecord file; some are cut off, have flipped bits, or huge lengths."""
    parts = []
    for record in records:
        length = len(record)
        if generator.random() < 0.002:
            counts['mutation: length of a record'] += 1
            length = mutations.INTEGERS[generator.integers(len(mutations.INTEGERS))] % 2**64
        header = struct.pack('<Q', length)
        parts += [header, _checksum(header), record, _checksum(record)]
    content = b''.join(parts)
    if generator.random() < _CHANGED_FILES:
        counts['mutation: bytes of a file'] += 1
        content = mutations.mutate(content, generator, keeps=0.9)
    return content


def _checksum(content: bytes) -> bytes:
    value = google_crc32c.value(content)
    return struct.pack('<I', (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF)
