"""Compares detection transformers with recorded ones of transformers, for check_recorded.py.

The model is what `tfod config from_transformers` makes of the recorded config, with the weights of
a file. Queries that were selected with equal scores have no order: those of an image are paired by
their boxes first. Compared are all recorded outputs, the 100 best detections, each loss, and the
norm of the gradient of each weight.
"""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from recordings import DETECTION_TOLERANCE, TENSOR_TOLERANCE, Recorded, Results, nearest

from object_detection.config import show
from object_detection.meta_architectures.detr import loss_names, transformers_config
from object_detection.protos import pipeline_pb2

PREFIX = 'transformers_'
# Of the largest norm of a gradient, below which is rounding.
ROUNDING = 1e-8


class Limits(NamedTuple):
    """Tolerances of a training.

    Attributes:
      loss, gradient: of the size of a loss, and of the norm of the gradient of a weight.
      gradients: those of some weights.
    """

    loss: float = 2e-4
    gradient: float = 1e-3
    gradients: Mapping[str, float] = {}


# With the weights of the recipe, many queries of DETR and of RF-DETR are nearly the same, so that
# rounding decides which are matched. transformers itself, run again in float32 and in float64,
# gives there losses that differ from the recorded ones by up to 0.37 %, and gradients by up to
# 0.62 %; of the positions of DETR's queries 8.954e-4, where 9.565e-4 is recorded.
_TIED = Limits(4e-3, 7e-3, {'model.query_position_embeddings.weight': 0.07})
_OF_TIED = (transformers_config.DETR, transformers_config.RF_DETR)
_KINDS = {
    'loss_vfl': loss_names.CLASS,
    'loss_ce': loss_names.CLASS,
    'loss_bbox': loss_names.L1,
    'loss_giou': loss_names.GIOU,
    'loss_fgl': loss_names.FINE_GRAINED,
    'loss_ddf': loss_names.DISTILLATION,
}
# What is no loss.
_COUNTS = 'cardinality_error'


def pipeline_of(recorded: Recorded) -> tuple[pipeline_pb2.TrainEvalPipelineConfig, str]:
    """Returns the config of a recorded detector, for its images, and the kind of its model.

    Those of DETR were recorded of images that were divided by 255 alone, with gradients of the
    whole backbone.
    """
    found = transformers_config.translate(recorded.about['full_config'])
    pipeline = pipeline_pb2.TrainEvalPipelineConfig()
    pipeline.model.detr.CopyFrom(found.detr)
    if found.kind == transformers_config.DETR:
        preprocess = pipeline.model.detr.feature_extractor.preprocess
        preprocess.mean[:], preprocess.std[:] = (), ()
        pipeline.model.detr.feature_extractor.ClearField('frozen_stages')
    height, width = recorded.about['tensors']['images']['shape'][1:3]
    resizer = pipeline.model.detr.image_resizer.fixed_shape_resizer
    resizer.height, resizer.width = height, width
    return pipeline, found.kind


def check(recorded: Recorded, weights: pathlib.Path, config: pathlib.Path) -> Results:
    """Compares one detector, of which `weights` are those; `config` is written."""
    import tensorflow as tf

    import object_detection

    pipeline, kind = pipeline_of(recorded)
    show.write_pipeline(pipeline, str(config))
    runtime = object_detection.load(weights, config=config)
    model, results = runtime.model, Results()
    pictures = recorded.pictures()
    images, shapes = model.preprocess(tf.constant(pictures))
    found = model.predict(images, shapes, training=False)
    _compare_outputs(results, recorded, _outputs(found, kind))
    detections = runtime(pictures)
    if kind == transformers_config.DETR:
        detections = _by_sigmoid(found.layers[-1])
    _compare_detections(results, recorded, detections)
    config = pipeline.model.detr
    limits = _TIED if kind in _OF_TIED else Limits()
    _compare_training(results, recorded, model, (images, shapes), config, weights, limits)
    return results


