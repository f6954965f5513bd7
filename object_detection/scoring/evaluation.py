"""Computes the metrics of a file of detections against a file of ground truth, without a model.

The tables `TRUTHS` and `DETECTIONS` list the formats, which differ by their content.
"""

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from object_detection.builders import evaluator_builder
from object_detection.builders.evaluator_builder import METRIC_SETS
from object_detection.data import file_access, label_map
from object_detection.data.coco.keypoints import PERSON_KEYPOINTS
from object_detection.data.file_access import Files, LocalFiles
from object_detection.data.formats import csv_files
from object_detection.errors import DataError, UserError, expected, format_list, missing
from object_detection.metrics.evaluator import Evaluator
from object_detection.metrics.pascal.options import ALIASES
from object_detection.protos import eval_pb2
from object_detection.scoring import coco_files, coco_results, csv_tables, image_lists, voc_files
from object_detection.scoring.csv_tables import OpenImagesOptions
from object_detection.scoring.tables import DetectionTable, GroundTruth, Parts, UnknownImageError
from object_detection.system import json_lists

AUTO = 'auto'
COCO, VOC, OPEN_IMAGES, CSV = 'coco', 'voc', 'open_images', 'csv'

# Name -> reader; `open_truth` gives that of Open Images its options.
TRUTHS: dict[str, Callable[..., GroundTruth]] = {
    COCO: coco_files.read_truth,
    VOC: voc_files.read_truth,
    OPEN_IMAGES: csv_tables.read_truth,
}
DETECTIONS: dict[str, Callable[[str, Files, GroundTruth], DetectionTable]] = {
    COCO: coco_results.read_detections,
    VOC: voc_files.read_detections,
    OPEN_IMAGES: csv_tables.read_open_images_detections,
    CSV: csv_tables.read_predicted,
}
_OTHER_IMAGES = (
    'To evaluate a part of the images that were detected, give --groundtruth of all of them, and '
    'the part as --image_list: a text file, or a COCO file.'
)
_NO_FILES = OpenImagesOptions()


@dataclasses.dataclass(frozen=True)
class FileOptions:
    """What is evaluated.

    Attributes:
      groundtruth, detections: a file or a folder each.
      groundtruth_format, detections_format: a name of `TRUTHS`, of `DETECTIONS`; AUTO looks
        at the content.
      metrics: names of metric sets; () for those that the files are made for.
      image_list: file that lists the images to evaluate; '' for all.
      label_map: label map of the numbers by which detections call their classes; '' for none.
      open_images: further files of ground truth of Open Images.
      sigmas: name of a keypoint -> the spread of its annotations as a share of the object's size;
        keypoints without one have 0.05, or those of COCO if they are COCO's of persons.
    """

    groundtruth: str
    detections: str
    groundtruth_format: str = AUTO
    detections_format: str = AUTO
    metrics: tuple[str, ...] = ()
    image_list: str = ''
    label_map: str = ''
    open_images: OpenImagesOptions = _NO_FILES
    sigmas: Mapping[str, float] = dataclasses.field(default_factory=dict)


def open_truth(options: FileOptions, files: Files) -> tuple[str, GroundTruth]:
    """Reads ground truth.

    Returns:
      The name of its format, and the ground truth.

    Raises:
      OSError: if a file cannot be read.
      UserError: if it has another format, or a value of it cannot be used.
    """
    path, form = options.groundtruth, options.groundtruth_format
    _check_exists(path, files)
    form = _truth_form(path, files) if form == AUTO else form
    if form == OPEN_IMAGES:
        truth = csv_tables.read_truth(path, files, options.open_images)
    elif options.open_images != _NO_FILES:
        raise UserError(
            'image labels, class descriptions and the class hierarchy are for ground truth of Open '
            f'Images. Received: {path}, which is {form}.'
        )
    else:
        truth = TRUTHS[form](path, files)
    if options.label_map:
        truth = truth.with_classes(label_map.load(options.label_map))
    return form, truth


def open_detections(
    options: FileOptions, files: Files, truth: GroundTruth
) -> tuple[str, DetectionTable]:
    """Reads detections. Returns and raises as `open_truth`."""
    path, form = options.detections, options.detections_format
    _check_exists(path, files)
    if form == AUTO:
        form, path = _detections_form(path, files)
    try:
        return form, DETECTIONS[form](path, files, truth)
    except DataError as error:
        if not isinstance(error.__cause__, UnknownImageError):
            raise
        raise DataError(f'{error} {_OTHER_IMAGES}') from error


def _check_exists(path: str, files: Files) -> None:
    if not files.exists(path):
        raise missing(path)


def _truth_form(path: str, files: Files) -> str:
    if voc_files.find_truth(path, files) is not None:
        return VOC
    if not _is_folder(path, files):
        if coco_files.is_json(path, files):
            return COCO
        if csv_tables.is_truth(csv_files.header_of(path, files)):
            return OPEN_IMAGES
    raise DataError(
        f'{path}: expected a COCO annotation file, a folder of XML files of PASCAL VOC, or a CSV '
        'file of boxes of Open Images (ImageID, LabelName, XMin, XMax, YMin, YMax). Received: none '
        'of them; the format can be given by --groundtruth_format.'
    )


