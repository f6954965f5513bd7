"""A CenterNet with masks is trained from records, evaluated and exported."""

import json

import numpy as np
import pytest

from object_detection.config.job_options import TrainOptions
from object_detection.config.reader import read_pipeline
from object_detection.export import exporter
from object_detection.export.inference import SavedDetector
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
  mask_estimation_task {
    classification_loss { weighted_sigmoid {} } mask_height: 16 mask_width: 12
    groundtruth_mask_crop_size: CROP
  }
} }
train_config {
  batch_size: 2 num_steps: 1
  optimizer { adam_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.001 } } } }
}
train_input_reader {
  label_map_path: 'FOLDER/labels.pbtxt' load_instance_masks: true mask_type: PNG_MASKS
  tf_record_input_reader { input_path: 'FOLDER/data.record' }
}
eval_config { metrics_set: 'coco_detection_metrics' metrics_set: 'coco_mask_metrics' }
eval_input_reader {
  label_map_path: 'FOLDER/labels.pbtxt' load_instance_masks: true mask_type: PNG_MASKS
  tf_record_input_reader { input_path: 'FOLDER/data.record' }
}
"""


@pytest.mark.slow
@pytest.mark.parametrize('crop_size', [28, 0])
def test_masks_are_trained_evaluated_and_exported(crop_size, tmp_path):
    mask = np.pad(np.ones((32, 40), np.uint8), [(8, 24), (8, 32)])
    serialized = [
        examples.example(
            [[8 / 64, 8 / 80, 40 / 64, 48 / 80]],
            labels=[1],
            image=examples.png(examples.noise(64, 80, seed)),
            source_id=str(seed),
            masks=[mask],
        )
        for seed in (1, 2)
    ]
    examples.write_records(tmp_path / 'data.record', serialized)
    (tmp_path / 'labels.pbtxt').write_text("item { id: 1 name: 'a' } item { id: 2 name: 'b' }")
    config = tmp_path / 'pipeline.config'
    text = CONFIG.replace('FOLDER', str(tmp_path)).replace('CROP', str(crop_size))
    config.write_text(text)
    options = TrainOptions(num_train_steps=1, eval_every_n_steps=1, log_every_n=1, seed=0)
    assert jobs.run_training(str(config), str(tmp_path / 'model'), options) == 0
    lines = (tmp_path / 'model' / 'train' / 'history.jsonl').read_text().splitlines()
    assert json.loads(lines[-1])['losses']['Loss/segmentation/heatmap'] > 0
    metrics = json.loads((tmp_path / 'model' / 'eval' / 'metrics.json').read_text())
    assert {'DetectionBoxes_Precision/mAP', 'DetectionMasks_Precision/mAP'} <= metrics.keys()
    assert metrics['Loss/segmentation/heatmap'] > 0
    exporter.export(read_pipeline(str(config)), str(tmp_path / 'model'), tmp_path / 'exported')
    found = SavedDetector(tmp_path / 'exported').run(examples.noise(50, 70))
    assert found['detection_masks'].shape == (4, 16, 12)
    assert set(np.unique(found['detection_masks'])) <= {0.0, 1.0}
