"""All sets of metrics, from records to the results of several readers."""

import json

import numpy as np
import pytest

from object_detection.builders import evaluator_builder
from object_detection.training.evaluation import reader_evaluation
from object_detection.training.evaluation.reader_evaluation import PipelineEvaluation
from tests import tiny_models
from tests.data import examples
from tests.training import fakes

HEIGHT, WIDTH = 40, 60
LABEL_MAP = """
item { name: 'cat' id: 1 frequency: RARE keypoints { id: 0 label: 'nose' }
       keypoints { id: 1 label: 'tail' } }
item { name: 'dog' id: 2 frequency: FREQUENT }
"""
KEYPOINTS = """
parameterized_metric { coco_keypoint_metrics {
  class_label: 'cat' keypoint_label_to_sigmas { key: 'nose' value: 0.1 } } }
"""
# Pixels; the keypoints are the corners.
BOXES = np.array([[4, 6, 36, 30], [8, 36, 24, 54]], np.float32)


def _record(number):
    masks = np.zeros((2, HEIGHT, WIDTH), np.uint8)
    for mask, box in zip(masks, BOXES.astype(int), strict=True):
        mask[box[0] : box[2], box[1] : box[3]] = 1
    sides = BOXES / [HEIGHT, WIDTH, HEIGHT, WIDTH]
    return examples.example(
        sides,
        [1, 2],
        ['cat', 'dog'],
        image=examples.png(examples.noise(HEIGHT, WIDTH)),
        source_id=str(number),
        masks=masks,
        image__object__keypoint__y=sides[:, [0, 2]].ravel().tolist(),
        image__object__keypoint__x=sides[:, [1, 3]].ravel().tolist(),
        image__class__label=[1, 2],
        image__neg_category_ids=[],
        image__not_exhaustive_category_ids=[],
    )


def _config(tmp_path):
    config = tiny_models.tiny_pipeline(
        f'eval_config {{ batch_size: 2 include_metrics_per_category: false {KEYPOINTS} }}'
    )
    config.model.faster_rcnn.num_classes = 2
    config.eval_config.metrics_set[:] = list(evaluator_builder.METRIC_SETS)
    config.eval_config.export_path = str(tmp_path / 'found.json')
    del config.eval_input_reader[:]
    label_map = examples.write_label_map(tmp_path, LABEL_MAP)
    for name, numbers in (('right', range(3)), ('wrong', range(10, 13))):
        reader = config.eval_input_reader.add(
            name=name,
            label_map_path=label_map,
            load_instance_masks=True,
            mask_type=2,
            num_keypoints=2,
            load_image_labels=True,
        )
        path = tmp_path / f'{name}.record'
        records = examples.write_records(path, [_record(number) for number in numbers])
        reader.tf_record_input_reader.input_path.append(records)
    return config


def _finds(batch):
    """Finds all objects as they are; those of images from 10 on at a wrong place."""
    is_wrong = np.array([len(each) > 1 for each in batch['source_id'].numpy()])
    boxes = batch['evaluation_boxes'].numpy()
    moved = is_wrong[:, np.newaxis, np.newaxis] * 0.3
    count = len(boxes)
    keypoints = batch['evaluation_keypoints'].numpy() + moved[..., np.newaxis]
    found = {
        'detection_boxes': boxes + moved,
        'detection_scores': np.tile(np.array([0.9, 0.8], np.float32), (count, 1)),
        'detection_classes': batch['evaluation_classes'].numpy() - 1.0,
        'detection_masks': np.ones((count, 2, 14, 14), np.float32),
        'detection_keypoints': keypoints,
        'num_detections': np.full(count, 2.0),
    }
    return found, {}


@pytest.fixture
def evaluated(tmp_path, monkeypatch):
    monkeypatch.setattr(reader_evaluation, 'make_predict', lambda *_, **__: _finds)
    evaluation = PipelineEvaluation(
        fakes.FakeDetector(), _config(tmp_path), str(tmp_path), best=None
    )
    return evaluation.run(1)


def test_every_set_measures_every_reader(evaluated, tmp_path):
    assert list(evaluated) == ['right', 'wrong']
    right, wrong = evaluated.values()
    assert list(right) == list(wrong)
    main = [
        *('DetectionBoxes_Precision/mAP', 'DetectionMasks_Precision/mAP', 'DetectionMasks_AP'),
        *('PanopticQuality@0.50IOU', 'Keypoints_Precision/mAP ByCategory/cat'),
        *('Keypoints_Recall/AR ByCategory/cat', 'PascalBoxes_Precision/mAP@0.5IOU'),
        *('WeightedPascalMasks_Precision/mAP@0.5IOU', 'OpenImagesV2_Precision/mAP@0.5IOU'),
        'OpenImagesInstanceSegmentationChallenge_Precision/mAP@0.5IOU',
    ]
    assert set(main) <= set(right)
    for name in main:
        assert right[name] == pytest.approx(1, abs=1e-9), name
        assert wrong[name] == 0, name
    for name in ('right', 'wrong'):
        assert (tmp_path / 'eval' / name).is_dir()
    # The files of detections have the names of readers and sets.
    files = {path.name: json.loads(path.read_text()) for path in tmp_path.glob('found*.json')}
    sets = (
        *('coco_detection_metrics', 'coco_mask_metrics', 'coco_panoptic_metrics'),
        *('lvis_mask_metrics', 'coco_keypoint_metrics-cat'),
    )
    assert set(files) == {f'found-{reader}-{name}.json' for reader in evaluated for name in sets}
    (*_, last) = files['found-wrong-coco_detection_metrics.json']
    assert (last['image_id'], last['category_id']) == (12, 2)
    (first, *_) = files['found-right-coco_keypoint_metrics-cat.json']
    assert first['keypoints'] == pytest.approx([6, 4, 1, 30, 36, 1], abs=1e-4)
