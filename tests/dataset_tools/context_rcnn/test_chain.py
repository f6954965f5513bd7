"""The four jobs one after the other, with a detector that was exported here."""

import io
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from object_detection.core import tf_example_keys as keys
from object_detection.data import decoder as decoders
from object_detection.data import label_map, sequence_examples, tf_record_files
from object_detection.dataset_tools.context_rcnn import camera_traps, context, detections, records
from object_detection.dataset_tools.context_rcnn.options import (
    CameraTrapsOptions,
    ContextOptions,
    DetectionOptions,
    EmbeddingOptions,
)
from object_detection.errors import UserError
from object_detection.export import exporter
from object_detection.weights import checkpoints
from tests import quick_graphs
from tests import tiny_models as tiny
from tests.dataset_tools.context_rcnn import examples

BOX_FEATURES = """
model {
  faster_rcnn { output_final_box_features: true output_final_box_rpn_features: true }
}
"""
LABELS = 'snapshot_serengeti_label_map.pbtxt'
NUM_IMAGES = 9
# Of a detector that was not trained: all of its six detections.
THRESHOLD = 0.0
DETECTIONS = 6


@pytest.fixture(scope='module')
def model(tmp_path_factory) -> pathlib.Path:
    with tiny.plain_backbone(), quick_graphs.unoptimized():
        return _exported(tmp_path_factory.mktemp('model'))


def _exported(folder: pathlib.Path) -> pathlib.Path:
    detector = tiny.tiny_detector(tiny.PLAIN_BACKBONE, BOX_FEATURES)
    # All six detections have scores then.
    tiny.shrink_last_layers(detector)
    checkpoints.save_model(str(folder / 'trained'), detector.named_variables(), 7)
    pipeline = tiny.tiny_pipeline(tiny.PLAIN_BACKBONE, BOX_FEATURES)
    exporter.export(pipeline, str(folder / 'trained'), folder / 'exported', input_type='tf_example')
    return folder / 'exported'


def _document() -> dict:
    """Nine images of two cameras: of an animal, of none, of two species, and one with a box."""
    categories = [
        {'id': 0, 'name': 'empty'},
        {'id': 3, 'name': 'zebra'},
        {'id': 5, 'name': 'lion'},
    ]
    images = [
        {
            'id': f'img{i}',
            'file_name': f'{i}.jpg',
            'location': f'camera{i % 2}',
            'datetime': f'2020-03-{i + 1:02d} 10:20:30',
            'seq_id': f's{i // 3}',
            'seq_num_frames': 3,
            'frame_num': i % 3,
        }
        for i in range(NUM_IMAGES)
    ]
    labels = [(i, 3) for i in range(6)] + [(6, 0), (7, 3), (7, 5)]
    annotations = [
        {'id': n, 'image_id': f'img{i}', 'category_id': label}
        for n, (i, label) in enumerate(labels)
    ]
    annotations[0]['bbox'] = [4, 6, 20, 10]
    # Of the same image, without a box.
    annotations.append({'id': 99, 'image_id': 'img0', 'category_id': 3})
    return {'images': images, 'annotations': annotations, 'categories': categories}


@pytest.fixture(scope='module')
def converted(tmp_path_factory) -> pathlib.Path:
    """The prefix of the records of the first job."""
    folder = tmp_path_factory.mktemp('data')
    (folder / 'images').mkdir()
    for i in range(NUM_IMAGES):
        # Two sizes, of which a batch has one.
        content = examples.image_file(48, 64 if i % 4 else 80, seed=i)
        (folder / 'images' / f'{i}.jpg').write_bytes(content)
    (folder / 'a.json').write_text(json.dumps(_document()))
    report = camera_traps.run(
        CameraTrapsOptions(
            image_directory=str(folder / 'images'),
            output_tfrecord_prefix=str(folder / 'out' / 'a'),
            input_annotations_file=str(folder / 'a.json'),
            num_images_per_shard=4,
        )
    )
    assert (report['examples'], report['num_shards']) == (NUM_IMAGES, 3)
    assert report['num_problems'] == {}
    return folder / 'out' / 'a'


