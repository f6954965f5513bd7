"""The families of detectors: one row for each, and what a config's family says about its message.

A family is a folder of `meta_architectures` whose `family.py` holds its row, or a row of an
installed package or a plug-in. This module and the rows load no TensorFlow; the functions of a row
that do so say it.
"""

import dataclasses
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

from google.protobuf.message import Message

from object_detection import registry
from object_detection.config import plugins
from object_detection.config.findings import Finding
from object_detection.core.detector import Detector
from object_detection.errors import ConfigError, UserError
from object_detection.protos.anchor_generator_pb2 import AnchorGenerator
from object_detection.protos.box_coder_pb2 import BoxCoder
from object_detection.protos.image_resizer_pb2 import ImageResizer
from object_detection.protos.model_pb2 import DetectionModel, ExperimentalModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.protos.post_processing_pb2 import PostProcessing
from object_detection.registry import Registry

Options = TypeVar('Options')

_EMPTY: Mapping[str, Any] = types.MappingProxyType({})


class Needs(NamedTuple):
    """What a model asks of its data, of evaluation and of export.

    Attributes:
      masks: whether the losses need instance masks.
      predicts_masks: whether detections have masks.
      mask_setting: the field and the value that make the family predict masks, such as
        'number_of_stages: 3'; '' if there is no such field.
      keypoints: whether the losses need keypoints.
      reader_flags: option of an input reader that the losses need to be true -> the field of the
        message because of which they do; besides those of masks.
      input_flags: the same of options that predictions need, and losses with them.
      example_options: options of `ExampleTransform` that follow from the message.
      padding_multiple: what the sides of images are padded to a multiple of; 1 is no padding.
    """

    masks: bool = False
    predicts_masks: bool = False
    mask_setting: str = ''
    keypoints: bool = False
    reader_flags: Mapping[str, str] = _EMPTY
    input_flags: Mapping[str, str] = _EMPTY
    example_options: Mapping[str, Any] = _EMPTY
    padding_multiple: int = 1


class AnchorDetection(NamedTuple):
    """How the box codes and scores of anchors become detections, in one step.

    Attributes:
      num_classes: K, without background.
      box_coder: decodes the boxes.
      post_processing: suppresses them.
    """

    num_classes: int
    box_coder: BoxCoder
    post_processing: PostProcessing


class AnchorOptions(NamedTuple):
    """The anchors of a model.

    Attributes:
      path: path of the generator's message, from the message of the model on.
      generator: makes them.
      resizer: resizes the images that they lie on.
      threshold: least IoU with an object at which an anchor is matched to it.
      is_inside_only: whether a training leaves out anchors that cross the edge of the image.
      sees_static_size: whether a size that the resizer gives to all images decides where centres
        are.
      detection: how what the detector's `anchor_predictions` returns becomes detections; None if
        they do not come from anchors in one step.
      map_sizes: returns a function from height and width of images in pixels, padding included, to
        those of the feature maps in cells; it loads TensorFlow. None: the generator knows them, or
        maps are as those of most single-shot detectors.
    """

    path: str
    generator: AnchorGenerator
    resizer: ImageResizer
    threshold: float
    is_inside_only: bool = False
    sees_static_size: bool = False
    detection: AnchorDetection | None = None
    map_sizes: Callable[[], Callable[[int, int], list[tuple[int, int]]]] | None = None


def _nothing(*_: object) -> Iterator[Any]:
    return iter(())


@dataclasses.dataclass(frozen=True)
class _NoOptions:
    pass


@dataclasses.dataclass(frozen=True)
class ModelFamily:
    """A family of detectors; `message` is that of the family, e.g. a `FasterRcnn`.

    Sentences begin with the path of a field.

    Attributes:
      title: the family's name in messages, such as 'Faster R-CNN'.
      build: (message, is_training) -> the detector with random weights; `is_training` is False
        if all batch norms are to be frozen. It loads TensorFlow, and raises a ValueError for
        options that are not supported or do not fit each other.
      loss_names: message -> the names of the losses that the detector's `loss` returns.
      needs: message -> what the model asks of data, evaluation and export.
      rules: message -> a sentence for each problem.
      unread: pipeline -> triples of a top-level field such as 'train_input_reader', the path of a
        field of the message that it leaves without an effect, and the reason. What `build` does not
        read is found by itself; see `config.reading`.
      warnings: (message, is_random) -> sentences for the training of a new detector; `is_random`
        is whether it starts from random weights.
      tpu: pipeline -> findings about the message on a TPU, beyond those for all families.
      anchors: message -> the anchors that objects are matched with; None without anchors.
      nvidia_names: name of a loss -> its name in NVIDIA's models, for files of DLLogger.
      options: the dataclass of the `options` of an `experimental_model`, which `named_options`
        returns; without fields for none.
    """

    title: str
    build: Callable[[Any, bool], Detector]
    loss_names: Callable[[Any], Sequence[str]]
    needs: Callable[[Any], Needs] = lambda message: Needs()
    rules: Callable[[Any], Iterator[str]] = _nothing
    unread: Callable[[TrainEvalPipelineConfig], Iterator[tuple[str, str, str]]] = _nothing
    warnings: Callable[[Any, bool], Iterator[str]] = _nothing
    tpu: Callable[[TrainEvalPipelineConfig], Iterator[Finding]] = _nothing
    anchors: Callable[[Any], AnchorOptions | None] = lambda message: None
    nvidia_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options: type = _NoOptions


