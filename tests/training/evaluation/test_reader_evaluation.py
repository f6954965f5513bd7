"""How long the batches of an evaluation take."""

import json
import time

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from object_detection.builders import dataset_builder, evaluator_builder
from object_detection.core.fields import InputFields
from object_detection.data.pipeline.bad_records import Place, TooManyBadRecordsError
from object_detection.training.evaluation import inference
from object_detection.training.evaluation.reader_evaluation import EvaluationTimes, ReaderEvaluation
from object_detection.visualization import tensorboard
from tests import tiny_models
from tests.data import examples
from tests.training import fakes


@pytest.fixture
def detector():
    detector = fakes.FakeDetector()
    detector.build_variables()
    return detector


def _slow(dataset):
    for batch in dataset:
        time.sleep(0.02)
        yield batch


def test_times_are_taken_of_all_batches_but_the_one_that_builds_the_graph(detector):
    times, dataset = EvaluationTimes(), fakes.dataset(5, 2)
    predict = inference.make_predict(detector, dataset.element_spec)
    expected = inference.evaluate(detector, dataset, [fakes.FakeEvaluator()], predict=predict)
    assert times.describe() == {}
    for count in (2, 5):
        metrics = inference.evaluate(
            detector,
            times.batches(_slow(dataset)),
            [fakes.FakeEvaluator()],
            predict=times.predict(predict),
        )
        assert metrics == expected
        described = times.describe()
        assert described['input']['count'] == described['step']['count'] == count
        assert described['input']['p50'] >= 0.02 * 0.99
        assert described['step']['p50'] > 0
    times.clear()
    assert times.describe() == {}


def test_data_without_a_usable_record_are_an_error(detector, tmp_path):
    config = tiny_models.tiny_pipeline('eval_config { batch_size: 1 }')
    del config.eval_input_reader[:]
    reader = config.eval_input_reader.add(label_map_path=examples.write_label_map(tmp_path))
    path = examples.write_records(tmp_path / 'val.record', [b'bad', b'bad too'])
    reader.tf_record_input_reader.input_path.append(path)
    evaluation = ReaderEvaluation(detector, config, 0, str(tmp_path / 'eval'))
    for _ in range(2):
        with pytest.raises(TooManyBadRecordsError, match=r'no record can be used.*\n *2 records'):
            evaluation.run(1)


def test_objects_that_are_left_out_are_counted_at_the_end(detector, tmp_path, monkeypatch, caplog):
    config = tiny_models.tiny_pipeline('eval_config { batch_size: 1 }')
    path = examples.write_records(tmp_path / 'val.record', [examples.example()])
    config.eval_input_reader[0].label_map_path = examples.write_label_map(tmp_path)
    config.eval_input_reader[0].tf_record_input_reader.input_path[:] = [path]
    monkeypatch.setattr(
        'object_detection.training.evaluation.reader_evaluation.evaluate', lambda *_, **__: {}
    )
    evaluation = ReaderEvaluation(detector, config, 0, str(tmp_path / 'eval'))
    evaluation._left_out.add_objects(Place('f', 0, 'a'), 0, {'box_outside_image': 2})
    evaluation.run(1)
    reasons = '2 with a box outside the image'
    assert f'eval_input_reader[0]: 2 objects were left out: {reasons}.' in caplog.messages


class _Storing(fakes.FakeEvaluator):
    def __init__(self, number):
        super().__init__()
        self._number = number

    def coco_results(self):
        return [{'image_id': 1, 'score': self._number}]


@pytest.mark.parametrize(
    ('readers', 'sets', 'names'),
    [
        ([''], ['coco_mask_metrics'], ['found.json']),
        ([''], ['coco_mask_metrics', 'oid_V2_detection_metrics'], ['found.json']),
        (
            ['val', 'a/b'],
            ['coco_mask_metrics', 'coco_detection_metrics'],
            [
                'found-a%2Fb-coco_detection_metrics.json',
                'found-a%2Fb-coco_mask_metrics.json',
                'found-val-coco_detection_metrics.json',
                'found-val-coco_mask_metrics.json',
            ],
        ),
    ],
)
def test_detections_are_written_into_files(detector, tmp_path, monkeypatch, readers, sets, names):
    fakes.patch_builders(monkeypatch.setattr, num_images=3)
    config = fakes.pipeline_config()
    config.eval_config.metrics_set[:] = sets
    config.eval_config.export_path = str(tmp_path / 'found' / 'found.json')
    label_map = examples.write_label_map(tmp_path)
    for name in readers:
        config.eval_input_reader.add(label_map_path=label_map, name=name)
    built = [
        fakes.FakeEvaluator() if name.startswith('oid') else _Storing(number)
        for number, name in enumerate(sets)
    ]
    monkeypatch.setattr(evaluator_builder, 'build', lambda *_: built)
    for index, _ in enumerate(readers):
        ReaderEvaluation(detector, config, index, str(tmp_path / 'eval')).run(1)
    files = {path.name: json.loads(path.read_text()) for path in (tmp_path / 'found').iterdir()}
    assert sorted(files) == names
    for name, results in files.items():
        number = 0 if len(names) == 1 else sets.index(name.split('-')[-1].partition('.')[0])
        assert results == [{'image_id': 1, 'score': number}]


def test_only_the_chief_writes_detections(detector, tmp_path, monkeypatch):
    fakes.patch_builders(monkeypatch.setattr, num_images=3)
    config = fakes.pipeline_config()
    config.eval_input_reader.add(label_map_path=examples.write_label_map(tmp_path))
    config.eval_config.export_path = str(tmp_path / 'found.json')
    monkeypatch.setattr(evaluator_builder, 'build', lambda *_: [_Storing(1)])
    # Others have no folder of results.
    ReaderEvaluation(detector, config, 0, None).run(1)
    assert not (tmp_path / 'found.json').exists()


@pytest.mark.parametrize('keeps_ids', [False, True])
def test_pictures_are_written_into_files(detector, tmp_path, monkeypatch, keeps_ids):
    fakes.patch_builders(monkeypatch.setattr, num_images=3)
    config = fakes.pipeline_config()
    config.eval_input_reader.add(label_map_path=examples.write_label_map(tmp_path))
    config.eval_config.visualization_export_dir = str(tmp_path / 'pictures')
    config.eval_config.keep_image_id_for_visualization_export = keeps_ids
    config.eval_config.num_visualizations = 2

    def renamed(batch):
        return {**batch, InputFields.SOURCE_ID: tf.strings.join(['a/', batch['source_id']])}

    data = fakes.dataset(5, 1).map(renamed)
    monkeypatch.setattr(dataset_builder, 'build_eval', lambda *arguments, **options: data)
    reader = ReaderEvaluation(detector, config, 0, str(tmp_path / 'eval'))
    monkeypatch.setattr(
        tensorboard,
        'detection_pictures',
        lambda batch, found, names, *, limit, style: [
            np.full((4, 6, 3), 7, np.uint8) for _ in batch[InputFields.SOURCE_ID][:limit]
        ],
    )
    for _ in range(2):
        reader.run(1)
    names = sorted(path.name for path in (tmp_path / 'pictures').rglob('*.*'))
    if keeps_ids:
        assert names == ['export-a_0.png', 'export-a_1.png']
    else:
        assert names == ['export-0.png', 'export-1.png']
    picture = np.asarray(Image.open(next((tmp_path / 'pictures').rglob('*.png'))))
    np.testing.assert_array_equal(picture, np.full((4, 6, 3), 7, np.uint8))