def test_records_of_camera_traps(converted):
    found = examples.read_set(converted)
    assert [each.text(keys.SOURCE_ID) for each in found] == [f'img{i}' for i in range(NUM_IMAGES)]
    classes = [list(each.integers(keys.IMAGE_CLASS_LABEL)) for each in found]
    assert classes == [*[[3]] * 6, [0], [3, 5], [0]]
    assert list(found[7].texts(keys.IMAGE_CLASS_TEXT)) == [b'zebra', b'lion']
    assert found[6].text(keys.IMAGE_CLASS_TEXT) == found[8].text(keys.IMAGE_CLASS_TEXT) == 'empty'
    # An annotation without a box is no object.
    first = found[0]
    assert list(first.integers(keys.CLASS_LABEL)) == [3]
    # (4, 6, 20, 10) of 80 x 48 pixels.
    box = [first.floats(key)[0] for key in keys.BOX_SIDES]
    np.testing.assert_allclose(box, [6 / 48, 4 / 80, 16 / 48, 24 / 80], rtol=1e-6)
    assert first.floats(keys.AREA).tolist() == [100.0]
    assert all(
        not each.count(keys.YMIN) and not each.integers(keys.CLASS_LABEL) for each in found[1:]
    )
    place = [first.text(key) for key in (keys.LOCATION, keys.DATE_CAPTURED, keys.SEQUENCE_ID)]
    assert place == ['camera0', '2020-03-01 10:20:30', 's0']
    assert list(found[5].integers(keys.SEQUENCE_FRAME_NUMBER)) == [2]
    assert list(found[5].integers(keys.SEQUENCE_NUM_FRAMES)) == [3]
    assert first.text(keys.FORMAT) == 'jpeg'
    text = pathlib.Path(f'{converted}_label_map.pbtxt').read_text()
    assert 'zebra' in text
    assert 'empty' not in text


@pytest.fixture(scope='module')
def detected(converted, model) -> tuple[pathlib.Path, dict]:
    prefix = converted.parent / 'boxes'
    return prefix, detections.run(_detection_options(converted, prefix, model, num_shards=2))


def _detection_options(source, prefix, model, **others) -> DetectionOptions:
    return DetectionOptions(
        detection_input_tfrecord=f'{source}-?????-of-00003',
        detection_output_tfrecord=str(prefix),
        detection_model_dir=str(model),
        confidence_threshold=THRESHOLD,
        batch_size=3,
        **others,
    )


@pytest.fixture(scope='module')
def embedded(detected, model) -> tuple[pathlib.Path, dict]:
    prefix = detected[0].parent / 'embedded'
    return prefix, detections.run_embeddings(_embedding_options(detected[0], prefix, model))


def _embedding_options(source, prefix, model, **others) -> EmbeddingOptions:
    return EmbeddingOptions(
        embedding_input_tfrecord=f'{source}-?????-of-00002',
        embedding_output_tfrecord=str(prefix),
        embedding_model_dir=str(model),
        top_k_embedding_count=2,
        bottom_k_embedding_count=1,
        **others,
    )


def test_boxes_of_detections(converted, detected):
    prefix, report = detected
    counts = {key: report[key] for key in detections.COUNTS}
    assert counts == {
        'already_with_boxes': 1,
        'several_classes': 1,
        'without_class': 2,
        'with_new_boxes': 5,
        'new_boxes': 5 * DETECTIONS,
    }
    before = {each.text(keys.SOURCE_ID): each for each in examples.read_set(converted)}
    found = examples.read_set(prefix)
    assert [each.text(keys.SOURCE_ID) for each in found] == [
        f'img{i}' for i in range(NUM_IMAGES) if i != 7
    ]
    for each in found:
        number = each.text(keys.SOURCE_ID)
        count = {'img0': 1, 'img6': 0, 'img8': 0}.get(number, DETECTIONS)
        assert each.count(keys.YMIN) == len(each.integers(keys.CLASS_LABEL)) == count
        assert set(each.integers(keys.CLASS_LABEL)) <= {3}
        # All else is as it was.
        changed = {*keys.BOX_SIDES, keys.CLASS_LABEL, keys.CLASS_TEXT, keys.CLASS_SCORE}
        old = before[number].raw()
        assert {k: v for k, v in each.raw().items() if k not in changed} == {
            k: v for k, v in old.items() if k not in changed
        }


