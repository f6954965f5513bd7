"""The table of detector families, and the properties of a detector that its config determines.

A family is a folder of this package with a row in `MODELS`, and its rules with a row in
`validation.models.families.RULES`. This module and what it imports load no TensorFlow; only the
`build` of a row does, when it is called.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from object_detection.config.model_rules import AnchorOptions
from object_detection.meta_architectures.center_net import family as center_net
from object_detection.meta_architectures.faster_rcnn import family as faster_rcnn
from object_detection.meta_architectures.ssd import family as ssd
from object_detection.protos.model_pb2 import DetectionModel as ModelConfig

if TYPE_CHECKING:
    from object_detection.meta_architectures.detection_model import DetectionModel


def _never(config: Message) -> bool:
    del config
    return False


def _no_options(config: Message) -> dict[str, Any]:
    del config
    return {}


def _no_anchors(config: Message) -> None:
    del config


@dataclasses.dataclass(frozen=True)
class ModelFamily:
    """A family of detectors; its functions take the message of the family, e.g. a `FasterRcnn`.

    The functions need no detector; `loss_names`, `needs_masks` and `needs_keypoints` return the
    values that the attributes of the detector will have.

    Attributes:
      title: the family's name in messages, such as 'Faster R-CNN'.
      build: (message, is_training) -> the detector with random weights; `is_training` is False
        if all batch norms are to be frozen. It raises a ValueError for options that are not
        supported or do not fit each other.
      loss_names: the names of the losses that `DetectionModel.loss` returns.
      nvidia_names: name of a loss -> its name in NVIDIA's models, for files of DLLogger.
      needs_masks: whether the losses need instance masks, which the detector then predicts.
      predicts_masks: whether detections have masks; None if they have exactly where losses need
        them.
      needs_keypoints: whether the losses need keypoints.
      reader_flags: option of an input reader that the losses need to be true -> the field of the
        message because of which they do; besides those of masks.
      input_flags: the same of options that predictions need, and losses with them.
      example_options: options of `ExampleTransform` that follow from the message.
      anchor_detection: how the box codes and scores of anchors, which the detector's
        `anchor_predictions` returns, become detections; None for families whose detections do not
        come from anchors in one step.
      anchor_options: the anchors that objects are matched with; None for families without.
    """

    title: str
    build: Callable[[Any, bool], 'DetectionModel']
    loss_names: Callable[[Any], Sequence[str]]
    needs_masks: Callable[[Any], bool] = _never
    predicts_masks: Callable[[Any], bool] | None = None
    needs_keypoints: Callable[[Any], bool] = _never
    reader_flags: Callable[[Any], dict[str, str]] = _no_options
    input_flags: Callable[[Any], dict[str, str]] = _no_options
    example_options: Callable[[Any], dict[str, Any]] = _no_options
    anchor_detection: Callable[[Any], ssd.AnchorDetection | None] = _no_anchors
    anchor_options: Callable[[Any], AnchorOptions | None] = _no_anchors
    nvidia_names: Mapping[str, str] = dataclasses.field(default_factory=dict)


# The keys are the names in the `oneof` of DetectionModel.
MODELS: dict[str, ModelFamily] = {
    'faster_rcnn': ModelFamily(
        title='Faster R-CNN',
        build=faster_rcnn.build,
        loss_names=faster_rcnn.loss_names,
        needs_masks=faster_rcnn.needs_masks,
        needs_keypoints=faster_rcnn.needs_keypoints,
        input_flags=faster_rcnn.input_flags,
        example_options=faster_rcnn.example_options,
        anchor_options=faster_rcnn.anchor_options,
        nvidia_names=faster_rcnn.NVIDIA_NAMES,
    ),
    'ssd': ModelFamily(
        title='SSD',
        build=ssd.build,
        loss_names=ssd.loss_names,
        needs_keypoints=ssd.needs_keypoints,
        anchor_detection=ssd.anchor_detection,
        anchor_options=ssd.anchor_options,
    ),
    'center_net': ModelFamily(
        title='CenterNet',
        build=center_net.build,
        loss_names=center_net.loss_names,
        needs_masks=center_net.needs_masks,
        predicts_masks=center_net.predicts_masks,
        needs_keypoints=center_net.needs_keypoints,
        reader_flags=center_net.reader_flags,
        example_options=center_net.example_options,
    ),
}


def find(model: ModelConfig) -> ModelFamily | None:
    """Returns the family of the model; None if no model is set or it has no family."""
    return MODELS.get(model.WhichOneof('model'))


def options(model: ModelConfig) -> Message | None:
    """Returns the message of the model that is set, such as a `FasterRcnn`; None if none is."""
    kind = model.WhichOneof('model')
    return getattr(model, kind) if kind else None


def path(model: ModelConfig) -> str:
    """Returns the path of the message of the model that is set, such as 'model.faster_rcnn'."""
    return f'model.{model.WhichOneof("model")}'


def num_classes(model: ModelConfig) -> int:
    """Returns the number of classes K; 0 if the model does not specify it."""
    return getattr(options(model), 'num_classes', 0)


def loss_names(model: ModelConfig) -> list[str]:
    """Returns the names of the losses of the model's detector; [] without a family."""
    family = find(model)
    return list(family.loss_names(options(model))) if family else []


def needs_masks(model: ModelConfig) -> bool:
    """Returns whether the model trains instance masks."""
    family = find(model)
    return family is not None and family.needs_masks(options(model))


def predicts_masks(model: ModelConfig) -> bool:
    """Returns whether the model's detections have instance masks."""
    family = find(model)
    if family is None or family.predicts_masks is None:
        return needs_masks(model)
    return family.predicts_masks(options(model))


def needs_keypoints(model: ModelConfig) -> bool:
    """Returns whether the model trains keypoints."""
    family = find(model)
    return family is not None and family.needs_keypoints(options(model))


def reader_flags(model: ModelConfig) -> dict[str, str]:
    """Returns the options of input readers that the losses need; see `ModelFamily`."""
    family = find(model)
    return family.reader_flags(options(model)) if family else {}


def input_flags(model: ModelConfig) -> dict[str, str]:
    """Returns the options of input readers that predictions need; see `ModelFamily`."""
    family = find(model)
    return family.input_flags(options(model)) if family else {}


def context_size(model: ModelConfig) -> tuple[int, int] | None:
    """Returns the number and length of the context features of an image; None if it has none."""
    family = find(model)
    return family.example_options(options(model)).get('context_size') if family else None


def anchor_detection(model: ModelConfig) -> ssd.AnchorDetection | None:
    """Returns how predictions of anchors become detections; None if detections come otherwise."""
    family = find(model)
    return family and family.anchor_detection(options(model))


def anchor_options(model: ModelConfig) -> AnchorOptions | None:
    """Returns the anchors that objects are matched with; None if the model has none."""
    family = find(model)
    return family and family.anchor_options(options(model))


def nvidia_names() -> dict[str, str]:
    """Returns the `nvidia_names` of all families."""
    return {
        name: theirs for family in MODELS.values() for name, theirs in family.nvidia_names.items()
    }
