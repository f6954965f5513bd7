"""Import errors that say what replaces a module of the TensorFlow Object Detection API."""

import sys
from collections.abc import Sequence
from typing import Any

_TRAINING = 'train with `tfod train` or object_detection.model_main_tf2, evaluate with `tfod eval`'
_STEPS = 'a detector of builders.model_builder.build has preprocess, predict, loss and postprocess'
_METRICS = 'call `tfod eval`, or the classes of object_detection.metrics'
_SCORE_FILES = 'call `tfod eval --detections FILE --groundtruth FILE`'
_BOXES = 'boxes are tensors; object_detection.core.boxes has their functions'
_REPLACEMENTS = {
    'core.box_list': _BOXES,
    'core.box_list_ops': _BOXES,
    'core.preprocessor': 'augmentations are options of a config; see docs/augmentation.md',
    'core.standard_fields': 'use object_detection.core.fields',
    'data_decoders': 'use object_detection.data.decoder',
    'eval_util': _METRICS,
    'exporter': 'call `tfod export` or object_detection.exporter_main_v2',
    'exporter_lib_v2': 'call `tfod export` or object_detection.exporter_main_v2',
    'export_tflite_graph_lib_tf2': 'call `tfod export --format tflite`',
    'inputs': 'call object_detection.builders.dataset_builder, or `tfod train`',
    'legacy': _TRAINING,
    'metrics.coco_evaluation': _METRICS,
    'metrics.coco_tools': _METRICS,
    'metrics.lvis_evaluation': _METRICS,
    'metrics.offline_eval_map_corloc': _SCORE_FILES,
    'metrics.oid_challenge_evaluation': _SCORE_FILES,
    'model_hparams': 'call utils.config_util.merge_external_params_with_configs',
    'model_lib': _TRAINING,
    'model_lib_v2': f'{_TRAINING}; {_STEPS}',
    'model_main': _TRAINING,
    'utils.learning_schedules': 'schedules are options of train_config.optimizer',
    'utils.object_detection_evaluation': _METRICS,
    'utils.per_image_evaluation': _METRICS,
    'utils.test_utils': 'tests of this toolkit build their own data',
    'utils.variables_helper': 'use object_detection.weights.restore',
}


class _Finder:
    """The last finder of `sys.meta_path`: sees modules that no other finder has."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: Any = None) -> None:
        package, _, module = name.partition('.')
        if package == __package__ and module in _REPLACEMENTS:
            # Without `name=`, which `from package import module` takes for an absent attribute.
            raise ModuleNotFoundError(
                f'{name} of the TensorFlow Object Detection API does not exist here: '
                f'{_REPLACEMENTS[module]}. docs/migrating.md lists the modules that exist.'
            )


def explain() -> None:
    """Makes imports of absent modules raise an error with the replacement. Repeats do nothing."""
    if _Finder not in sys.meta_path:
        sys.meta_path.append(_Finder)
