"""The table of rules and cautions by family of detectors; see `builders.families`."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import Message

from object_detection.builders import families
from object_detection.config.findings import Finding
from object_detection.meta_architectures.center_net import rules as center_net
from object_detection.meta_architectures.center_net import warnings as center_net_cautions
from object_detection.meta_architectures.center_net import warnings as center_net_parts
from object_detection.meta_architectures.faster_rcnn import rules as faster_rcnn
from object_detection.meta_architectures.faster_rcnn import warnings as faster_rcnn_cautions
from object_detection.meta_architectures.faster_rcnn import warnings as faster_rcnn_parts
from object_detection.meta_architectures.faster_rcnn.warnings import find_for_tpu
from object_detection.meta_architectures.ssd import rules as ssd
from object_detection.meta_architectures.ssd import warnings
from object_detection.protos.model_pb2 import DetectionModel
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig


def _no_sentences(config: Message) -> Iterator[str]:
    del config
    return iter(())


def _no_fields(pipeline: TrainEvalPipelineConfig) -> Iterator[tuple[str, str, str]]:
    del pipeline
    return iter(())


def _no_padding(config: Message) -> int:
    del config
    return 1


def _no_findings(pipeline: TrainEvalPipelineConfig) -> Iterator[Finding]:
    del pipeline
    return iter(())


@dataclasses.dataclass(frozen=True)
class FamilyRules:
    """The rules for configs of a family; each sentence begins with the path of a field.

    Attributes:
      check: family's message -> a sentence for each problem; does not load TensorFlow.
      check_parts: family's message -> a sentence for each error of the builders of cheap
        components; called if `check` finds no problem, with TensorFlow loaded.
      without_effect: pipeline -> triples of a top-level field such as 'model', the path of a field
        that the config sets without an effect, and the reason.
      untrained: family's message -> sentences for a training that starts from random weights.
      advice: family's message -> sentences for a training of a new detector.
      padding_multiple: family's message -> the multiple that sides of images are padded to.
      tpu: pipeline -> findings about the message of the family on a TPU, beyond the rules of
        `validation.tpu` for all families; does not load TensorFlow.
      mask_setting: the field and the value that make the family predict masks; None if there
        is no such field.
    """

    check: Callable[[Any], Iterator[str]]
    check_parts: Callable[[Any], Iterator[str]] = _no_sentences
    without_effect: Callable[[TrainEvalPipelineConfig], Iterator[tuple[str, str, str]]] = _no_fields
    untrained: Callable[[Any], Iterator[str]] = _no_sentences
    advice: Callable[[Any], Iterator[str]] = _no_sentences
    padding_multiple: Callable[[Any], int] = _no_padding
    tpu: Callable[[TrainEvalPipelineConfig], Iterator[Finding]] = _no_findings
    mask_setting: tuple[str, str] | None = None


# The keys are the names in the `oneof` of DetectionModel.
RULES: dict[str, FamilyRules] = {
    'faster_rcnn': FamilyRules(
        check=faster_rcnn.check,
        check_parts=faster_rcnn_parts.check,
        without_effect=faster_rcnn_cautions.find,
        untrained=faster_rcnn_cautions.find_untrained,
        advice=faster_rcnn_cautions.find_advice,
        padding_multiple=faster_rcnn.padding_multiple,
        tpu=find_for_tpu,
        mask_setting=('number_of_stages', '3'),
    ),
    'ssd': FamilyRules(
        check=ssd.check,
        check_parts=warnings.check,
        tpu=warnings.find_for_tpu,
        without_effect=warnings.find,
        untrained=warnings.find_untrained,
        advice=warnings.find_advice,
        padding_multiple=ssd.padding_multiple,
    ),
    'center_net': FamilyRules(
        check=center_net.check,
        check_parts=center_net_parts.check,
        without_effect=center_net_cautions.find,
        advice=center_net_cautions.find_advice,
        padding_multiple=center_net.padding_multiple,
        mask_setting=('mask_estimation_task', '{ ... }'),
    ),
}


def find(model: DetectionModel) -> FamilyRules | None:
    """Returns the rules of the model's family; None if no model is set or it has no rules."""
    return RULES.get(model.WhichOneof('model'))


def check(pipeline: TrainEvalPipelineConfig) -> Iterator[str]:
    """Yields one sentence per problem of `pipeline.model` that is found without the builders."""
    rules = find(pipeline.model)
    if pipeline.model.WhichOneof('model') is None:
        yield f'model is not set; expected model {{ {next(iter(RULES))} {{ ... }} }}.'
    elif rules is not None:
        yield from rules.check(families.options(pipeline.model))
