"""Compares detectors with recorded ones of other systems, stage by stage.

    python benchmarks/peers/check_recorded.py --root FOLDER [--only NAME ...] [--json FILE]

For each NAME.json and NAME.npz of the folder, as torchvision_record.py writes them, it writes the
weights of the recipe as a file of safetensors and loads that with the sample config NAME.config,
which gets the sizes and thresholds of the recording. What is compared: tensors by the spread of
the recorded one (its standard deviation), boxes and scores of proposals and detections by matching
each recorded one with the nearest of ours. It prints a line a detector, and ends with status 1 if
one is not within the tolerance. Heads are compared on the recorded proposals; detections as well
where proposals were left out since their scores are equal.
"""

import argparse
import importlib.util
import json
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import transformers_recorded
from recordings import (
    DETECTION_TOLERANCE,
    TENSOR_TOLERANCE,
    Recorded,
    Results,
    compare_rows,
    tied_at_the_cut,
    without_ties,
    write_weights,
)

from object_detection.config import show
from object_detection.config.reader import read_pipeline
from object_detection.protos import pipeline_pb2

_SAMPLES = pathlib.Path(__file__).resolve().parents[2] / 'object_detection/samples/configs'
# Of the recorded proposals of an image, those that masks and keypoints are recorded of.
_MASKS = 16
# Of the detectors that are recorded as torchvision builds them, with its sizes and thresholds.
_AS_BUILT = ('_320_fpn',)
# What a single-shot detector predicts besides, here and there.
_FURTHER = {'centerness': 'bbox_ctrness'}


def recorded_pipeline(name: str) -> pipeline_pb2.TrainEvalPipelineConfig:
    """Returns the model of a sample config with the sizes and thresholds of the recordings."""
    sample = read_pipeline(str(_SAMPLES / f'{name}.config'))
    pipeline = pipeline_pb2.TrainEvalPipelineConfig(model=sample.model)
    if name.endswith(_AS_BUILT):
        return pipeline
    if '_ssd' in name:
        pipeline.model.ssd.post_processing.batch_non_max_suppression.score_threshold = 0.02
        return pipeline
    model = getattr(pipeline.model, pipeline.model.WhichOneof('model'))
    resizer = model.image_resizer.keep_aspect_ratio_resizer
    resizer.ClearField('min_dimension_range')
    resizer.min_dimension, resizer.max_dimension = 224, 320
    if not pipeline.model.HasField('faster_rcnn'):
        _limit_single_shot(model)
        return pipeline
    model.first_stage_pre_nms_topk_per_level_eval = 400
    model.first_stage_max_proposals_eval = 200
    nms = model.second_stage_post_processing.batch_non_max_suppression
    nms.score_threshold = 0.3 if 'keypoint' in name else 0.011
    nms.max_detections_per_class = nms.max_total_detections = 60
    return pipeline


def _limit_single_shot(model: Any) -> None:
    """Gives a single-shot detector the limits of the recordings."""
    nms = model.post_processing.batch_non_max_suppression
    if model.pre_nms_topk_per_level:
        model.pre_nms_topk_per_level = 300
        nms.score_threshold = 0.3
        nms.max_detections_per_class = nms.max_total_detections = 60
    else:
        nms.score_threshold = 0.02


def _channels_first(maps: Any) -> np.ndarray:
    return np.moveaxis(np.asarray(maps), -1, 1)


def _codes(codes: Any) -> np.ndarray:
    """(y, x, h, w) -> (x, y, w, h), of codes or, alike, of boxes: [..., 4]."""
    return np.asarray(codes)[..., [1, 0, 3, 2]]