def _detections_form(path: str, files: Files) -> tuple[str, str]:
    """Returns the format of detections, and their path, for a folder of `tfod predict` its file."""
    if voc_files.is_results(path, files):
        return VOC, path
    listed: Any = files.list(path)
    for name in (json_lists.DETECTIONS, 'detections.csv'):
        if name in listed:
            path = file_access.join(path, name)
            break
    if not _is_folder(path, files):
        if coco_files.is_json(path, files):
            return COCO, path
        header = csv_files.header_of(path, files)
        if csv_tables.is_open_images_detections(header):
            return OPEN_IMAGES, path
        if csv_tables.is_predicted(header):
            return CSV, path
    raise DataError(
        f'{path}: expected a COCO results file, a folder of result files of PASCAL VOC '
        '(comp4_det_test_CLASS.txt), a CSV file of Open Images (ImageID, LabelName, Conf, XMin, '
        'XMax, YMin, YMax), or what tfod predict writes: detections.json or detections.csv. '
        'Received: none of them; the format can be given by --detections_format.'
    )


def _is_folder(path: str, files: Files) -> bool:
    try:
        files.head(path, 1)
    except IsADirectoryError:
        return True
    return False


BOXES, MASKS, KEYPOINTS = 'coco_detection_metrics', 'coco_mask_metrics', 'coco_keypoint_metrics'
# Of formats without masks and keypoints.
_DEFAULTS = {VOC: 'pascal_voc_detection_metrics', OPEN_IMAGES: 'oid_V2_detection_metrics'}
# Of the keypoints of persons, in their order (https://cocodataset.org/#keypoints-eval).
_PERSON_SIGMAS = (
    *(0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072, 0.062, 0.062),
    *(0.107, 0.107, 0.087, 0.087, 0.089, 0.089),
)


@dataclasses.dataclass(frozen=True)
class FileResults:
    """The metrics, and what was evaluated.

    Attributes:
      groundtruth, detections: the paths.
      groundtruth_format, detections_format: their formats.
      images: number of evaluated images.
      objects: number of their objects.
      num_detections: number of their detections.
      metric_sets: names of the metric sets.
      metrics: name -> value.
      notes: what a user should know.
    """

    groundtruth: str
    detections: str
    groundtruth_format: str
    detections_format: str
    images: int
    objects: int
    num_detections: int
    metric_sets: tuple[str, ...]
    metrics: dict[str, float]
    notes: tuple[str, ...] = ()


def evaluate(
    options: FileOptions, eval_config: eval_pb2.EvalConfig | None = None, files: Files | None = None
) -> FileResults:
    """Evaluates detections.

    Args:
      options: the files.
      eval_config: options of the metrics, such as `include_metrics_per_category`; without
        `metrics_set` and `parameterized_metric`, which `options` decides on.
      files: access to files; those of this machine if not given.

    Raises:
      OSError: if a file cannot be read.
      UserError: if a value of a file cannot be used, an image or a class is unknown, or a set needs
        what the files lack. The message names the file, the record and the field.
    """
    files = files or LocalFiles()
    asked = tuple(dict.fromkeys(ALIASES.get(name, name) for name in options.metrics))
    _check_names(asked)
    truth_form, truth = open_truth(options, files)
    images: Sequence[str] = list(truth.images)
    if options.image_list:
        images = image_lists.read(options.image_list, files, truth)
    form, detections = open_detections(options, files, truth)
    names = asked or _default_sets(truth_form, truth, detections)
    for name in names:
        _check_needs(name, truth, detections)
    _check_sigmas(options.sigmas, truth, names)
    evaluators, notes = _build(names, truth, eval_config or eval_pb2.EvalConfig(), options)
    objects = found = 0
    for image in images:
        count = _add_image(evaluators, image, truth, detections)
        objects, found = objects + count[0], found + count[1]
    notes = [*truth.notes, *detections.notes, *notes]
    if found < detections.count:
        notes.append(f'{detections.count - found} detections are of images that are not listed.')
    metrics: dict[str, float] = {}
    for _, evaluator in evaluators:
        metrics |= evaluator.evaluate()
        notes += evaluator.notes
    return FileResults(
        options.groundtruth,
        detections.path,
        truth_form,
        form,
        len(images),
        objects,
        found,
        tuple(dict.fromkeys(name for name, _ in evaluators)),
        metrics,
        tuple(notes),
    )


