"""Detections of the images of an eval_input_reader, and pictures of inputs, from real records."""

import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image

from object_detection.core.detections import Detections
from object_detection.core.fields import InputFields
from object_detection.data.pipeline.bad_records import TooManyBadRecordsError
from object_detection.errors import UserError
from object_detection.export import exporter
from object_detection.metrics.detections import encode_masks
from object_detection.metrics.mask_pasting import PasteMethod
from object_detection.prediction import predict_records
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.scoring import evaluation
from object_detection.system import folder_lock
from object_detection.training.monitoring import step_pictures
from tests import tiny_models as tiny
from tests.data import examples
from tests.training import fakes

pytestmark = pytest.mark.usefixtures('graphs_as_they_are')

MASKS = np.array([[0.0, 1.0], [1.0, 1.0]], np.float32)


class MaskDetector(fakes.FakeDetector):
    """One object with a mask, in the right half of the true image, in every image."""

    def postprocess(self, predictions, true_shapes):
        found = super().postprocess(predictions, true_shapes)
        batch = tf.shape(found['detection_scores'])[0]
        found['detection_boxes'] = tf.tile([[[0.0, 0.5, 1.0, 1.0]]], [batch, 1, 1])
        found['detection_masks'] = tf.tile(MASKS[np.newaxis, np.newaxis], [batch, 1, 1, 1])
        return found


@pytest.fixture
def pipeline(tmp_path, monkeypatch) -> TrainEvalPipelineConfig:
    """Two readers; the first has five images of 20 x 30, and one of 40 x 10."""
    detector = MaskDetector()
    detector.build_variables()
    monkeypatch.setattr(exporter, 'load_detector', lambda *_: detector)
    path = tmp_path / 'val.record'
    images = [examples.noise(20, 30)] * 5 + [examples.noise(40, 10)]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for i, image in enumerate(images):
            writer.write(
                examples.example(
                    [[0.1, 0.2, 0.9, 0.6], [0.1, 0.2, 0.5, 0.6]],
                    [2, 0],
                    image=examples.png(image),
                    source_id=('10', '11', '12', '13', 'a/b c', '15')[i],
                )
            )
    reader = f"""
      label_map_path: '{examples.write_label_map(tmp_path)}'
      tf_record_input_reader {{ input_path: '{path}' }}
    """
    config = tiny.tiny_pipeline('eval_config { batch_size: 4 mask_paste_method: ACCURATE }')
    del config.eval_input_reader[:]
    config.ClearField('train_input_reader')
    text = f'eval_input_reader {{ name: "one" {reader} }} eval_input_reader {{ {reader} }}'
    return text_format.Merge(f'{text} train_input_reader {{ {reader} }}', config)


def read(folder: pathlib.Path, name: str) -> list:
    return json.loads((folder / name).read_text())


def test_records_give_coco_results_with_source_ids(pipeline, tmp_path):
    done = []

    def start_another(*counts) -> None:
        """Starts a second run, also after the folder of the first reader is complete."""
        done.append(counts)
        with pytest.raises(UserError, match='out: another command is writing into this folder'):
            predict_records.predict_records(pipeline, 'model', tmp_path / 'out')

    counts = predict_records.predict_records(
        pipeline, 'model', tmp_path / 'out', progress=start_another
    )
    one, other = tmp_path / 'out' / 'one', tmp_path / 'out' / 'reader_1'
    assert counts == {str(one): (6, 6), str(other): (6, 6)}
    assert done == [(4, None), (6, None), (10, None), (12, None)]
    results = read(one, 'detections.json')
    assert results == read(other, 'detections.json')
    assert [result['image_id'] for result in results] == [10, 11, 12, 13, 'a/b c', 15]
    assert [result['bbox'] for result in results] == [[15, 0, 15, 20]] * 5 + [[5, 0, 5, 40]]
    assert {result['category_id'] for result in results} == {1}
    assert read(one, 'images.json')[-1] == {'id': 15, 'height': 40, 'width': 10}
    assert sorted(path.name for path in one.iterdir()) == ['detections.json', 'images.json']
    assert _scored(one, tmp_path) == pytest.approx(1)
    # Masks are those of evaluation, pasted as the config says.
    detections = {
        'detection_boxes': np.array([[[0.0, 0.5, 1.0, 1.0]]]),
        'detection_scores': np.ones([1, 1]),
        'detection_masks': MASKS[np.newaxis, np.newaxis],
        'num_detections': np.ones([1]),
    }
    (expected,) = encode_masks(
        Detections.from_batch(detections, np.array([[20, 30]]))[0], PasteMethod.ACCURATE
    )
    assert results[0]['segmentation'] == {'size': [20, 30], 'counts': expected.decode()}


