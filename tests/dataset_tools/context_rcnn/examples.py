"""Examples, models and records for the tests of the jobs."""

import hashlib
import io
import pathlib
from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import tf_examples, tf_record_files
from object_detection.dataset_tools.context_rcnn import records
from object_detection.dataset_tools.context_rcnn.records import Example
from tests import goldens

GOLDEN_RECORDS = goldens.COMPONENTS / 'examples'

# What our records have in addition to the reference's.
ADDED = {'image/unix_seconds'}


def golden_path(name: str) -> str:
    return str(GOLDEN_RECORDS / name)


def read(path: pathlib.Path | str) -> list[Example]:
    return [records.read(place) for place in records.places(str(path))]


def values(feature: tf.train.Feature) -> np.ndarray:
    kind = feature.WhichOneof('kind')
    return np.array(getattr(feature, kind).value if kind else [])


def of_example(serialized: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the features of a tf.Example as they are recorded."""
    for key, feature in tf.train.Example.FromString(serialized).features.feature.items():
        yield _recorded(key, values(feature))


def of_sequence(serialized: bytes) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the features of a tf.SequenceExample as they are recorded."""
    sequence = tf.train.SequenceExample.FromString(serialized)
    for key, feature in sequence.context.feature.items():
        yield f'context/{key}', values(feature)
    for key, frames in sequence.feature_lists.feature_list.items():
        for index, feature in enumerate(frames.feature):
            yield _recorded(f'{key}/{index}', values(feature))


def _recorded(key: str, found: np.ndarray) -> tuple[str, np.ndarray]:
    if key.split('/')[:2] == ['image', 'encoded']:
        return f'{key}#sha256', np.array([hashlib.sha256(found[0]).hexdigest().encode()])
    return key, found


def assert_matches(
    case: goldens.Case,
    records_found: Iterable[bytes],
    *,
    sequences: bool = False,
    instead: dict[str, object] | None = None,
    added: Iterable[str] = (),
) -> None:
    """Compares records, in order, with the recorded ones; an absent list is an empty one.

    Args:
      case: the recorded case.
      records_found: serialized records.
      sequences: whether they are tf.SequenceExamples.
      instead: name of an output, or its end -> what is expected in its place.
      added: further features that ours have.
    """
    parse, prefix = (of_sequence, 'seq') if sequences else (of_example, 'ex')
    ours = {
        f'{prefix}{i}/{key}': found
        for i, record in enumerate(records_found)
        for key, found in parse(record)
    }
    instead = instead or {}
    for name, expected in case.outputs.items():
        for end, value in instead.items():
            if name == end or name.endswith(f'/{end}'):
                expected = np.asarray(value)
        found = ours.pop(name, np.array([]))
        if expected.dtype.kind == 'f' and len(expected):
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0, err_msg=name)
        else:
            np.testing.assert_array_equal(found, expected, err_msg=name)
    allowed = {*ADDED, *added}
    extra = {name for name, found in ours.items() if len(found)}
    assert {name.split('/', 1)[1].split('/0')[0] for name in extra} <= allowed, extra


class ConstantModel(tf.Module):
    """Returns the same detections for each serialized tf.Example, as the reference exports it."""

    def __init__(self, outputs: dict[str, np.ndarray], batch_size: int | None = None):
        super().__init__()
        self._outputs = {key: tf.constant(value) for key, value in outputs.items()}
        spec = tf.TensorSpec([batch_size], tf.string, 'inputs')
        self.serve = tf.function(self._serve, input_signature=[spec])

    def _serve(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        features = {'image/encoded': tf.io.FixedLenFeature([], tf.string)}
        encoded = tf.io.parse_example(inputs, features)['image/encoded']
        shapes = tf.map_fn(
            lambda each: tf.shape(tf.io.decode_jpeg(each)), encoded, fn_output_signature=tf.int32
        )
        # A batch has one size.
        with tf.control_dependencies([tf.debugging.assert_equal(shapes, shapes[:1])]):
            inputs = tf.identity(inputs)
        return {
            key: tf.tile(
                value[tf.newaxis],
                tf.pad([tf.size(inputs)], [[0, value.shape.rank]], constant_values=1),
            )
            for key, value in self._outputs.items()
        }


def save_model(
    folder: pathlib.Path, outputs: dict[str, np.ndarray], batch_size: int | None = None
) -> str:
    model = ConstantModel(outputs, batch_size)
    tf.saved_model.save(model, str(folder), signatures={'serving_default': model.serve})
    return str(folder)


def image_file(height: int = 24, width: int = 32, seed: int = 0, kind: str = 'JPEG') -> bytes:
    rng = np.random.default_rng(seed)
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8)).save(file, kind)
    return file.getvalue()


def example(
    number: int, scores: Iterable[float] = (0.9,), length: int = 3, **others: bytes
) -> bytes:
    """Returns a record; the embeddings of image n begin with n, others are serialized features.

    Args:
      number: number of the image.
      scores: scores of its embeddings.
      length: length of an embedding.
      **others: name without image/ -> serialized feature; b'' leaves a feature out.
    """
    scores = list(scores)
    rows = np.full((len(scores), length), number, np.float32)
    rows[:, -1] = np.arange(len(scores))
    features = {
        keys.ENCODED: tf_examples.bytes_feature([image_file(seed=number)]),
        keys.FORMAT: tf_examples.bytes_feature([b'jpeg']),
        keys.HEIGHT: tf_examples.int64_feature([24]),
        keys.WIDTH: tf_examples.int64_feature([32]),
        keys.SOURCE_ID: tf_examples.bytes_feature([f'img{number}'.encode()]),
        keys.LOCATION: tf_examples.bytes_feature([b'A']),
        keys.DATE_CAPTURED: tf_examples.bytes_feature(
            [f'2020-01-{number // 24 + 1:02d} {number % 24:02d}:00:00'.encode()]
        ),
        keys.EMBEDDING: tf_examples.float_feature(rows.ravel()),
        keys.EMBEDDING_SCORE: tf_examples.float_feature(scores),
        keys.EMBEDDING_LENGTH: tf_examples.int64_feature([length]),
        keys.EMBEDDING_COUNT: tf_examples.int64_feature([len(scores)]),
    }
    features |= {f'image/{name}': value for name, value in others.items()}
    return tf_examples.serialize({key: value for key, value in features.items() if value})


def write(path: pathlib.Path, serialized: Iterable[bytes]) -> str:
    """Writes a TFRecord file; returns its path."""
    with open(path, 'wb') as file:
        for record in serialized:
            tf_record_files.write_record(file, record)
    return str(path)


def read_set(prefix: pathlib.Path) -> list[Example]:
    """The records of a set, ordered by source id."""
    paths = sorted(prefix.parent.glob(f'{prefix.name}-?????-of-?????'))
    found = [each for path in paths for each in read(path)]
    return sorted(found, key=lambda each: each.text(keys.SOURCE_ID))


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """All files of a folder but reports, which name the job."""
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and not path.name.endswith('.report.json')
    }