def stages_of(model: Any, recorded: Recorded, images: Any, found: Any) -> dict[str, np.ndarray]:
    """Returns our arrays in the layout of the recorded ones, and by their names.

    Args:
      model: our detector.
      recorded: the recorded arrays.
      images: preprocessed images.
      found: the predictions for them.
    """
    import tensorflow as tf

    if '_ssd' in recorded.about['model']:
        return _stages_of_ssd(model, images, found)
    height, width = model.feature_extractor.padded_size(*images.shape[1:3])
    pads = [(0, 0), (0, height - images.shape[1]), (0, width - images.shape[2]), (0, 0)]
    arrays = {'preprocess/images': _channels_first(np.pad(images, pads))}
    if not hasattr(model, 'box_stages'):
        return arrays | _single_shot(recorded, found)
    names = [f'features/{level}' for level in range(len(found.features) - 1)] + ['features/pool']
    arrays |= dict(zip(names, map(_channels_first, found.features), strict=True))
    anchors, start = found.anchors, 0
    for level, maps in enumerate(found.features):
        (batch, rows, columns), end = maps.shape[:3], start + int(anchors.level_sizes[level])
        grid = (batch, rows, columns, -1)
        logits = anchors.objectness_logits[:, start:end]
        arrays[f'rpn/objectness.{level}'] = _channels_first(tf.reshape(logits, grid))
        codes = _codes(anchors.box_codes[:, start:end])
        arrays[f'rpn/box_codes.{level}'] = _channels_first(codes.reshape(grid))
        start = end
    arrays['rpn/anchors'] = _codes(anchors.boxes)
    for image, (boxes, count) in enumerate(
        zip(found.proposals.boxes, found.proposals.count, strict=True)
    ):
        arrays[f'proposals.{image}'] = _codes(boxes)[: int(count)]
    return arrays | _heads(model, recorded, found, (height, width))


def _stages_of_ssd(model: Any, images: Any, found: Any) -> dict[str, np.ndarray]:
    """Returns the arrays of an SSD, whose second box of a cell is the last one here."""
    counts = model.anchor_generator.num_anchors_per_location()
    order, start = [], 0
    for maps, count in zip(found.features, counts, strict=True):
        cells = maps.shape[1] * maps.shape[2]
        of_cell = np.array([0, count - 1, *range(1, count - 1)])
        rows = start + count * np.arange(cells)[:, np.newaxis] + of_cell
        order.append(rows.ravel())
        start += cells * count
    rows = np.concatenate(order)
    height, width = images.shape[1:3]
    arrays = {'preprocess/images': _channels_first(images)}
    arrays |= {f'features/{i}': _channels_first(maps) for i, maps in enumerate(found.features)}
    arrays['anchors'] = _codes(np.asarray(found.anchors)[rows] * ([height, width] * 2))
    arrays['head/bbox_regression'] = _codes(np.asarray(found.box_codes)[:, rows])
    arrays['head/cls_logits'] = np.asarray(found.class_outputs)[:, rows]
    return arrays


def _single_shot(recorded: Recorded, found: Any) -> dict[str, np.ndarray]:
    """Returns the arrays of a single-shot detector: maps, heads and anchors.

    Args:
      recorded: the recorded arrays; those of `features` are named by their levels, in order.
      found: the predictions, whose anchors are relative to the images.
    """
    names = [name for name in recorded.about['tensors'] if name.startswith('features/')]
    arrays = dict(zip(names, map(_channels_first, found.features), strict=True))
    height, width = found.images.shape[1:3]
    arrays['anchors'] = _codes(found.anchors * np.array([height, width] * 2, np.float32))
    arrays['head/cls_logits'] = _columns(recorded, found.class_logits)
    arrays['head/bbox_regression'] = _codes(found.box_codes)
    for name, values in found.further.items():
        arrays[f'head/{_FURTHER[name]}'] = np.asarray(values)
    return {name: values for name, values in arrays.items() if name in recorded}


def _columns(recorded: Recorded, logits: Any) -> np.ndarray:
    """Puts NaN for the column of background of the recorded logits if we have none."""
    logits = np.asarray(logits)
    missing = recorded.about['tensors']['head/cls_logits']['shape'][-1] - logits.shape[-1]
    return np.pad(logits, [(0, 0), (0, 0), (missing, 0)], constant_values=np.nan)


