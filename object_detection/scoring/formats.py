"""The tables of formats of ground truth and of detections, which their content tells apart."""

from collections.abc import Callable
from typing import Any

from object_detection.data import file_access, label_map
from object_detection.data.file_access import Files
from object_detection.data.formats import csv_files
from object_detection.errors import DataError, UserError, missing
from object_detection.scoring import coco_files, coco_results, csv_tables, voc_files
from object_detection.scoring.csv_tables import OpenImagesOptions
from object_detection.scoring.tables import Detections, GroundTruth, UnknownImageError
from object_detection.system import json_lists

AUTO = 'auto'
COCO, VOC, OPEN_IMAGES, CSV = 'coco', 'voc', 'open_images', 'csv'

# Name -> reader; `open_truth` gives that of Open Images its options.
TRUTHS: dict[str, Callable[..., GroundTruth]] = {
    COCO: coco_files.read_truth,
    VOC: voc_files.read_truth,
    OPEN_IMAGES: csv_tables.read_truth,
}
DETECTIONS: dict[str, Callable[[str, Files, GroundTruth], Detections]] = {
    COCO: coco_results.read_detections,
    VOC: voc_files.read_detections,
    OPEN_IMAGES: csv_tables.read_open_images_detections,
    CSV: csv_tables.read_predicted,
}
_OTHER_IMAGES = (
    'To evaluate a part of the images that were detected, give --groundtruth of all of them, and '
    'the part as --image_list: a text file, or a COCO file.'
)
_CSV_DETECTIONS = 'detections.csv'


def open_truth(
    path: str,
    files: Files,
    *,
    form: str = AUTO,
    label_map_path: str = '',
    open_images: OpenImagesOptions | None = None,
) -> tuple[str, GroundTruth]:
    """Reads ground truth.

    Args:
      path: the file or folder.
      files: access to files.
      form: one of `TRUTHS`; AUTO looks at the content.
      label_map_path: label map of the numbers by which detections call their classes; '' for none.
      open_images: further files of ground truth of Open Images.

    Returns:
      The name of its format, and the ground truth.

    Raises:
      OSError: if a file cannot be read.
      UserError: if it has another format, or a value of it cannot be used.
    """
    _check_exists(path, files)
    form = _truth_form(path, files) if form == AUTO else form
    given = open_images or OpenImagesOptions()
    if form == OPEN_IMAGES:
        truth = csv_tables.read_truth(path, files, given)
    elif given != OpenImagesOptions():
        raise UserError(
            'image labels, class descriptions and the class hierarchy are for ground truth of Open '
            f'Images. Received: {path}, which is {form}.'
        )
    else:
        truth = TRUTHS[form](path, files)
    if label_map_path:
        truth = truth.with_classes(label_map.load(label_map_path))
    return form, truth


def open_detections(
    path: str, files: Files, truth: GroundTruth, *, form: str = AUTO
) -> tuple[str, Detections]:
    """Reads detections; `form` is one of `DETECTIONS`. Returns and raises as `open_truth`."""
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
        'of them; the format can be told by --groundtruth_format.'
    )


def _detections_form(path: str, files: Files) -> tuple[str, str]:
    """Returns the format of detections, and their path, for a folder of `tfod predict` its file."""
    if voc_files.is_results(path, files):
        return VOC, path
    listed: Any = files.list(path)
    for name in (json_lists.DETECTIONS, _CSV_DETECTIONS):
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
        'Received: none of them; the format can be told by --detections_format.'
    )


def _is_folder(path: str, files: Files) -> bool:
    try:
        files.head(path, 1)
    except IsADirectoryError:
        return True
    return False
