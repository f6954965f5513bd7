"""Builds the evaluators that an EvalConfig names, and lists the metrics that they compute."""

import dataclasses
import difflib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from object_detection.config import families
from object_detection.data import label_map
from object_detection.errors import UserError, expected
from object_detection.metrics.coco import limits
from object_detection.metrics.coco.annotations import CocoAnnotations
from object_detection.metrics.coco.evaluator import CocoEvaluator
from object_detection.metrics.coco.keypoints import KeypointEvaluator
from object_detection.metrics.coco.lvis import LvisEvaluator
from object_detection.metrics.coco.panoptic import PanopticEvaluator
from object_detection.metrics.evaluator import Evaluator
from object_detection.metrics.mask_pasting import PasteMethod
from object_detection.metrics.pascal import options as pascal_options
from object_detection.metrics.pascal.evaluator import PascalEvaluator
from object_detection.protos import eval_pb2, input_reader_pb2, model_pb2
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.registry import Registry
from object_detection.system import files

DEFAULT_METRICS_SET = ('coco_detection_metrics',)
KEYPOINT_METRICS = 'coco_keypoint_metrics'

# DetectionMasks_PerformanceByCategory/mAP/<name>
_SAME_NAMES = {'coco_mask_metrics', 'lvis_mask_metrics'}

_COMMON_LOSSES = ('Loss/regularization_loss', 'Loss/total_loss')


def build(
    eval_config: eval_pb2.EvalConfig,
    categories: Sequence[Mapping[str, Any]],
    annotations: CocoAnnotations | None = None,
) -> list[Evaluator]:
    """Builds one evaluator for each metrics set and each parameterized metric, in their order.

    Args:
      eval_config: `metrics_set` names the sets; coco_detection_metrics if there is none.
      categories: the label map's entries, {'id': 1-based, 'name': ...}.
      annotations: ground truth that replaces the ground truth of the records.

    Raises:
      ValueError: for a metrics set that is not supported, or bounds of recall out of range.
    """
    evaluators = [
        METRIC_SETS[name].build(eval_config, categories, annotations)
        for name in metrics_sets(eval_config)
    ]
    return evaluators + [
        KeypointEvaluator(
            categories,
            metric.class_label,
            # The numbers that a config says, such as 0.026, rather than those nearest in 32 bits.
            {key: float(f'{v:.7g}') for key, v in metric.keypoint_label_to_sigmas.items()},
            annotations=annotations,
            max_detections=eval_config.max_detections,
        )
        for metric in keypoint_metrics(eval_config)
    ]


def _coco(iou_type, eval_config, categories, annotations) -> CocoEvaluator:
    super_categories = {
        name: [member.strip() for member in members.split(',')]
        for name, members in sorted(eval_config.super_categories.items())
    }
    return CocoEvaluator(
        categories,
        iou_type=iou_type,
        per_category=eval_config.include_metrics_per_category,
        all_per_category=eval_config.all_metrics_per_category,
        super_categories=super_categories,
        only_labeled=iou_type == 'bbox' and eval_config.skip_predictions_for_unlabeled_class,
        annotations=annotations,
        paste_method=_paste_method(eval_config),
        max_detections=eval_config.max_detections,
    )


def _masks(evaluator, eval_config, categories, annotations) -> LvisEvaluator | PanopticEvaluator:
    return evaluator(
        categories,
        per_category=eval_config.include_metrics_per_category,
        annotations=annotations,
        paste_method=_paste_method(eval_config),
        max_detections=eval_config.max_detections if evaluator is LvisEvaluator else 0,
    )


def _pascal(options, eval_config, categories, annotations) -> PascalEvaluator:
    return PascalEvaluator(
        categories,
        _pascal_options(options, eval_config),
        annotations=annotations,
        paste_method=_paste_method(eval_config),
    )


def _pascal_options(
    options: pascal_options.PascalOptions, eval_config: eval_pb2.EvalConfig
) -> pascal_options.PascalOptions:
    """Returns the options with those that a config sets."""
    if options is not pascal_options.PRECISION_AT_RECALL:
        return options
    return dataclasses.replace(
        options,
        recall_bounds=(eval_config.recall_lower_bound, eval_config.recall_upper_bound),
        only_labeled=eval_config.skip_predictions_for_unlabeled_class,
    )


def _paste_method(eval_config: eval_pb2.EvalConfig) -> PasteMethod:
    return PasteMethod[eval_config.MaskPasteMethod.Name(eval_config.mask_paste_method)]