def _heads(
    model: Any, recorded: Recorded, found: Any, frame: tuple[int, int]
) -> dict[str, np.ndarray]:
    """Returns what the heads say about the recorded proposals."""
    kinds = recorded.images('box/proposals')
    boxes = np.stack([_codes(recorded.whole(f'box/proposals.{image}')) for image in kinds])
    regions = model.classify_regions(
        model.box_stages[0], found.features, boxes, frame, training=False
    )
    count = boxes.shape[0] * boxes.shape[1]
    codes = _codes(regions.box_codes)
    # Background has no codes here.
    codes = np.concatenate([np.full_like(codes[:, :1], np.nan), codes], axis=1)
    arrays = {
        'box/crops': _channels_first(regions.crops),
        'box/features': np.asarray(regions.features).reshape(count, -1),
        'box/class_logits': np.asarray(regions.class_logits),
        'box/box_codes': codes.reshape(count, -1),
    }
    boxes = boxes[:, :_MASKS]
    if model.mask_stage is not None:
        crops = model.crop_for_masks(found.features, boxes, frame, training=False)
        logits = np.asarray(model.mask_stage.head(crops))
        background = np.full_like(logits[:, :1], np.nan)
        arrays['mask/logits'] = np.concatenate([background, logits], axis=1)
    if model.keypoint_stage is not None:
        arrays['keypoint/logits'] = np.asarray(
            model.keypoint_stage.heat_maps(found.features, boxes)
        )
    return arrays


def check(name: str, folder: pathlib.Path, recipe: Any) -> Results:
    """Compares one detector.

    Raises:
      ValueError: if its images are not known.
    """
    import tensorflow as tf

    import object_detection

    recorded, results = Recorded(folder, name), Results()
    pictures = recorded.pictures()
    with tempfile.TemporaryDirectory() as scratch:
        weights, config = (pathlib.Path(scratch) / each for each in ('a.safetensors', 'a.config'))
        write_weights(weights, recorded, recipe)
        if name.startswith(transformers_recorded.PREFIX):
            return transformers_recorded.check(recorded, weights, config)
        show.write_pipeline(recorded_pipeline(name), str(config))
        runtime = object_detection.load(weights, config=config)
    model = runtime.model
    images, shapes = model.preprocess(tf.constant(pictures))
    found = model.predict(images, shapes, training=False)
    for stage, ours in stages_of(model, recorded, images, found).items():
        if stage.startswith('proposals.'):
            compare_proposals(results, recorded, stage, ours, model, found)
        else:
            theirs, ours = recorded.pair(stage, ours)
            results.add(stage, theirs, ours, np.std(theirs), TENSOR_TOLERANCE)
    outputs = runtime(pictures)
    if results.left_out:
        outputs = detections_of_recorded_proposals(model, recorded, shapes, found)
    outputs = {key: np.asarray(value) for key, value in outputs.items()}
    for image in range(len(pictures)):
        of_image = {key: value[image] for key, value in outputs.items()}
        compare_detections(results, recorded, image, of_image, pictures.shape[1:3])
    return results


def compare_proposals(
    results: Results, recorded: Recorded, stage: str, ours: np.ndarray, model: Any, found: Any
) -> None:
    """Compares the proposals of an image but those of equal scores of which any may be the last.

    Args:
      results: get the difference.
      recorded: the recorded arrays; those of before had no scores, and nothing is left out.
      stage: 'proposals.' and the number of the image.
      ours: our proposals in the layout of the recorded ones.
      model: our detector.
      found: its predictions.
    """
    image, theirs = int(stage.rpartition('.')[2]), recorded.whole(stage)
    tolerance, limit = np.std(theirs) * TENSOR_TOLERANCE, model.rpn.params.eval_limits.max_proposals
    name = f'proposals/scores.{image}'
    if name in recorded and len(theirs) == len(ours) == limit:
        logits = [key for key in recorded.about['tensors'] if key.startswith('rpn/objectness.')]
        spread = min(np.std(recorded.whole(key)) for key in logits)
        scores = recorded.whole(name), np.asarray(found.proposals.scores[image])
        lost, added = tied_at_the_cut(theirs, ours, scores, tolerance, spread * TENSOR_TOLERANCE)
        results.proposals += len(theirs)
        results.left_out += int(lost.sum())
        theirs, ours = theirs[~lost], ours[~added]
    compare_rows(results, stage, theirs, ours, tolerance)


