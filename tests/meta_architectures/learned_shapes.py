"""Configs and generated shapes for families that tests register, and a training of them."""

import json
import pathlib
from unittest import mock

from google.protobuf import text_format

from object_detection.config.job_options import EvalOptions, TrainOptions
from object_detection.config.reader import read_pipeline
from object_detection.dataset_tools import shapes
from object_detection.export import exporter, verification
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.training import jobs

SIDE = 64
MODEL = """
  experimental_model {
    name: 'FAMILY'
    num_classes: 4
    image_resizer { fixed_shape_resizer { height: 64 width: 64 } }
    OPTIONS
  }
"""
JOBS = """
train_config {
  batch_size: BATCH num_steps: STEPS
  optimizer {
    adam_optimizer {
      learning_rate {
        cosine_decay_learning_rate {
          learning_rate_base: 0.002 total_steps: STEPS
          warmup_learning_rate: 0.0002 warmup_steps: WARMUP
        }
      }
    }
    use_moving_average: false
  }
  gradient_clipping_by_norm: 10
  data_augmentation_options { random_horizontal_flip {} }
}
train_input_reader {
  label_map_path: 'FOLDER/labels.pbtxt' max_number_of_boxes: 4
  coco_input_reader { image_dir: 'FOLDER/train' annotation_file: 'FOLDER/instances_train.json' }
}
eval_config { metrics_set: 'coco_detection_metrics' batch_size: 16 }
eval_input_reader {
  label_map_path: 'FOLDER/labels.pbtxt' max_number_of_boxes: 4
  coco_input_reader { image_dir: 'FOLDER/val' annotation_file: 'FOLDER/instances_val.json' }
}
"""


def model(family: str, **options: object) -> DetectionModel:
    """Returns `pipeline.model` with some options of the family."""
    return text_format.Parse(_model_text(family, options), DetectionModel())


def pipeline(
    folder: pathlib.Path, family: str, *, steps: int, batch_size: int, **options: object
) -> str:
    """Returns the text of a config for the data of `write_data` in a folder."""
    values = {'BATCH': batch_size, 'STEPS': steps, 'WARMUP': steps // 10, 'FOLDER': folder}
    text = f'model {{ {_model_text(family, options)} }} {JOBS}'
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


def _model_text(family: str, options: dict[str, object]) -> str:
    texts = (f"options {{ key: '{name}' value: '{value}' }}" for name, value in options.items())
    return MODEL.replace('FAMILY', family).replace('OPTIONS', ' '.join(texts))


def write_data(folder: pathlib.Path, *, num_train: int, num_val: int) -> None:
    """Writes images of 64 x 64 pixels with up to three large shapes, and their label map."""
    with mock.patch.multiple(shapes, MAX_OBJECTS=3, SIZE_RANGE=(16, 32)):
        shapes.write_shapes(folder, num_train=num_train, num_val=num_val, image_size=SIDE)
    items = (
        f"item {{ id: {number} name: '{name}' }}\n"
        for number, name in enumerate(shapes.SILHOUETTES, start=1)
    )
    (folder / 'labels.pbtxt').write_text(''.join(items))


def train_evaluate_export(
    folder: pathlib.Path, family: str, *, num_train: int, steps: int
) -> tuple[dict[str, float], verification.Comparison]:
    """Trains a family on generated shapes, evaluates it on 200 others, and exports it.

    Returns:
      The COCO metrics by their names, and how the exported model's detections compare.
    """
    write_data(folder, num_train=num_train, num_val=200)
    config, trained = folder / 'pipeline.config', str(folder / 'model')
    config.write_text(pipeline(folder, family, steps=steps, batch_size=16))
    assert jobs.run_training(str(config), trained, TrainOptions(seed=0, evaluate=False)) == 0
    assert jobs.run_evaluation(str(config), trained, trained, EvalOptions(run_once=True)) == 0
    metrics = json.loads((folder / 'model' / 'eval' / 'metrics.json').read_text())
    images = sorted((folder / 'val').glob('*.jpg'))[:4]
    exported = exporter.export(read_pipeline(str(config)), trained, folder / 'out', images=images)
    return metrics, exported.comparison
