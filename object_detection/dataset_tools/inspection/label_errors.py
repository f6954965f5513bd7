"""Which labels are probably wrong, by the detections of a model.

The kinds of mistakes are those of ObjectLab (Tkachenko, Thyagarajan and Mueller, 2023, "ObjectLab:
Automated Diagnosis of Mislabeled Images in Object Detection Data",
https://arxiv.org/abs/2309.00832), and labels of nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from object_detection.dataset_tools.inspection.check_job import RecordSet
from object_detection.dataset_tools.inspection.summary import Place
from object_detection.metrics.analysis.images import ImageBoxes, match, overlaps

MISSING, WRONG_CLASS = 'missing', 'wrong_class'
BADLY_DRAWN, SPURIOUS = 'badly_drawn', 'spurious'
# Kind -> what it means.
KINDS = {
    MISSING: 'an object without a label',
    WRONG_CLASS: 'a label of another class than that of the object',
    BADLY_DRAWN: 'a label whose box fits its object badly',
    SPURIOUS: 'a label where the model finds nothing',
}
# A detection means a label from the first IoU on; from the second to the third, the box of one of
# the two is badly drawn.
_SAME_IOU, _POOR_IOU, _GOOD_IOU = 0.5, 0.3, 0.7


class Case(NamedTuple):
    """A disagreement of labels and detections of one image.

    Attributes:
      kind: one of `KINDS`.
      label: the index of the label; -1 for a missing one.
      found: the index of the detection; -1 for a spurious label.
      strength: from 0 to 1, see `cases`.
    """

    kind: str
    label: int
    found: int
    strength: float


class Suspect(NamedTuple):
    """A label that may be wrong, or a place where one may be missing.

    Attributes:
      place: where the record is.
      image: name of the image file, or its source id.
      kind: one of `KINDS`.
      label: place of the label in the lists of the record; -1 for a missing one.
      strength: from 0 to 1, see `cases`.
      score: from 0 to 1, see `ranked`.
      class_id, box: of the label, normalized [ymin, xmin, ymax, xmax]; 0 and None of a missing one.
      found_class, found_box, found_score: of the detection; 0, None and 0 for a spurious label.
      found_mask: bool [mask height, mask width], relative to the box, or None.
    """

    place: Place
    image: str
    kind: str
    label: int
    strength: float
    score: float = 0.0
    class_id: int = 0
    box: list[float] | None = None
    found_class: int = 0
    found_box: list[float] | None = None
    found_score: float = 0.0
    found_mask: np.ndarray | None = None


class Ranking(NamedTuple):
    """The labels of a set that a detector doubts.

    Attributes:
      suspects: the most doubtful first, each label once.
      num_first: how many of them are shown.
      num_labels: number of labels that were judged.
      num_unknown: number of labels that were not, being crowds or of no class of the detector.
      records: the set, with the classes of the detector if it had none of its own.
      source: the name of the detector.
    """

    suspects: list[Suspect]
    num_first: int
    num_labels: int
    num_unknown: int
    records: RecordSet
    source: str

    @property
    def first(self) -> Sequence[Suspect]:
        """Those that are shown."""
        return self.suspects[: self.num_first]

    def said(self) -> str:
        """Returns a sentence for people on what was judged."""
        left_out = f' ({self.num_unknown:,} were not, as crowds or of unknown classes)'
        return (
            f'{self.num_labels:,} labels were compared with the detections of {self.source}'
            f'{left_out if self.num_unknown else ""}: {len(self.suspects):,} doubts, of which the '
            f'page shows the first {len(self.first):,}.'
        )

    def to_list(self) -> list[dict[str, Any]]:
        """Returns all suspects as values of JSON."""
        names = self.records.class_names
        return [
            {
                'image': each.image,
                'file': self.records.files[each.place.file],
                'offset': each.place.offset,
                'kind': each.kind,
                'label': each.label,
                'score': round(each.score, 6),
                'strength': round(each.strength, 6),
                'class': each.box and names.get(each.class_id, str(each.class_id)),
                'box': each.box,
                'found_class': each.found_box
                and names.get(each.found_class, str(each.found_class)),
                'found_box': each.found_box,
                'found_score': round(each.found_score, 6),
            }
            for each in self.suspects
        ]


def cases(image: ImageBoxes) -> Iterator[Case]:
    """Yields the disagreements of an image.

    Detections, the most confident first, are paired with labels of any class from an IoU of 0.5 on,
    and what is left with labels of their class from 0.3 on. With the score p of a detection, its
    IoU o with a label, and all maxima 0 if there is nothing, the strength is

    - missing, of a detection without a label of IoU 0.5: p * (1 - the greatest o);
    - wrong_class, of a label that is paired with another class: p less the greatest p of the
      detections of its class that overlap it by 0.5;
    - badly_drawn, of a label that is paired with its class at an o below 0.7: p * (1 - o);
    - spurious, of a label: 1 - the greatest p * o, of detections of any class.

    Args:
      image: labels and detections; labels that are marked as crowds are not judged.
    """
    overlap = overlaps(image)
    scores, is_same = image.scores, image.found_classes[:, np.newaxis] == image.classes
    of_any_class = image._replace(
        classes=np.zeros_like(image.classes), found_classes=np.zeros_like(image.found_classes)
    )
    objects = match(of_any_class, overlap, _SAME_IOU).objects
    is_free = ~np.isin(np.arange(len(image.classes)), objects)
    rest = overlap * (objects < 0)[:, np.newaxis] * is_free
    objects = np.maximum(objects, match(image, rest, _POOR_IOU).objects)
    pairs = {int(objects[row]): int(row) for row in np.flatnonzero(objects >= 0)}
    supports = (scores[:, np.newaxis] * overlap).max(axis=0, initial=0.0)
    is_own = is_same & (overlap >= _SAME_IOU)
    own = (scores[:, np.newaxis] * is_own).max(axis=0, initial=0.0)
    for label in np.flatnonzero(~image.is_crowd).tolist():
        yield Case(SPURIOUS, label, -1, 1.0 - supports[label])
        found = pairs.get(label)
        if found is not None and not is_same[found, label]:
            yield Case(WRONG_CLASS, label, found, scores[found] - own[label])
        elif found is not None and overlap[found, label] < _GOOD_IOU:
            yield Case(BADLY_DRAWN, label, found, scores[found] * (1 - overlap[found, label]))
    nearest = overlap.max(axis=1, initial=0.0)
    for found in np.flatnonzero((objects < 0) & (nearest < _SAME_IOU)).tolist():
        yield Case(MISSING, -1, found, scores[found] * (1 - nearest[found]))


def ranked(suspects: Iterable[Suspect], counts: Mapping[int, int]) -> list[Suspect]:
    """Returns suspects with their scores, the most doubtful first, each label once.

    Strengths of different kinds cannot be compared, nor the scores of a model for frequent and rare
    classes. So a suspect's score is 1 - k / n, if its strength is the k-th of its kind and class,
    which is that of the detection, if there is one, and n is how frequent the class is: 0.99 is a
    score of the most doubtful hundredth. A list up to any score holds the kinds in equal parts, and
    the classes by their frequency, as far as there are suspects; those beyond n are left out.

    Args:
      suspects: without scores.
      counts: class -> n: its number of labels, or of sure detections if these are more, as of a
        class that was forgotten.
    """
    groups: dict[tuple[str, int], list[Suspect]] = {}
    for each in suspects:
        class_id = each.class_id if each.found_box is None else each.found_class
        groups.setdefault((each.kind, class_id), []).append(each)
    scored = []
    for (_, class_id), group in groups.items():
        group.sort(key=lambda each: -each.strength)
        number = max(counts.get(class_id, 0), 1)
        scored += [
            each._replace(score=1 - place / number)
            for place, each in enumerate(group[:number], start=1)
        ]
    scored.sort(key=lambda each: (-each.score, -each.strength))
    first: dict[Any, Suspect] = {}
    for number, each in enumerate(scored):
        first.setdefault((each.place, each.label) if each.label >= 0 else number, each)
    return list(first.values())