# The names are those in the `oneof` of DetectionModel; configs name others as experimental_model.
FAMILIES: Registry[ModelFamily] = Registry(
    'family',
    {
        'faster_rcnn': 'object_detection.meta_architectures.faster_rcnn.family:FAMILY',
        'ssd': 'object_detection.meta_architectures.ssd.family:FAMILY',
        'center_net': 'object_detection.meta_architectures.center_net.family:FAMILY',
        'detr': 'object_detection.meta_architectures.detr.family:FAMILY',
    },
    ModelFamily,
)
# What makes a pipeline config of one of another system, by the name of the system; a row takes the
# path of a file, and may take others that go into the config.
_TRANSLATORS = {
    'transformers': 'object_detection.meta_architectures.detr.transformers_pipeline:make'
}
# The option of the `oneof` that names a family.
_NAMED = 'experimental_model'
_NOT_SET = 'model is not set; expected model { faster_rcnn { ... } }.'


def translator(system: str) -> Callable[..., Any]:
    """Returns what makes a pipeline config of one of another system; see `_TRANSLATORS`."""
    return registry.load(_TRANSLATORS[system])


def _build_none(message: None, is_training: bool) -> NoReturn:
    del message, is_training
    raise ConfigError(_NOT_SET)


# What a config without a model has.
_NONE = ModelFamily(
    title='no model',
    build=_build_none,
    loss_names=lambda message: (),
    rules=lambda message: iter([_NOT_SET]),
)


def name(model: DetectionModel) -> str | None:
    """Returns the name of the model's family; None if no model is set."""
    kind = model.WhichOneof('model')
    return model.experimental_model.name if kind == _NAMED else kind


def find(model: DetectionModel) -> ModelFamily:
    """Returns the family of the model; if none is set, one whose rules and `build` say so.

    Raises:
      UserError: if no plug-in registers the name of an `experimental_model`, or something else.
    """
    kind = model.WhichOneof('model')
    if kind != _NAMED:
        return FAMILIES[kind] if kind else _NONE
    return FAMILIES[plugins.checked_name(name(model), FAMILIES, path(model))]


def named_options(message: ExperimentalModel, kind: type[Options]) -> Options:
    """Returns the options of an `experimental_model` as a dataclass, the `options` of its family.

    Raises:
      UserError: if an option is unknown, missing, of another type or refused by the dataclass.
    """
    return plugins.make(kind, message, f'model.{_NAMED}')


def named_problems(model: DetectionModel) -> Iterator[str]:
    """Yields what is wrong with the fields of an `experimental_model` that all families have."""
    if model.WhichOneof('model') != _NAMED:
        return
    message = model.experimental_model
    try:
        named_options(message, find(model).options)
    except UserError as error:
        yield str(error)
    if message.image_resizer.WhichOneof('image_resizer_oneof') is None:
        yield f'{path(model)}.image_resizer is not set; expected e.g. fixed_shape_resizer.'


def options(model: DetectionModel) -> Message | None:
    """Returns the message of the model that is set, such as a `FasterRcnn`; None if none is."""
    kind = model.WhichOneof('model')
    return getattr(model, kind) if kind else None


def path(model: DetectionModel) -> str:
    """Returns the path of the message of the model that is set, such as 'model.faster_rcnn'."""
    return f'model.{model.WhichOneof("model")}'


def num_classes(model: DetectionModel) -> int:
    """Returns the number of classes K; 0 if the model does not specify it."""
    return getattr(options(model), 'num_classes', 0)


def needs(model: DetectionModel) -> Needs:
    """Returns what the model asks of data, evaluation and export."""
    return find(model).needs(options(model))


def anchors(model: DetectionModel) -> AnchorOptions | None:
    """Returns the anchors that objects are matched with; None if the model has none."""
    return find(model).anchors(options(model))


def decodes_anchors(model: DetectionModel) -> bool:
    """Returns whether detections come from anchors in one step; see `AnchorOptions.detection`."""
    found = anchors(model)
    return found is not None and found.detection is not None