def detections_of_recorded_proposals(
    model: Any, recorded: Recorded, shapes: Any, found: Any
) -> Mapping[str, Any]:
    """Returns what the detector finds in the recorded proposals in place of its own.

    Args:
      model: a detector of one box stage.
      recorded: the recorded arrays, with as many proposals in each image.
      shapes: shapes of the images before padding, int32 [B, 3].
      found: its predictions.
    """
    import tensorflow as tf

    from object_detection.meta_architectures.faster_rcnn.predictions import BoxPredictions
    from object_detection.runtime.in_process import as_served

    images = recorded.images('proposals')
    boxes = np.stack([_codes(recorded.whole(f'proposals.{image}')) for image in images])
    count = tf.fill([len(images)], boxes.shape[1])
    proposals = found.proposals._replace(boxes=tf.constant(boxes), count=count)
    frame = model.feature_extractor.padded_size(*found.image_shape[1:3])
    (stage,) = model.box_stages
    regions = model.classify_regions(stage, found.features, proposals.boxes, frame, training=False)
    found = found._replace(proposals=proposals, box_stages=[BoxPredictions(proposals, regions)])
    return as_served(model.postprocess(found, shapes))


def compare_detections(
    results: Results,
    recorded: Recorded,
    image: int,
    ours: Mapping[str, np.ndarray],
    size: Sequence[int],
) -> None:
    """Compares the detections of an image, matched by box, class and score."""
    from object_detection.metrics.mask_pasting import PasteMethod, mask_window

    kind, (height, width) = f'detections/{{}}.{image}', size
    boxes, labels, scores = (
        recorded.whole(kind.format(each)) for each in ('boxes', 'labels', 'scores')
    )
    count = int(ours['num_detections'])
    absolute = _codes(ours['detection_boxes'][:count] * np.array([height, width] * 2))

    def rows(boxes: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
        # Boxes by the larger side of the image; other classes are never near.
        columns = [boxes / max(size), labels[:, np.newaxis], scores[:, np.newaxis]]
        return np.concatenate(columns, axis=1)

    theirs = rows(boxes, labels, scores)
    mine = rows(absolute, ours['detection_classes'][:count], ours['detection_scores'][:count])
    if kind.format('masks') not in recorded and len(mine) == len(theirs):
        theirs, mine = without_ties(theirs, mine), without_ties(mine, theirs)
    pairs = compare_rows(results, f'detections.{image}', theirs, mine, DETECTION_TOLERANCE)
    if pairs is None:
        return
    masks = kind.format('masks')
    if masks in recorded:
        pasted = np.zeros((len(boxes), 1, height, width), np.float32)
        # In the recorded boxes, as edges are rounded to whole pixels.
        for canvas, box, mask in zip(pasted, boxes, ours['detection_masks'][pairs], strict=True):
            window, y, x = mask_window(mask, _codes(box), height, width, PasteMethod.RESIZE)
            canvas[0, y : y + window.shape[0], x : x + window.shape[1]] = window
        results.add(masks, *recorded.pair(masks, pasted), 1.0, DETECTION_TOLERANCE)
    points = kind.format('keypoints')
    if points in recorded:
        found = ours['detection_keypoints'][pairs] * np.array([height, width])
        found = np.concatenate([found[..., ::-1], np.ones_like(found[..., :1])], axis=-1)
        results.add(points, *recorded.pair(points, found), max(size), DETECTION_TOLERANCE)
        points = kind.format('keypoints_scores')
        theirs, found = recorded.pair(points, ours['detection_keypoint_scores'][pairs])
        results.add(points, theirs, found, np.std(theirs), DETECTION_TOLERANCE)


def _recipe(path: pathlib.Path) -> Any:
    spec = importlib.util.spec_from_file_location('recipe_torch', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--root', type=pathlib.Path, required=True)
    parser.add_argument('--recipe', type=pathlib.Path, help='recipe_torch.py; beside the folder')
    parser.add_argument('--only', nargs='+', metavar='NAME')
    parser.add_argument('--json', type=pathlib.Path, help='the worst difference of each stage')
    options = parser.parse_args(words)
    recipe = _recipe(options.recipe or options.root.resolve().parent / 'recipe_torch.py')
    report: dict[str, Mapping[str, float]] = {}
    failed = False
    for name in options.only or sorted(path.stem for path in options.root.glob('*.json')):
        line = f'FAIL {name}: no sample config'
        if (_SAMPLES / f'{name}.config').exists():
            try:
                results = check(name, options.root, recipe)
                line, report[name] = results.line(name), results.worst
            except ValueError as error:
                line = f'FAIL {name}: {error}'
        print(line, flush=True)
        failed |= line.startswith('FAIL')
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + '\n')
    return int(failed)


if __name__ == '__main__':
    sys.exit(main())