Build = Callable[
    [eval_pb2.EvalConfig, Sequence[Mapping[str, Any]], CocoAnnotations | None], Evaluator
]


@dataclasses.dataclass(frozen=True)
class MetricSet:
    """A row of `METRIC_SETS`: metrics that one evaluator computes.

    Attributes:
      build: (eval_config, categories, annotations) -> the evaluator.
      metric: name of its main metric, or a function from the config to it; the best checkpoint is
        chosen by it unless the config names another one.
      needs_masks: whether it compares masks.
      stores: whether its evaluator stores detections, which `export_path` writes.
      limit: number of the best detections that its published metrics count; None counts all.
      only_labeled: whether it needs the labels of whole images.
      skips_unlabeled: whether it reads `skip_predictions_for_unlabeled_class`.
    """

    build: Build
    metric: str | Callable[[eval_pb2.EvalConfig], str]
    needs_masks: bool = False
    stores: bool = False
    limit: int | None = None
    only_labeled: bool = False
    skips_unlabeled: bool = False

    def main_metric(self, eval_config: eval_pb2.EvalConfig) -> str:
        """Returns the name of the main metric, with the limit where that is in its name."""
        metric = self.metric if isinstance(self.metric, str) else self.metric(eval_config)
        if not (eval_config.max_detections and self.limit):
            return metric
        return limits.named(metric, eval_config.max_detections, self.limit)


def _pascal_set(options: pascal_options.PascalOptions) -> MetricSet:
    return MetricSet(
        partial(_pascal, options),
        lambda config: _pascal_options(options, config).mean_name,
        needs_masks=options.masks,
        only_labeled=options.only_labeled,
        skips_unlabeled=options is pascal_options.PRECISION_AT_RECALL,
    )


# The keys are the names in `metrics_set`.
METRIC_SETS = Registry(
    'metric set',
    {
        'coco_detection_metrics': MetricSet(
            partial(_coco, 'bbox'),
            'DetectionBoxes_Precision/mAP',
            stores=True,
            limit=limits.BOXES_AND_MASKS,
            skips_unlabeled=True,
        ),
        'coco_mask_metrics': MetricSet(
            partial(_coco, 'segm'),
            'DetectionMasks_Precision/mAP',
            needs_masks=True,
            stores=True,
            limit=limits.BOXES_AND_MASKS,
        ),
        'coco_panoptic_metrics': MetricSet(
            partial(_masks, PanopticEvaluator),
            'PanopticQuality@0.50IOU',
            needs_masks=True,
            stores=True,
        ),
        'lvis_mask_metrics': MetricSet(
            partial(_masks, LvisEvaluator),
            'DetectionMasks_AP',
            needs_masks=True,
            stores=True,
            limit=limits.LVIS,
            only_labeled=True,
        ),
        **{name: _pascal_set(options) for name, options in pascal_options.METRIC_SETS.items()},
    },
    MetricSet,
)


def find_sets(eval_config: eval_pb2.EvalConfig) -> dict[str, MetricSet]:
    """Returns name -> row of the sets of a config that are known, with their present names."""
    return {name: METRIC_SETS[name] for name in _present_names(eval_config) if name in METRIC_SETS}


def _present_names(eval_config: eval_pb2.EvalConfig) -> list[str]:
    """Returns the names of `metrics_set`, each once, with earlier names replaced."""
    names = eval_config.metrics_set or DEFAULT_METRICS_SET
    return list(dict.fromkeys(pascal_options.ALIASES.get(name, name) for name in names))


def evaluator_names(eval_config: eval_pb2.EvalConfig) -> list[str]:
    """Returns a name for each of the evaluators of `build`, in their order.

    Names of metrics of keypoints have the class after a hyphen.
    """
    keypoints = [
        f'{KEYPOINT_METRICS}-{metric.class_label}' for metric in keypoint_metrics(eval_config)
    ]
    return metrics_sets(eval_config) + keypoints


