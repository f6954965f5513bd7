"""The number of channels of the images that readers provide and a detector takes.

Needs no TensorFlow: the builders raise the problems as errors, and the validation lists them.
"""

from collections.abc import Iterator

from object_detection.builders import training_rules
from object_detection.config import families
from object_detection.protos.input_reader_pb2 import InputReader
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig

_RGB = 3


def of_reader(reader: InputReader) -> int:
    """Returns the number of channels of the images of a reader."""
    return reader.num_channels + reader.num_additional_channels


def of_detector(pipeline: TrainEvalPipelineConfig) -> int:
    """Returns the number of channels of the images that the detector of a config takes."""
    return 1 if is_grey(pipeline.model) else of_reader(pipeline.train_input_reader)


def check(pipeline: TrainEvalPipelineConfig, reader: InputReader, path: str) -> Iterator[str]:
    """Yields what is wrong with the channels of the reader at `path`."""
    channels = of_reader(reader)
    trained = of_reader(pipeline.train_input_reader)
    if channels != trained:
        yield (
            f'{path}: expected images of as many channels as those of train_input_reader, '
            f'{trained}. Received: {channels}.'
        )
    keeps_size = path != 'train_input_reader' and pipeline.eval_config.force_no_resize
    if keeps_size and is_grey(pipeline.model):
        yield (
            'eval_config.force_no_resize: expected false for an image_resizer with '
            'convert_to_grayscale, which it would leave out. Received: true.'
        )
    if channels == _RGB:
        return
    kind = reader.WhichOneof('input_reader')
    if reader.num_additional_channels and kind not in (None, 'tf_record_input_reader'):
        yield (
            f'{path}.num_additional_channels: expected a tf_record_input_reader. Received: {kind}.'
        )
    if is_grey(pipeline.model):
        yield (
            f'{path}: expected images of {_RGB} channels for an image_resizer with '
            f'convert_to_grayscale. Received: {channels}.'
        )
    if path == 'train_input_reader':
        yield from _steps(pipeline, channels)


def _steps(pipeline: TrainEvalPipelineConfig, channels: int) -> Iterator[str]:
    for path, step in training_rules.augmentation_steps(pipeline.train_config):
        kind = step.WhichOneof('preprocessing_step')
        color = getattr(getattr(step, kind), 'pad_color', ()) if kind else ()
        # One value is for all channels.
        takes_rgb = training_rules.step_facts(step).takes_rgb
        if takes_rgb or len(color) > 1:
            where = kind if takes_rgb else f'{kind}.pad_color'
            yield (
                f'{path}.{where}: expected none, as it is for red, green and blue, and the images '
                f'have {channels} channels.'
            )


def is_grey(model: DetectionModel) -> bool:
    """Returns whether the resizer of a model makes its images grey."""
    resizer = getattr(families.options(model), 'image_resizer', None)
    kind = resizer.WhichOneof('image_resizer_oneof') if resizer is not None else None
    return bool(kind) and getattr(getattr(resizer, kind), 'convert_to_grayscale', False)