@pytest.fixture(scope='module')
def alone(detected, model) -> dict[str, dict[str, np.ndarray]]:
    """Source id -> outputs of the model for the image alone."""
    serve = tf.saved_model.load(str(model / 'saved_model')).signatures['serving_default']
    return {
        each.text(keys.SOURCE_ID): {
            name: value[0].numpy()
            for name, value in serve(tf.constant([each.with_features({})])).items()
        }
        for each in examples.read_set(detected[0])
    }


def _rows(example: records.Example) -> np.ndarray:
    length, count = (
        example.integers(key)[0] for key in (keys.EMBEDDING_LENGTH, keys.EMBEDDING_COUNT)
    )
    return example.floats(keys.EMBEDDING).reshape(count, length)


def test_embeddings_in_batches_are_those_of_their_images(embedded, alone):
    prefix, report = embedded
    images = NUM_IMAGES - 1
    assert (report['records'], report['embeddings']) == (images, 3 * images)
    chosen = [0, 1, DETECTIONS - 1]
    theirs = {
        number: outputs['detection_features'].mean(axis=(1, 2))[chosen]
        for number, outputs in alone.items()
    }
    for each in examples.read_set(prefix):
        number = each.text(keys.SOURCE_ID)
        rows = _rows(each)
        depth = theirs[number].shape[1]
        # Batches round otherwise than single images, but no image is nearer than its own.
        distances = {
            name: np.abs(features - rows[:, :depth]).max() for name, features in theirs.items()
        }
        assert min(distances, key=distances.get) == number
        assert sorted(distances.values())[1] > 10 * distances[number]
        day = int(number.removeprefix('img')) / 31
        date = [30 / 40, 2 / 12, day, 10 / 24, 20 / 60]
        np.testing.assert_allclose(rows[:, depth + 4 :], [date] * 3, rtol=1e-6)


@pytest.mark.slow
def test_features_of_proposals_of_one_image_at_a_time(detected, alone, model, tmp_path):
    options = _embedding_options(
        detected[0], tmp_path / 'a', model, embedding_type='rpn_box_features', batch_size=1
    )
    detections.run_embeddings(options)
    found = examples.read_set(tmp_path / 'a')
    assert len(found) == NUM_IMAGES - 1
    chosen = [0, 1, DETECTIONS - 1]
    for each in found:
        outputs = alone[each.text(keys.SOURCE_ID)]
        features = outputs['cropped_rpn_box_features'][chosen].astype(np.float64)
        cells = features.shape[1] * features.shape[2]
        rows = _rows(each)
        assert rows.shape == (3, features.shape[-1] + 9)
        # A float32 sum of so many numbers is off by as many halves of the last digit.
        np.testing.assert_allclose(
            rows[:, : features.shape[-1]],
            features.mean(axis=(1, 2)),
            rtol=0,
            atol=cells * np.finfo(np.float32).eps * np.abs(features).mean(axis=(1, 2)).max(),
        )
        scores = outputs['detection_scores'][chosen]
        np.testing.assert_array_equal(each.floats(keys.EMBEDDING_SCORE), scores)


@pytest.mark.slow  # Each of the workers imports TensorFlow and loads the model.
def test_workers_embed_the_same(detected, embedded, model, tmp_path):
    options = _embedding_options(detected[0], tmp_path / 'embedded', model, workers=2)
    detections.run_embeddings(options)
    ours = examples.read_set(tmp_path / 'embedded')
    theirs = examples.read_set(embedded[0])
    assert [each.raw() for each in ours] == [each.raw() for each in theirs]


