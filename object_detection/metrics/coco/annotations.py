"""Ground truth from a COCO annotation file (https://cocodataset.org/#format-data)."""

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from object_detection.data import shard_names
from object_detection.data.coco import annotations as coco_annotations
from object_detection.data.coco import masks as coco_masks
from object_detection.errors import UnusableError, UserError, expected, format_list
from object_detection.metrics.instances import Instances, box_areas, mask_areas

# Lists of an annotation file, and the keys that each of their entries has.
REQUIRED = {
    'images': ('id', 'height', 'width'),
    'annotations': ('image_id', 'category_id', 'bbox'),
    'categories': ('id', 'name'),
}

_logger = logging.getLogger(__name__)


class CocoAnnotations:
    """The objects of an annotation file by image, with the class ids of a label map.

    Boxes, areas, crowds and masks are as annotated. A box without area is not removed: it counts as
    missed, as with pycocotools. These objects are left out, with one line in the log: objects of
    categories that have no class; objects without a box or, where masks are scored, without a mask;
    and objects whose area or crowd flag cannot be read.

    Args:
      document: the parsed file.
      path: path of the file, for errors.
      classes: 1-based id of the label map -> the names of its class.
      is_complete: whether all images of the file should be evaluated; if so, objects of images that
        are not evaluated count as missed.

    Attributes:
      category_ids: id of the label map -> `categories.id`.

    Raises:
      ValueError: if the document is no COCO annotation file, or a class has no category in it.
    """

    def __init__(
        self,
        document: Any,
        path: str,
        classes: Mapping[int, Collection[str]],
        *,
        is_complete: bool = True,
    ):
        coco_annotations.check_document(document, path, REQUIRED)
        self._path = path
        self._is_complete = is_complete
        self.category_ids = match_categories(document['categories'], classes, path)
        self._keypoint_names = {
            category['id']: category.get('keypoints') or () for category in document['categories']
        }
        self._images: dict[Any, Mapping[str, Any]] = {}
        for image in document['images']:
            # If several entries have the same id, the first one is used.
            self._images.setdefault(image['id'], image)
        self._by_text = {image.get('file_name'): image['id'] for image in document['images']}
        # Records of earlier versions contain them too.
        self._by_text |= {str(image_id): image_id for image_id in self._images}
        self._by_text |= {shard_names.to_text(image_id): image_id for image_id in self._images}
        self._annotations = self._group(document['annotations'])
        self._instances: dict[tuple[Any, bool], Instances] = {}
        self._warned: set[str] = set()

    def image_id(self, source_id: str) -> Any:
        """Returns the `images.id` that a source id denotes, as a number or as a file name.

        Raises:
          ValueError: if the file has no such image.
        """
        if source_id not in self._by_text:
            known = format_list(self._images)
            raise UserError(
                f'{self._path}: the evaluated records have an image with the source id '
                f'{source_id!r}, which is no images.id and no images.file_name of this file; '
                f'expected the annotations that the records were made of. Its ids begin with: '
                f'{known}.'
            )
        return self._by_text[source_id]

    def size(self, image_id: Any) -> tuple[int, int]:
        """Returns (height, width) of an image in pixels.

        Raises:
          ValueError: if the file does not give both as whole numbers above 0.
        """
        try:
            height, width = coco_annotations.stated_size(self._images[image_id])
        except UnusableError as error:
            raise UserError(f'{self._path}: image {image_id!r}: {error}.') from error
        if not (height and width):
            raise expected(
                self._path, f'the height and width of image {image_id!r}', f'{height} and {width}'
            )
        return height, width

    def check_size(self, image_id: Any, height: int, width: int) -> None:
        """Compares the size of an image in the records with its size in the file.

        Raises:
          ValueError: if they differ.
        """
        if self.size(image_id) != (height, width):
            raise UserError(
                f'{self._path}: expected images of the size of those in the records. Received '
                f'(height, width) {self.size(image_id)} for the image {image_id}, which is '
                f'{(height, width)} there.'
            )

    def instances(self, image_id: Any, *, with_masks: bool) -> Instances:
        """Returns the objects of an image."""
        key = (image_id, with_masks)
        if key not in self._instances:
            self._instances[key] = self._read(image_id, with_masks)
        return self._instances[key]

    def poses(
        self, image_id: Any, label: int, names: Sequence[str]
    ) -> tuple[Instances, np.ndarray]:
        """Returns the objects of one class of an image, and their keypoints.

        Args:
          image_id: id of the image.
          label: id of the class in the label map.
          names: names of the P keypoints; the category of the file lists them too.

        Returns:
          The n objects, and float64 [n, P, 3], (y, x) in pixels and the visibility: 0 for an object
          without `keypoints`, or with some of another number than the category has.

        Raises:
          ValueError: if the category lacks a keypoint.
        """
        category_id = self.category_ids[label]
        listed = list(self._keypoint_names.get(category_id, ()))
        if set(names) - set(listed):
            raise expected(
                f'{self._path}: category {category_id}', f'the keypoints {list(names)}', listed
            )
        columns = [listed.index(name) for name in names]
        annotations = [a for a in self._usable(image_id) if a['category_id'] == category_id]
        keypoints = [_keypoints(annotation, len(listed)) for annotation in annotations]
        keypoints = np.array(keypoints, np.float64).reshape(-1, len(listed), 3)
        return self._boxes(annotations), keypoints[:, columns][..., [1, 0, 2]]

    def searched_classes(self, image_id: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the classes of an image of LVIS's files that need not have all their objects.

        Returns:
          Ids of the label map, int64 [m]: the classes that are verified to be absent, and those of
          which some objects are not annotated.
        """
        found = []
        for key in ('neg_category_ids', 'not_exhaustive_category_ids'):
            listed = self._images[image_id].get(key)
            if not isinstance(listed, list):
                raise expected(
                    f'{self._path}: image {image_id!r}', f'a list `{key}` (LVIS)', repr(listed)
                )
            ids = [label for label, each in self.category_ids.items() if each in listed]
            found.append(np.array(ids, np.int64))
        return tuple(found)

    def not_evaluated(self, evaluated: Collection[Any]) -> list[Any]:
        """Returns the ids of images that no record contains but whose objects count as missed."""
        missed = [image_id for image_id in self._images if image_id not in evaluated]
        if missed:
            effect = (
                f'their objects count as missed. The first are: {format_list(missed)}.'
                if self._is_complete
                else 'they are left out, as only a part of the data is evaluated.'
            )
            share = f'{len(missed)} of its {len(self._images)} images were not evaluated'
            self._warn_once(f'{self._path}: {share}; {effect}')
        return missed if self._is_complete else []

    def _group(self, annotations: Sequence[Mapping[str, Any]]) -> dict[Any, list[Mapping]]:
        """Groups the objects of known categories by image."""
        known = set(self.category_ids.values())
        by_image = defaultdict(list)
        for annotation in annotations:
            if annotation['category_id'] in known:
                by_image[annotation['image_id']].append(annotation)
        others = len(annotations) - sum(map(len, by_image.values()))
        if others:
            _logger.info(
                '%s: %d of its %d annotations are of categories that the label map lacks, and are '
                'left out.',
                self._path,
                others,
                len(annotations),
            )
        return by_image

    def _read(self, image_id: Any, with_masks: bool) -> Instances:
        annotations = self._usable(image_id)
        if not with_masks:
            return self._boxes(annotations)
        height, width = self.size(image_id)
        masks = [self._mask(annotation, height, width) for annotation in annotations]
        annotations = [a for a, mask in zip(annotations, masks, strict=True) if mask]
        masks = [mask for mask in masks if mask]
        return self._boxes(annotations, masks, mask_areas(masks, height, width))

    def _usable(self, image_id: Any) -> list[Mapping[str, Any]]:
        annotations = self._annotations.get(image_id, ())
        return [annotation for annotation in annotations if self._is_usable(annotation)]

    def _boxes(
        self,
        annotations: Sequence[Mapping[str, Any]],
        masks: list[bytes] | None = None,
        own_areas: np.ndarray | None = None,
    ) -> Instances:
        """Returns objects; `own_areas` stand in for an absent `area`, None takes the boxes'."""
        labels = {category: label for label, category in self.category_ids.items()}
        return objects(annotations, labels, masks, own_areas)

    def _is_usable(self, annotation: Mapping[str, Any]) -> bool:
        area, crowd = coco_annotations.area_of, coco_annotations.is_crowd
        for what, check in (('box', _check_box), ('area', area), ('iscrowd', crowd)):
            try:
                check(annotation)
            except UnusableError:
                self._warn_unusable(what, annotation)
                return False
        return True

    def _mask(self, annotation: Mapping[str, Any], height: int, width: int) -> bytes:
        """Returns the encoded mask of an object; b'' if it has none that fits the image."""
        try:
            return coco_masks.encode(annotation.get('segmentation'), height, width)
        except UnusableError:
            self._warn_unusable('mask', annotation)
            return b''

    def _warn_unusable(self, what: str, annotation: Mapping[str, Any]) -> None:
        self._warn_once(
            f'{self._path}: objects without a {what} that can be used are left out; the first is '
            f'annotation {annotation.get("id")} of image {annotation["image_id"]}.',
            key=what,
        )

    def _warn_once(self, text: str, key: str = 'images') -> None:
        """Logs a warning the first time that it is called with `key`."""
        if key not in self._warned:
            self._warned.add(key)
            _logger.warning(text)


def objects(
    annotations: Sequence[Mapping[str, Any]],
    labels: Mapping[Any, int],
    masks: list[bytes] | None = None,
    own_areas: np.ndarray | None = None,
) -> Instances:
    """Returns annotations that can be used as objects.

    Args:
      annotations: entries of `annotations`.
      labels: `category_id` -> class.
      masks: their encoded masks, or None.
      own_areas: float64 [n], areas in place of an absent `area`; None takes those of the boxes.
    """
    boxes = corners(np.array([a['bbox'] for a in annotations], np.float64).reshape(-1, 4))
    # An area of 0 is valid: COCO's metrics count the object as small.
    areas = np.array([coco_annotations.area_of(a) for a in annotations], np.float64)
    return Instances(
        boxes,
        np.array([labels[a['category_id']] for a in annotations], np.int64),
        np.where(np.isnan(areas), box_areas(boxes) if own_areas is None else own_areas, areas),
        masks,
        is_crowd=np.array([coco_annotations.is_crowd(a) for a in annotations], bool),
    )


def corners(boxes: np.ndarray) -> np.ndarray:
    """[x, y, width, height] -> [ymin, xmin, ymax, xmax]."""
    return np.concatenate([boxes[:, 1::-1], boxes[:, 1::-1] + boxes[:, :1:-1]], axis=1)


def _keypoints(annotation: Mapping[str, Any], count: int) -> list[float]:
    """Returns x, y and visibility of each keypoint, [count * 3]; zeros if there are none."""
    try:
        values = [float(value) for value in annotation.get('keypoints') or ()]
    except (TypeError, ValueError, OverflowError):
        values = []
    return values if len(values) == 3 * count else [0.0] * (3 * count)


def _check_box(annotation: Mapping[str, Any]) -> None:
    if min(coco_annotations.box_of(annotation)[2:]) < 0:
        raise UnusableError('bad_box', 'a side of bbox is negative')


def match_categories(
    categories: Sequence[Mapping[str, Any]], classes: Mapping[int, Collection[str]], path: str
) -> dict[int, Any]:
    """Finds the category of each class by name, or by id if the names differ.

    Args:
      categories: categories of the annotation file.
      classes: id of the label map -> the names of its class.
      path: path of the annotation file, for errors.

    Returns:
      Id of the label map -> category id.

    Raises:
      ValueError: if a class has no category of its name, and the label map's ids do not match the
        file's ids either: an id is absent, or belongs to a class that has another id in the file.
    """
    names = [coco_annotations.clean(str(category['name'])) for category in categories]
    unique = {
        name: category['id']
        for name, category in zip(names, categories, strict=True)
        if names.count(name) == 1
    }
    by_name = {
        label: unique[text] for label, texts in classes.items() for text in texts if text in unique
    }
    nameless = [label for label in classes if label not in by_name]
    if not nameless:
        return by_name
    ids = {category['id'] for category in categories}
    if ids >= set(classes) and all(label == category for label, category in by_name.items()):
        _logger.info(
            '%s: classes of the label map without a category of their name are matched by id: %s',
            path,
            format_list(nameless),
        )
        return {label: label for label in classes}
    wanted = [f'{" or ".join(map(repr, classes[label]))} (id {label})' for label in nameless]
    raise UserError(
        f'{path}: expected a category for each class of the label map, of the same name or, in all '
        f'of them, of the same id. Received none for: {format_list(wanted)}. Its categories: '
        f'{format_list(names)}.'
    )