def _scored(folder, tmp_path):
    """Returns the AP of the detections in a folder, whose objects are all there are."""
    sizes = {image['id']: image for image in read(folder, 'images.json')}
    truth = {
        'images': list(sizes.values()),
        'annotations': [
            {key: found[key] for key in ('image_id', 'category_id', 'bbox')}
            for found in read(folder, 'detections.json')
        ],
        'categories': [{'id': 1, 'name': 'cat'}],
    }
    (tmp_path / 'truth.json').write_text(json.dumps(truth))
    result = evaluation.evaluate(evaluation.FileOptions(str(tmp_path / 'truth.json'), str(folder)))
    assert result.images == result.num_detections == len(sizes)
    return result.metrics['DetectionBoxes_Precision/mAP']


@pytest.mark.slow
def test_a_limit_counts_images_of_each_reader(pipeline, tmp_path):
    counts = predict_records.predict_records(pipeline, 'model', tmp_path, limit=5)
    assert list(counts.values()) == [(5, 5)] * 2
    assert len(read(tmp_path / 'one', 'images.json')) == 5


def test_a_run_into_the_folder_of_one_reader_keeps_others_out_of_all(
    pipeline, tmp_path, monkeypatch
):
    monkeypatch.setattr(exporter, 'load_detector', lambda *_: pytest.fail('it is loaded'))
    (tmp_path / 'reader_1').mkdir()
    with (
        folder_lock.sole_writer(tmp_path / 'reader_1'),
        pytest.raises(UserError, match='reader_1: another command is writing'),
    ):
        predict_records.predict_records(pipeline, 'model', tmp_path)
    assert list((tmp_path / 'one').iterdir()) == []


@pytest.fixture
def truncated(tmp_path, pipeline):
    path = tmp_path / 'val.record'
    path.write_bytes(path.read_bytes()[:-3])
    del pipeline.eval_input_reader[1]
    return pipeline


def test_a_corrupt_record_is_skipped_and_named(truncated, tmp_path, caplog):
    counts = predict_records.predict_records(truncated, 'model', tmp_path)
    assert list(counts.values()) == [(5, 5)]
    assert re.search(r'eval_input_reader\[0\]: skipped record \(.*val\.record', caplog.text)
    text = 'eval_input_reader[0]: 5 objects were left out: 5 with an unknown class.'
    assert text in caplog.messages


@pytest.mark.slow
def test_strict_data_names_a_corrupt_record_and_what_came_before_stays(truncated, tmp_path):
    truncated.eval_input_reader[0].strict_data = True
    with pytest.raises(TooManyBadRecordsError, match=r'eval_input_reader\[0\].*val\.record'):
        predict_records.predict_records(truncated, 'model', tmp_path / 'out')
    assert len(read(tmp_path / 'out', 'detections.json.partial')) == 4
    assert not (tmp_path / 'out' / 'detections.json').exists()


@pytest.mark.slow
def test_records_of_which_none_is_usable_are_an_error(pipeline, tmp_path):
    examples.write_records(tmp_path / 'val.record', [b'bad', b'bad too'])
    with pytest.raises(TooManyBadRecordsError, match=r'no record can be used.*\n *2 records'):
        predict_records.predict_records(pipeline, 'model', tmp_path / 'out')
    names = sorted(path.name for path in (tmp_path / 'out' / 'one').iterdir())
    assert 'bad_records.jsonl' in names
    assert 'detections.json' not in names


@pytest.mark.parametrize('eval_reader', [None, pytest.param(1, marks=pytest.mark.slow)])
def test_inputs_are_drawn_with_boxes_and_names(pipeline, tmp_path, monkeypatch, eval_reader):
    drawn = []
    draw = step_pictures.tensorboard.input_pictures

    def look(batch, names, **options):
        drawn.append((batch[InputFields.SOURCE_ID][0].decode(), names))
        return draw(batch, names, **options)

    monkeypatch.setattr(step_pictures.tensorboard, 'input_pictures', look)
    files = step_pictures.write_inputs(pipeline, tmp_path / 'out', count=6, eval_reader=eval_reader)
    ids = [source_id for source_id, _ in drawn]
    assert sorted(ids) == ['10', '11', '12', '13', '15', 'a/b c']
    if eval_reader is not None:
        assert ids == ['10', '11', '12', '13', 'a/b c', '15']
    assert all(names == {1: 'cat', 2: 'Hund'} for _, names in drawn)
    names = [
        f'{i:03d}_{text.replace("/", "_").replace(" ", "_")}.png' for i, text in enumerate(ids)
    ]
    assert [path.name for path in files] == names
    sheet = step_pictures.SHEET_NAME
    assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == [*names, sheet]
    # Six pictures of 320 x 320 in three columns, with 8 pixels around each.
    with Image.open(tmp_path / 'out' / sheet) as picture:
        assert picture.size == (3 * 328 + 8, 2 * 328 + 8)
    for path in files:
        picture = np.asarray(Image.open(path)).astype(int)
        # The resizer of the model makes all of one size, enlarged to be legible.
        assert picture.shape == (320, 320, 3)
        # The outline of the box has the colour of its class, in noise.
        color = step_pictures.tensorboard.drawing.class_color(2)
        assert (np.abs(picture - color).max(axis=-1) <= 1).sum() > 300