def test_a_model_without_features_is_named(detected, tmp_path):
    boxes = {'detection_boxes': np.zeros((1, 4), np.float32), 'num_detections': np.float32(1)}
    boxes['detection_scores'] = np.ones(1, np.float32)
    path = examples.save_model(tmp_path / 'm', boxes)
    with pytest.raises(UserError, match=r'set output_final_box_features.*no detection_feat'):
        detections.run_embeddings(_embedding_options(detected[0], tmp_path / 'a', path))
    assert not list(tmp_path.glob('a-*'))


def _context_options(embedded, prefix, **others) -> ContextOptions:
    source = f'{embedded[0]}-?????-of-00002'
    return ContextOptions(input_tfrecord=source, output_tfrecord=str(prefix), **others)


def test_context_of_examples(embedded, tmp_path):
    report = context.run(_context_options(embedded, tmp_path / 'a', max_image_dimension=64))
    images = NUM_IMAGES - 1
    counts = {key: report[key] for key in ('records', 'images', 'groups', 'banks')}
    assert counts == {'records': images, 'images': images, 'groups': 2, 'banks': 2}
    assert report['context_features'] == 3 * images
    # Images 0, 4 and 8 are 80 pixels wide.
    assert report['images_reduced'] == 3
    decoder = decoders.ExampleDecoder(fields=['context_features'])
    for path in sorted(tmp_path.glob('a-*-of-*')):
        for place in records.places(str(path)):
            decoded = decoder(tf_record_files.read_record(*place[:2]))
            number = int(decoded['source_id'].numpy().decode().removeprefix('img'))
            # Image 7 was left out.
            assert len(decoded['context_features']) == 3 * (5 if number % 2 == 0 else 3)
            assert decoded['image'].shape == ((48, 64, 3) if number % 4 else (38, 64, 3))


def _sequences(prefix: pathlib.Path) -> list[bytes]:
    paths = sorted(prefix.parent.glob(f'{prefix.name}-*-of-*'))
    places = [place for path in paths for place in records.places(str(path))]
    return [tf_record_files.read_record(*place[:2]) for place in places]


def _sequence_keys(serialized: bytes) -> tuple[set[str], set[str]]:
    sequence = tf.train.SequenceExample.FromString(serialized)
    return {*sequence.context.feature}, {*sequence.feature_lists.feature_list}


def test_context_of_sequences_in_the_form_of_snapshot_serengeti(embedded, tmp_path, shared):
    options = _context_options(
        embedded, tmp_path / 'a', output_type='tf_sequence_example', max_clip_length=3
    )
    report = context.run(options)
    # Five and three images of the cameras: clips of 3 and 2, and of 3.
    assert (report['records'], report['images']) == (3, NUM_IMAGES - 1)
    ours = _sequences(tmp_path / 'a')
    frames = [frame for clip in ours for frame in sequence_examples.frames(clip)]
    assert len(frames) == NUM_IMAGES - 1
    path = shared / 'data/tf_od_api_samples/test_data/snapshot_serengeti_sequence_examples.record'
    if not path.exists():
        pytest.skip(f'needs {path}')
    theirs = [tf_record_files.read_record(*place[:2]) for place in records.places(str(path))]
    context_keys, lists = _sequence_keys(theirs[0])
    for clip in ours:
        assert _sequence_keys(clip) == (context_keys, lists | {keys.UNIX_SECONDS})
    # What reads theirs reads ours.
    names = label_map.load(str(shared / 'data/tf_od_api_samples' / 'data' / LABELS))
    decoder = decoders.ExampleDecoder(label_map=names, fields=['context_features'])
    for clip in (*theirs[:1], *ours):
        for frame in sequence_examples.frames(clip):
            decoded = decoder(frame)
            assert decoded['context_features'].shape[0] > 0
            assert decoded['image'].shape[-1] == 3
            assert (decoded['groundtruth_classes'].numpy() > 0).all()


