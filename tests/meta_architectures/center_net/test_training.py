"""A CenterNet with masks, or with DensePose, is trained from records, evaluated and exported."""

import json

import numpy as np
import pytest

from object_detection.config.job_options import TrainOptions
from object_detection.config.reader import read_pipeline
from object_detection.export import exporter
from object_detection.runtime.saved_detector import SavedModelRuntime
from object_detection.training import jobs
from tests.data import examples

CONFIG = """
model { center_net {
  num_classes: 2
  image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
  feature_extractor { type: 'mobilenet_v2_fpn' depth_multiplier: 0.25 }
  object_center_params {
    classification_loss { penalty_reduced_logistic_focal_loss { alpha: 2 beta: 4 } }
    max_box_predictions: 4
  }
  object_detection_task { localization_loss { l1_localization_loss {} } }
  TASK
} }
train_config {
  batch_size: 2 num_steps: 1
  optimizer { adam_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.001 } } } }
}
train_input_reader {
  label_map_path: 'FOLDER/labels.pbtxt' READS
  tf_record_input_reader { input_path: 'FOLDER/data.record' }
}
eval_config { METRICS }
eval_input_reader {
  label_map_path: 'FOLDER/labels.pbtxt' READS
  tf_record_input_reader { input_path: 'FOLDER/data.record' }
}
"""


MASKS = """mask_estimation_task {
  classification_loss { weighted_sigmoid {} } mask_height: 16 mask_width: 12
  groundtruth_mask_crop_size: CROP
}"""
DENSEPOSE = """densepose_estimation_task {
  class_id: 0 num_parts: 24
  loss {
    classification_loss { weighted_softmax {} } localization_loss { l1_localization_loss {} }
  }
}"""
POINTS = {
    'image__object__densepose__num': [3],
    'image__object__densepose__part_index': [1, 2, 23],
    'image__object__densepose__y': [0.2, 0.3, 0.5],
    'image__object__densepose__x': [0.2, 0.4, 0.3],
    'image__object__densepose__u': [0.5, 0.6, 0.7],
    'image__object__densepose__v': [0.15, 0.25, 0.35],
}


def train(folder, task, reads, metrics):
    """Trains a step, evaluates and exports; returns losses, metrics, and detections."""
    mask = np.pad(np.ones((32, 40), np.uint8), [(8, 24), (8, 32)])
    serialized = [
        examples.example(
            [[8 / 64, 8 / 80, 40 / 64, 48 / 80]],
            labels=[1],
            image=examples.png(examples.noise(64, 80, seed)),
            source_id=str(seed),
            masks=[mask],
            **POINTS,
        )
        for seed in (1, 2)
    ]
    examples.write_records(folder / 'data.record', serialized)
    (folder / 'labels.pbtxt').write_text("item { id: 1 name: 'a' } item { id: 2 name: 'b' }")
    text = CONFIG.replace('FOLDER', str(folder)).replace('TASK', task).replace('READS', reads)
    metrics = ' '.join(f"metrics_set: 'coco_{name}_metrics'" for name in metrics)
    config = folder / 'pipeline.config'
    config.write_text(text.replace('METRICS', metrics))
    options = TrainOptions(num_train_steps=1, eval_every_n_steps=1, log_every_n=1, seed=0)
    assert jobs.run_training(str(config), str(folder / 'model'), options) == 0
    lines = (folder / 'model' / 'train' / 'history.jsonl').read_text().splitlines()
    evaluated = json.loads((folder / 'model' / 'eval' / 'metrics.json').read_text())
    exporter.export(read_pipeline(str(config)), str(folder / 'model'), folder / 'exported')
    found = SavedModelRuntime(folder / 'exported')(examples.noise(50, 70))
    return json.loads(lines[-1])['losses'], evaluated, found


@pytest.mark.slow
@pytest.mark.parametrize('crop_size', [28, 0])
def test_masks_are_trained_evaluated_and_exported(crop_size, tmp_path):
    task = MASKS.replace('CROP', str(crop_size))
    reads = 'load_instance_masks: true mask_type: PNG_MASKS'
    losses, metrics, found = train(tmp_path, task, reads, ['detection', 'mask'])
    assert losses['Loss/segmentation/heatmap'] > 0
    assert {'DetectionBoxes_Precision/mAP', 'DetectionMasks_Precision/mAP'} <= metrics.keys()
    assert metrics['Loss/segmentation/heatmap'] > 0
    assert found['detection_masks'].shape == (4, 16, 12)
    assert set(np.unique(found['detection_masks'])) <= {0.0, 1.0}


@pytest.mark.slow
def test_densepose_is_trained_evaluated_and_exported(tmp_path):
    # Coordinates are given on the surfaces that masks show.
    task = MASKS.replace('CROP', '28') + DENSEPOSE
    reads = 'load_instance_masks: true mask_type: PNG_MASKS load_dense_pose: true'
    losses, metrics, found = train(tmp_path, task, reads, ['detection'])
    for name in ('heatmap', 'regression'):
        key = f'Loss/densepose/{name}'
        assert losses[key] > 0
        assert metrics[key] > 0
    assert found['detection_surface_coords'].shape == (4, 16, 12, 2)