def _outputs(found: Any, kind: str) -> dict[str, np.ndarray]:
    """Returns our arrays by the names of the recorded ones, queries in our order."""
    last, maps = found.layers[-1], found.maps
    arrays = {'logits': last.class_logits, 'pred_boxes': last.boxes}
    if kind == transformers_config.DETR:
        cells = np.asarray(maps[0])
        arrays['encoder_last_hidden_state'] = cells.reshape(len(cells), -1, cells.shape[-1])
        return _named(arrays)
    selection = found.selection
    if kind == transformers_config.RF_DETR:
        arrays |= {
            'enc_outputs_class': selection.class_logits,
            'enc_outputs_coord_logits': selection.boxes,
            'init_reference_points': found.first_boxes,
            'intermediate_reference_points': np.asarray(found.first_boxes)[np.newaxis],
        }
        return _named(arrays)
    boxes = np.asarray(selection.boxes, np.float64)
    layers = found.layers if found.first is None else found.layers[-1:]
    arrays |= {
        'intermediate_logits': np.stack([layer.class_logits for layer in layers], axis=1),
        'intermediate_reference_points': np.stack([layer.boxes for layer in layers], axis=1),
        'enc_topk_logits': selection.class_logits,
        'enc_topk_bboxes': boxes,
        'enc_outputs_class': selection.cell_logits,
        'enc_outputs_coord_logits': selection.cell_boxes,
        'init_reference_points': np.log(boxes / (1 - boxes)),
    }
    if found.first is not None:
        corners = np.asarray(last.distributions)
        arrays['initial_reference_points'] = np.asarray(found.first.boxes)[:, np.newaxis]
        arrays['intermediate_predicted_corners'] = corners.reshape(*boxes.shape[:2], -1)[
            :, np.newaxis
        ]
    for level, cells in enumerate(maps):
        arrays[f'encoder_last_hidden_state.{level}'] = np.moveaxis(np.asarray(cells), -1, 1)
    return _named(arrays)


