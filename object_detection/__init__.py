"""Object detection and instance segmentation driven by protobuf text configs.

From annotated photos to a picture:

    import object_detection as od

    od.convert('coco', 'data/train', images='photos', annotations='instances.json')
    od.new_config('data/train', 'pipeline.config')
    run = od.train('pipeline.config', 'model')
    run.predictor()('photo.jpg').draw().save('picture.png')

With a model that is there, the `model_dir` of a training, an export or an unpacked archive:

    predictor = od.Predictor('model')
    detections = od.load('model')(image)    # uint8 [H, W, 3] -> dict of tensors
"""

# TensorFlow takes seconds to load: what needs it is imported by the functions.
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from object_detection import absent_modules

if TYPE_CHECKING:
    import numpy as np

    from object_detection.builders.callback_builder import Callback
    from object_detection.prediction.prediction import Prediction
    from object_detection.prediction.predictor import Predictor
    from object_detection.runtime.runtime import Runtime
    from object_detection.tasks.data import convert, new_config
    from object_detection.tasks.exporting import export
    from object_detection.tasks.runs import Run, evaluate, train

    __version__: str

# Names that are imported when they are asked for.
_PLACES = {
    'Callback': 'builders.callback_builder',
    'Prediction': 'prediction.prediction',
    'Predictor': 'prediction.predictor',
    'Run': 'tasks.runs',
    'convert': 'tasks.data',
    'evaluate': 'tasks.runs',
    'new_config': 'tasks.data',
    'train': 'tasks.runs',
}
__all__ = [
    'Callback',
    'Prediction',
    'Predictor',
    'Run',
    'convert',
    'evaluate',
    'export',
    'load',
    'new_config',
    'paste_masks',
    'read_image',
    'train',
]


absent_modules.explain()


def __getattr__(name: str) -> Any:
    if name == 'export':  # The package, which can be called, in either order of imports.
        import object_detection.export

        return object_detection.export
    if name in _PLACES:
        from object_detection import registry

        if name == 'Predictor':
            _import_tensorflow()
        return registry.load(f'object_detection.{_PLACES[name]}:{name}')
    if name == '__version__':
        import importlib.metadata

        return importlib.metadata.version('object-detection-toolkit')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
    return [*__all__, '__version__']


def _import_tensorflow() -> None:
    """Imports it as the commands do, without the messages of its C++ code."""
    from object_detection.system import tensorflow_setup

    tensorflow_setup.import_tensorflow(shows_progress=False)


def load(
    path: str | os.PathLike,
    *,
    checkpoint: str | os.PathLike | None = None,
    config: str | os.PathLike | None = None,
    label_map: str | os.PathLike | None = None,
    precision: str | None = None,
) -> Runtime:
    """Loads a detector with its weights: `object_detection.prediction.loading.load` says all.

    Args:
      path: an export, a file of one or another SavedModel; the `model_dir` of a training; or the
        unpacked archive of a trained model.
      checkpoint: 'best', 'ckpt-7' or a path: this checkpoint in place of an export.
      config: its pipeline config; None takes the one in `path`.
      label_map: label map with the names of the classes; None takes that of the model.
      precision: the precision in which a checkpoint computes, such as 'bfloat16'.

    Returns:
      A detector: `detector(images)` takes uint8 [H, W, 3] or [B, H, W, 3] and returns a dict of
      tensors under the reference's names; `detector.class_names` maps ids to names;
      `detector.draw(image)` makes a picture.

    Raises:
      ValueError: if there is no detector, or its config, checkpoint or label map is wrong.
    """
    _import_tensorflow()
    from object_detection.prediction import loading

    return loading.load(
        path, checkpoint=checkpoint, config=config, label_map=label_map, precision=precision
    )


def read_image(path: str | os.PathLike, detector: Any = None) -> np.ndarray:
    """Reads an image file, upright, as [H, W, 3], RGB, or with the channels that a model takes.

    Args:
      path: the file.
      detector: what `load` returned. If its model declares a range of values, these are the stored
        values, float32; otherwise uint8, the upper 8 of 16 bits.

    Raises:
      ValueError: if the file is not an image that can be read.
    """
    _import_tensorflow()
    from object_detection.runtime import images

    if detector is None:
        return images.read_image(path)[0]
    value_range, channels = detector.value_range, detector.channels
    return images.read_image(path, value_range=value_range, channels=channels)[0]


def paste_masks(masks: Any, boxes: Any, height: int, width: int) -> np.ndarray:
    """Pastes the masks of detections, which are relative to their boxes, into their image.

    Args:
      masks: float [n, h, w], probabilities: `detection_masks` of one image.
      boxes: float [n, 4], normalized: `detection_boxes` of that image.
      height, width: of the image, in pixels.

    Returns:
      uint8 [n, height, width]: 1 where the probability is above 0.5.
    """
    from object_detection.metrics import mask_pasting

    return mask_pasting.paste_masks(masks, boxes, height, width)
