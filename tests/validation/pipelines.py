"""A pipeline config that has nothing wrong, and files for it."""

import pathlib

from google.protobuf import text_format

from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from tests.data import examples

TEXT = """
model {
  faster_rcnn {
    number_of_stages: 3
    num_classes: 2
    image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
    feature_extractor {
      type: 'faster_rcnn_resnet18_fpn_keras'
      conv_hyperparams { batch_norm {} }
      fpn { min_level: 4 max_level: 5 }
    }
    first_stage_anchor_generator {
      multiscale_anchor_generator {
        min_level: 4 max_level: 5 aspect_ratios: [1.0] normalize_coordinates: false
      }
    }
    first_stage_max_proposals: 20
    masks_from_crops: true
    initial_crop_size: 14
    maxpool_kernel_size: 2
    maxpool_stride: 2
    second_stage_box_predictor {
      mask_rcnn_box_predictor { predict_instance_masks: true conv_hyperparams {} }
    }
    second_stage_batch_size: 8
    second_stage_post_processing { score_converter: SOFTMAX }
  }
}
train_config {
  batch_size: 2
  num_steps: 10
  optimizer {
    momentum_optimizer { learning_rate { constant_learning_rate {} } }
    use_moving_average: false
  }
}
train_input_reader {
  label_map_path: 'FOLDER/label_map.pbtxt'
  load_instance_masks: true
  tf_record_input_reader { input_path: 'FOLDER/data-?????-of-?????' }
}
eval_config { metrics_set: 'coco_detection_metrics' metrics_set: 'coco_mask_metrics' }
eval_input_reader {
  label_map_path: 'FOLDER/label_map.pbtxt'
  load_instance_masks: true
  tf_record_input_reader { input_path: 'FOLDER/data-00000-of-00001' }
}
"""


def write_files(folder: pathlib.Path) -> pathlib.Path:
    """Writes the config and what it names; returns the config's path."""
    (folder / 'label_map.pbtxt').write_text('item { id: 1 name: "a" } item { id: 2 name: "b" }')
    record = examples.example([[0.1, 0.1, 0.5, 0.5]], [1], image__object__mask=[1.0] * 600)
    examples.write_records(folder / 'data-00000-of-00001', [record])
    path = folder / 'pipeline.config'
    path.write_text(TEXT.replace('FOLDER', str(folder)))
    return path


def sound_pipeline(folder: pathlib.Path) -> TrainEvalPipelineConfig:
    return text_format.Parse(write_files(folder).read_text(), TrainEvalPipelineConfig())
