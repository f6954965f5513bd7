"""Exports a single-shot detector or a CenterNet as a SavedModel for the TFLite converter.

  python -m object_detection.export_tflite_graph_tf2 --pipeline_config_path=FILE \
      --trained_checkpoint_dir=DIR --output_directory=DIR

writes output_directory/saved_model. `tfod export --format tflite` writes the TFLite file in one
step, of a model that normalizes images itself.
"""

from absl import flags

from object_detection import registry
from object_detection.cli.common import scripts
from object_detection.config import families
from object_detection.errors import UserError, expected
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.system import tensorflow_setup

_CENTER_NET = 'center_net'


def define_flags() -> None:
    """Defines the flags; in a function, because other programs have flags of the same names."""
    flags.DEFINE_string('pipeline_config_path', None, 'The pipeline config file.')
    flags.DEFINE_string(
        'trained_checkpoint_dir', None, 'Checkpoints; the newest is exported. E.g. model/best.'
    )
    flags.DEFINE_string('output_directory', None, 'Where to write; an earlier export is replaced.')
    flags.DEFINE_string('config_override', '', 'A text proto, or a file of one, merged over it.')
    flags.DEFINE_integer('max_detections', 10, 'Maximum number of detections of an image.')
    flags.DEFINE_bool(
        'ssd_use_regular_nms',
        False,
        'Suppresses boxes of each class for themselves, which is slower; otherwise a box is '
        'suppressed by a better one of any class.',
    )
    flags.DEFINE_bool(
        'centernet_include_keypoints', False, 'Of CenterNet: keypoints are outputs, too.'
    )
    flags.DEFINE_string(
        'keypoint_label_map_path',
        None,
        'Of CenterNet: a label map with keypoints, which replaces that of the config.',
    )
    flags.DEFINE_multi_string('plugin', [], registry.PLUGIN_HELP)
    flags.mark_flags_as_required(
        ['pipeline_config_path', 'trained_checkpoint_dir', 'output_directory']
    )


def main(argv: list[str]) -> None:
    """Exports what the flags name."""
    values = flags.FLAGS
    scripts.check_flags_only(argv)
    registry.add_plugins(values.plugin)
    from object_detection.config.reader import read_pipeline
    from object_detection.validation.validate import validate

    pipeline = read_pipeline(values.pipeline_config_path, overrides_text=values.config_override)
    check_family(pipeline.model)
    check_center_net_flags(
        pipeline.model, values.centernet_include_keypoints, values.keypoint_label_map_path
    )
    if values.keypoint_label_map_path:
        pipeline.model.center_net.keypoint_label_map_path = values.keypoint_label_map_path
    validate(pipeline, for_what='export')
    # Imported here: TensorFlow takes seconds, and mistakes are reported before.
    tensorflow_setup.import_tensorflow()
    from object_detection.export import tflite_graph

    folder = tflite_graph.export(
        pipeline,
        values.trained_checkpoint_dir,
        values.output_directory,
        max_detections=values.max_detections,
        use_regular_nms=values.ssd_use_regular_nms,
        include_keypoints=values.centernet_include_keypoints,
    )
    print(f'Exported to {folder}.')


def check_family(model: DetectionModel) -> None:
    """Raises UserError unless a model of this config has anchors, or is a CenterNet."""
    if not families.decodes_anchors(model) and not model.HasField(_CENTER_NET):
        raise expected('model', 'ssd, center_net (or use `tfod export`)', model.WhichOneof('model'))


def check_center_net_flags(
    model: DetectionModel, include_keypoints: bool, keypoint_label_map_path: str | None
) -> None:
    """Raises UserError if flags for CenterNet's keypoints are set for a model without them."""
    given = {
        'centernet_include_keypoints': include_keypoints,
        'keypoint_label_map_path': keypoint_label_map_path,
    }
    for name, value in given.items():
        if value and not (model.HasField(_CENTER_NET) and families.needs(model).keypoints):
            raise UserError(
                f'--{name}: expected none, as the model is no {_CENTER_NET} with a '
                f'keypoint_estimation_task. Received: {value}.'
            )


def run() -> None:
    """Parses the command line and runs; users' errors become one line."""
    scripts.run(define_flags, main)


if __name__ == '__main__':
    run()