def metrics_sets(eval_config: eval_pb2.EvalConfig) -> list[str]:
    """Returns the names of the metrics sets, each once, in their order.

    Raises:
      ValueError: for a metrics set that is not supported, or two with metrics of the same names.
    """
    path = eval_config.DESCRIPTOR.full_name
    names = _present_names(eval_config)
    unknown = [name for name in names if name not in METRIC_SETS]
    if unknown:
        hint = ''
        if KEYPOINT_METRICS in unknown:
            hint = f' {KEYPOINT_METRICS} needs a class: write parameterized_metric.'
        elif nearest := difflib.get_close_matches(unknown[0], METRIC_SETS, n=1):
            hint = f' Did you mean {nearest[0]}?'
        raise UserError(
            f'{path}.metrics_set: expected some of {", ".join(METRIC_SETS)}. '
            f'Received: {", ".join(unknown)}.{hint}'
        )
    if eval_config.include_metrics_per_category and set(names) >= _SAME_NAMES:
        raise UserError(
            f'{path}.metrics_set: {" and ".join(sorted(_SAME_NAMES))} give their metrics by '
            'category the same names. Expected one of them, or include_metrics_per_category: false.'
        )
    return names


def keypoint_metrics(eval_config: eval_pb2.EvalConfig) -> list[eval_pb2.CocoKeypointMetrics]:
    """Returns the messages of the metrics of keypoints, one for each class.

    Raises:
      ValueError: if an entry of `parameterized_metric` is empty, or two name the same class.
    """
    path = f'{eval_config.DESCRIPTOR.full_name}.parameterized_metric'
    metrics = []
    for metric in eval_config.parameterized_metric:
        if not metric.HasField(KEYPOINT_METRICS):
            raise UserError(f'{path}: expected {KEYPOINT_METRICS} in each entry. Received: none.')
        metrics.append(metric.coco_keypoint_metrics)
    labels = [metric.class_label for metric in metrics]
    if len(set(labels)) < len(labels):
        raise expected(path, f'one {KEYPOINT_METRICS} for each class', labels)
    return metrics


def read_annotations(
    path: str, label_map_path: str, *, is_complete: bool = True
) -> CocoAnnotations:
    """Reads the ground truth of a COCO annotation file for the classes of a label map.

    Args:
      path: path of the annotation file.
      label_map_path: path of the label map.
      is_complete: see `CocoAnnotations`.

    Raises:
      OSError: if there is no such file.
      ValueError: if it is no COCO annotation file, or a class has no category in it.
    """
    try:
        document = json.loads(files.read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise UserError(f'{path}: expected a JSON file. Received: {error}.') from error
    classes = defaultdict(list)
    for text, label in label_map.load(label_map_path).text_to_id.items():
        if label > 0:  # 0 is the background
            classes[label].append(text)
    return CocoAnnotations(document, path, classes, is_complete=is_complete)


def categories(
    reader: input_reader_pb2.InputReader, model: model_pb2.DetectionModel
) -> list[dict[str, Any]]:
    """Returns the classes of a reader's ground truth: {'id': 1-based, 'name': ...}.

    Synthetic data without a label map have the classes of the model, named by their numbers.

    Raises:
      ValueError: if the label map cannot be read.
    """
    if reader.label_map_path or not reader.HasField('synthetic_input_reader'):
        return label_map.load(reader.label_map_path).categories
    num_classes = families.num_classes(model)
    return [{'id': label, 'name': f'class {label}'} for label in range(1, num_classes + 1)]


def keypoint_edges(config: eval_pb2.EvalConfig, label_map_path: str) -> tuple[tuple[int, int], ...]:
    """Returns the lines between keypoints in pictures, as pairs of their positions.

    They are `eval_config.keypoint_edge`, or those of the label map.

    Raises:
      ValueError: if the label map cannot be read.
    """
    if config.keypoint_edge or not label_map_path:
        return tuple((edge.start, edge.end) for edge in config.keypoint_edge)
    return label_map.keypoint_edges(label_map.load(label_map_path))


def metric_names(pipeline_config: TrainEvalPipelineConfig, reader_index: int) -> list[str]:
    """Returns the names of the metrics and losses that the evaluation of a reader computes."""
    reader = pipeline_config.eval_input_reader[reader_index]
    evaluators = build(pipeline_config.eval_config, categories(reader, pipeline_config.model))
    names = [name for evaluator in evaluators for name in evaluator.evaluate()]
    if has_losses(pipeline_config, reader_index):
        model = pipeline_config.model
        names += families.find(model).loss_names(families.options(model))
        names += _COMMON_LOSSES
    return names


def has_losses(pipeline_config: TrainEvalPipelineConfig, reader_index: int) -> bool:
    """Returns whether a reader loads all that the losses need, such as masks for a mask head."""
    reader = pipeline_config.eval_input_reader[reader_index]
    needs = families.needs(pipeline_config.model)
    if needs.masks and not reader.load_instance_masks:
        return False
    if needs.keypoints and not reader.num_keypoints:
        return False
    return all(getattr(reader, flag) for flag in needs.reader_flags)