@pytest.mark.slow
def test_sequences_are_inputs_too(model, tmp_path, shared):
    """Each frame of the reference's record of ten passes through the jobs as an image."""
    path = shared / 'data/tf_od_api_samples/test_data/snapshot_serengeti_sequence_examples.record'
    if not path.exists():
        pytest.skip(f'needs {path}')
    (place,) = records.places(str(path))
    sequence = tf.train.SequenceExample.FromString(tf_record_files.read_record(*place[:2]))
    lists = sequence.feature_lists.feature_list
    ids = [feature.bytes_list.value[0].decode() for feature in lists[keys.SOURCE_ID].feature]
    detected, embedded, added = (tmp_path / name for name in ('boxes', 'embedded', 'added'))
    report = detections.run(
        DetectionOptions(
            detection_input_tfrecord=str(path),
            detection_output_tfrecord=str(detected),
            detection_model_dir=str(model),
        )
    )
    # Half of the frames are empty.
    counts = [report[key] for key in ('records', 'already_with_boxes', 'without_class')]
    assert counts == [10, 5, 5]
    detections.run_embeddings(
        EmbeddingOptions(
            embedding_input_tfrecord=str(path),
            embedding_output_tfrecord=str(embedded),
            embedding_model_dir=str(model),
        )
    )
    report = context.run(
        ContextOptions(
            input_tfrecord=f'{embedded}-*',
            output_tfrecord=str(added),
            sequence_key=keys.MEDIA_ID,
        )
    )
    assert (report['images'], report['groups'], report['context_features']) == (10, 1, 10)
    for prefix in (detected, embedded, added):
        found = {each.text(keys.SOURCE_ID): each for each in examples.read_set(prefix)}
        assert sorted(found) == sorted(ids)
        for number, name in enumerate(ids):
            image = found[name]
            assert list(image.texts(keys.ENCODED)) == list(
                lists[keys.ENCODED].feature[number].bytes_list.value
            )
            for side, key in zip(keys.SEQUENCE_BOX_SIDES, keys.BOX_SIDES, strict=True):
                theirs = lists[side].feature[number].float_list.value
                assert image.floats(key).tolist() == list(theirs)
            texts = lists[keys.SEQUENCE_LABEL].feature[number].bytes_list.value
            assert list(image.texts(keys.CLASS_TEXT)) == list(texts)
            labels = lists[keys.SEQUENCE_LABEL_INDEX].feature[number].int64_list.value
            assert list(image.integers(keys.CLASS_LABEL)) == list(labels)
            assert [image.text(key) for key in (keys.MEDIA_ID, keys.LOCATION)] == [
                'D03/2010/7_0',
                'D03',
            ]
            date = lists[keys.DATE_CAPTURED].feature[number].bytes_list.value[0].decode()
            assert image.text(keys.DATE_CAPTURED) == date
            assert keys.SEQUENCE_BOX_SIDES[0] not in image


def test_output_may_replace_the_input(embedded, tmp_path):
    for path in embedded[0].parent.glob('embedded-*'):
        shutil.copy(path, tmp_path)
    copied = (tmp_path / 'embedded', embedded[1])
    options = _context_options(copied, tmp_path / 'embedded', reduce_image_size=False)
    context.run(options)
    found = examples.read_set(tmp_path / 'embedded')
    assert len(found) == NUM_IMAGES - 1
    assert all(keys.CONTEXT_FEATURES in each for each in found)
    assert Image.open(io.BytesIO(found[0].texts(keys.ENCODED)[0])).size == (80, 48)


def test_an_output_without_the_images_that_cannot_be_decoded_may_not_replace_the_input(
    converted, detected, model
):
    before = examples.contents(converted.parent)
    match = '_input_tfrecord: expected other files .* cannot be decoded'
    with pytest.raises(UserError, match=match):
        detections.run(_detection_options(converted, converted, model))
    with pytest.raises(UserError, match=match):
        detections.run_embeddings(_embedding_options(detected[0], detected[0], model))
    assert examples.contents(converted.parent) == before