def _named(arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {f'outputs/{name}': np.asarray(values) for name, values in arrays.items()}


def _compare_outputs(
    results: Results, recorded: Recorded, arrays: Mapping[str, np.ndarray]
) -> None:
    """Compares all recorded outputs; one that we do not have fails."""
    order = _order(recorded, arrays)
    for name in recorded.about['tensors']:
        if not name.startswith('outputs/'):
            continue
        if name not in arrays:
            results.worst[name] = float('inf')
            continue
        ours = arrays[name]
        if order is not None and order.shape[1] in ours.shape[1:-1]:
            axis = ours.shape.index(order.shape[1], 1)
            # [1, B, Q, 4] and [B, L, Q, C] alike.
            batch_axis = ours.shape.index(len(order))
            ours = np.stack(
                [
                    each.take(rows, axis=axis - 1)
                    for each, rows in zip(np.moveaxis(ours, batch_axis, 0), order, strict=True)
                ],
                axis=batch_axis,
            )
        theirs, ours = recorded.pair(name, ours)
        is_number = np.abs(theirs) < 1e30
        results.add(
            name, theirs[is_number], ours[is_number], np.std(theirs[is_number]), TENSOR_TOLERANCE
        )


def _order(recorded: Recorded, arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Returns the number here of each recorded query, [B, Q], by the boxes that were selected."""
    for name in ('outputs/enc_topk_bboxes', 'outputs/init_reference_points'):
        if name in recorded:
            pairs = zip(recorded.whole(name), arrays[name], strict=True)
            return np.stack([nearest(theirs, ours)[0] for theirs, ours in pairs])
    return None


def _by_sigmoid(layer: Any) -> dict[str, np.ndarray]:
    """Returns the pairs of a query and a class as they were recorded: without softmax."""
    from object_detection.meta_architectures.detr import boxes

    logits, corners = np.asarray(layer.class_logits), np.asarray(boxes.to_corners(layer.boxes))
    count = logits.shape[-1]
    return {
        'detection_boxes': np.clip(np.repeat(corners, count, axis=1), 0, 1),
        'detection_classes': np.tile(np.arange(1, count + 1), (len(logits), logits.shape[1])),
        'detection_scores': 1 / (1 + np.exp(-logits.reshape(len(logits), -1))),
    }


def _compare_detections(
    results: Results, recorded: Recorded, outputs: Mapping[str, np.ndarray]
) -> None:
    """Finds each of the 100 best recorded detections, by class, box and score, among ours."""
    ours = {name: np.asarray(values) for name, values in outputs.items()}
    boxes = recorded.whole('detections/boxes_cxcywh').astype(np.float64)
    centers, halves = boxes[..., :2], boxes[..., 2:] / 2
    # Those here end with the image.
    corners = np.clip(np.concatenate([centers - halves, centers + halves], axis=-1), 0, 1)
    labels, scores = (recorded.whole(f'detections/{each}') for each in ('labels', 'scores'))
    for image in range(len(boxes)):
        theirs = [corners[image], labels[image][:, np.newaxis], scores[image][:, np.newaxis]]
        found = [
            ours['detection_boxes'][image][:, [1, 0, 3, 2]],
            ours['detection_classes'][image][:, np.newaxis] - 1,
            ours['detection_scores'][image][:, np.newaxis],
        ]
        rows, distances = nearest(np.concatenate(theirs, axis=1), np.concatenate(found, axis=1))
        is_paired = len(set(rows.tolist())) == len(rows)
        worst = distances.max() / DETECTION_TOLERANCE if is_paired else float('inf')
        results.worst[f'detections.{image}'] = float(worst)


def _compare_training(
    results: Results,
    recorded: Recorded,
    model: Any,
    images: Any,
    config: Any,
    weights: pathlib.Path,
    limits: Limits,
) -> None:
    """Compares losses and the norms of gradients of a step without noise, with frozen norms."""
    import tensorflow as tf

    from object_detection.weights import sources

    variables, groundtruth = model.named_variables(), _groundtruth(recorded, model.num_classes)

    @tf.function
    def losses_and_gradients(images: tf.Tensor, shapes: tf.Tensor) -> tuple:
        with tf.GradientTape() as tape:
            tape.watch(list(variables.values()))
            found = model.predict(images, shapes, training=True, groundtruth=groundtruth)
            losses = model.loss(found, groundtruth)
            total = tf.add_n(list(losses.values()))
        gradients = tape.gradient(total, list(variables.values()), unconnected_gradients='zero')
        return losses, total, [tf.norm(tf.convert_to_tensor(each)) for each in gradients]

    losses, total, norms = losses_and_gradients(*images)
    _compare_losses(results, recorded, {k: float(v) for k, v in losses.items()}, config, limits)
    theirs = np.array(recorded.about['loss'])
    results.add('loss', theirs, np.array(float(total)), abs(theirs), limits.loss)
    with sources.open_source(str(weights)) as source:
        keys = {name: entry.keys[0] for name, entry in source.entries(model).items()}
    pairs = zip(variables, norms, strict=True)
    found = {keys[name]: float(norm) for name, norm in pairs if name in keys}
    for one, other in recorded.about['tied']:
        found |= {a: found[b] for a, b in ((one, other), (other, one)) if b in found}
    _compare_gradients(results, recorded, found, limits)


def _groundtruth(recorded: Recorded, num_classes: int) -> Any:
    from object_detection.core.groundtruth import Groundtruth

    boxes, classes = [], []
    for image in recorded.images('gt/labels'):
        x, y, width, height = recorded.whole(f'gt/boxes_cxcywh.{image}').T
        sides = [y - height / 2, x - width / 2, y + height / 2, x + width / 2]
        boxes.append(np.stack(sides, axis=-1).astype(np.float32))
        classes.append(np.eye(num_classes, dtype=np.float32)[recorded.whole(f'gt/labels.{image}')])
    return Groundtruth.from_lists(boxes, classes)


def _compare_losses(
    results: Results, recorded: Recorded, ours: Mapping[str, float], config: Any, limits: Limits
) -> None:
    """Compares each loss by its size; those of RF-DETR and DETR are recorded without weights."""
    left = dict(ours)
    weights = {
        loss_names.CLASS: config.loss.class_weight,
        loss_names.L1: config.loss.l1_weight,
        loss_names.GIOU: config.loss.giou_weight,
    }
    is_weighted = 'loss_vfl' in recorded.about['loss_dict']
    for name, theirs in recorded.about['loss_dict'].items():
        if name.startswith(_COUNTS):
            continue
        there = next(each for each in _KINDS if name == each or name.startswith(f'{each}_'))
        kind, rest = _KINDS[there], name.removeprefix(there).removeprefix('_aux').removeprefix('_')
        suffix = ''
        if rest == 'enc' or rest == str(config.decoder.num_layers - 1):
            suffix = loss_names.SELECTION
        elif rest:
            suffix = loss_names.auxiliary(int(rest))
        found = left.pop(loss_names.full_name(kind, suffix), float('nan'))
        theirs *= 1.0 if is_weighted else weights[kind]
        results.add(f'losses/{name}', np.array(theirs), np.array(found), theirs, limits.loss)
    for name, value in left.items():
        results.worst[f'losses/{name} of ours alone'] = 0.0 if value == 0 else float('inf')


def _compare_gradients(
    results: Results, recorded: Recorded, ours: Mapping[str, float], limits: Limits
) -> None:
    """Compares norms by their sizes; what is zero but for rounding, by the largest one.

    Args:
      results: get the differences.
      recorded: the recorded arrays.
      ours: norms by the names there.
      limits: tolerances.
    """
    norms = recorded.about['gradient_norms']
    rounding = ROUNDING * max(norms.values())
    for key, theirs in norms.items():
        limit = limits.gradients.get(key, limits.gradient) * theirs + rounding
        results.worst[f'gradients/{key}'] = abs(ours.get(key, float('nan')) - theirs) / limit
