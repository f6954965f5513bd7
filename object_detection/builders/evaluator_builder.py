"""Builds the evaluators that an EvalConfig names."""

from collections.abc import Mapping, Sequence
from typing import Any

from object_detection.evaluation.coco import CocoEvaluator
from object_detection.protos import eval_pb2

DEFAULT_METRICS_SET = ('coco_detection_metrics',)

IOU_TYPES = {'coco_detection_metrics': 'bbox', 'coco_mask_metrics': 'segm'}


def build(
    eval_config: eval_pb2.EvalConfig, categories: Sequence[Mapping[str, Any]]
) -> list[CocoEvaluator]:
    """Builds one evaluator for each metrics set, in their order.

    Args:
      eval_config: `metrics_set` names the sets; coco_detection_metrics if there is none.
      categories: the label map's entries, {'id': 1-based, 'name': ...}.

    Raises:
      ValueError: for a metrics set that is not supported.
    """
    parameterized = [
        metric.WhichOneof('parameterized_metric') for metric in eval_config.parameterized_metric
    ]
    if parameterized:
        raise ValueError(
            f'object_detection.protos.EvalConfig.parameterized_metric is not supported; use '
            f'metrics_set with: {", ".join(IOU_TYPES)}. Received: {parameterized}.'
        )
    names = list(dict.fromkeys(eval_config.metrics_set or DEFAULT_METRICS_SET))
    unsupported = [name for name in names if name not in IOU_TYPES]
    if unsupported:
        raise ValueError(
            f'object_detection.protos.EvalConfig.metrics_set: supported are '
            f'{", ".join(IOU_TYPES)}. Received: {", ".join(unsupported)}.'
        )
    super_categories = {
        name: [member.strip() for member in members.split(',')]
        for name, members in sorted(eval_config.super_categories.items())
    }
    return [
        CocoEvaluator(
            categories,
            iou_type=IOU_TYPES[name],
            per_category=eval_config.include_metrics_per_category,
            all_per_category=eval_config.all_metrics_per_category,
            super_categories=super_categories,
        )
        for name in names
    ]