def _add_image(
    evaluators: Sequence[tuple[str, Evaluator]],
    image: str,
    truth: GroundTruth,
    detections: DetectionTable,
) -> tuple[int, int]:
    """Adds an image to all evaluators; returns the numbers of its objects and detections."""
    sides: dict[Parts, tuple[Any, Any]] = {}
    for name, evaluator in evaluators:
        parts = _parts(name)
        if parts not in sides:
            sides[parts] = truth.objects(image, parts), detections.objects(image, parts)
        size, *classes = truth.images[image]
        evaluator.add_image(image, size, *sides[parts], *classes)
    annotated, detected = next(iter(sides.values()))
    return len(annotated.classes), len(detected.classes)


def _build(
    names: Sequence[str], truth: GroundTruth, eval_config: eval_pb2.EvalConfig, options: FileOptions
) -> tuple[list[tuple[str, Evaluator]], list[str]]:
    """Returns the sets with their evaluators, and notes on sets that are left out."""
    config = eval_pb2.EvalConfig()
    config.CopyFrom(eval_config)
    sets = [name for name in dict.fromkeys(names) if name != KEYPOINTS]
    # Without a set, the builder takes that of boxes.
    config.metrics_set[:] = sets or [BOXES]
    del config.parameterized_metric[:]
    built = list(zip(sets, evaluator_builder.build(config, truth.categories), strict=False))
    notes = []
    if KEYPOINTS in names:
        config.metrics_set[:] = [BOXES]
        config.parameterized_metric.extend(_keypoint_metrics(truth, options.sigmas))
        try:
            others = evaluator_builder.build(config, truth.categories)[1:]
        except UserError as error:
            if options.metrics:
                raise
            notes.append(f'keypoints are not evaluated: {error}')
        else:
            built += [(KEYPOINTS, evaluator) for evaluator in others]
    if not built:
        raise UserError(notes[0])
    return built, notes


def _keypoint_metrics(
    truth: GroundTruth, given: Mapping[str, float]
) -> Iterator[eval_pb2.ParameterizedMetric]:
    """Yields the metric of each class with keypoints."""
    for category in truth.categories:
        if category.get('keypoints'):
            names = sorted(category['keypoints'], key=category['keypoints'].get)
            sigmas = {}
            if tuple(names) == PERSON_KEYPOINTS:
                sigmas = dict(zip(names, _PERSON_SIGMAS, strict=True))
            sigmas |= {name: value for name, value in given.items() if name in names}
            yield eval_pb2.ParameterizedMetric(
                coco_keypoint_metrics=eval_pb2.CocoKeypointMetrics(
                    class_label=category['name'], keypoint_label_to_sigmas=sigmas
                )
            )


def _default_sets(form: str, truth: GroundTruth, detections: DetectionTable) -> list[str]:
    if form in _DEFAULTS:
        return [_DEFAULTS[form]]
    names = [BOXES] if detections.has_boxes else []
    if truth.parts.masks and detections.parts.masks:
        names.append(MASKS)
    if truth.parts.keypoints and detections.parts.keypoints:
        names.append(KEYPOINTS)
    return names or [BOXES]


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        known = (*METRIC_SETS, KEYPOINTS)
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f' Did you mean {nearest[0]}?' if nearest else ''
            raise UserError(f'--metrics: expected {", ".join(known)}. Received: {name!r}.{hint}')


def _check_sigmas(sigmas: Mapping[str, float], truth: GroundTruth, names: Sequence[str]) -> None:
    known = {name for category in truth.categories for name in category.get('keypoints', ())}
    wrong = {k: v for k, v in sigmas.items() if k not in known or not 0 < v < math.inf}
    if wrong or (sigmas and KEYPOINTS not in names):
        listed = format_list(sorted(known)) if KEYPOINTS in names else ''
        raise UserError(
            f'--oks_sigmas: expected numbers above 0 of keypoints of {truth.path} that are '
            f'compared: {listed or "none are"}. Received: {wrong or dict(sigmas)}.'
        )


def _check_needs(name: str, truth: GroundTruth, detections: DetectionTable) -> None:
    """Checks that the files have what a set compares."""
    for part, is_needed in _parts(name)._asdict().items():
        for side in (truth, detections) if detections.count else (truth,):
            if is_needed and not getattr(side.parts, part):
                raise expected(f'--metrics: {name}', part, f'{side.path}, which has none')
    if truth.are_normalized and name.startswith(('coco', 'lvis')):
        raise UserError(
            f'--metrics: {name} needs the sizes of objects in pixels, but the boxes of '
            f'{truth.path} are relative to their images. Use oid_V2_detection_metrics, for example.'
        )
    needed = {'oid_challenge': 'image-level labels of Open Images; give --image_labels'}
    needed['lvis'] = 'neg_category_ids of the images of LVIS'
    for prefix, what in needed.items():
        labels = (image.classes for image in truth.images.values())
        if name.startswith(prefix) and all(each is None for each in labels):
            raise UserError(f'--metrics: {name} needs {what}. Received: {truth.path} alone.')


def _parts(name: str) -> Parts:
    """Returns what a set compares besides boxes."""
    has_masks = any(word in name for word in ('mask', 'segmentation', 'panoptic'))
    return Parts(has_masks, name == KEYPOINTS)
