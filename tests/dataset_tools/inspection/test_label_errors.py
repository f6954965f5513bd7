"""Labels that a model doubts: by its detections, and in which order."""

import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner

from object_detection.cli import data
from object_detection.core.detections import Detections
from object_detection.data import label_map, tf_examples
from object_detection.dataset_tools.inspection import label_errors, label_judge, record_sets
from object_detection.dataset_tools.inspection.label_errors import Suspect
from object_detection.dataset_tools.inspection.summary import Place
from object_detection.errors import UserError
from object_detection.metrics.analysis.images import ImageBoxes
from object_detection.prediction import loading
from tests.dataset_tools.inspection.damaged_records import SIZE, example, write

CAT, DOG = 1, 2
LABELS = 'item { id: 5 name: "cat" } item { id: 6 name: "dog" } item { id: 7 name: "owl" }'


def strengths(labels, found, is_crowd=None) -> dict[tuple[str, int, int], float]:
    """(kind, label, detection) -> strength, of (class, box) and (class, score, box)."""
    boxes = np.array([box for *_, box in labels], float).reshape(-1, 4)
    found_boxes = np.array([box for *_, box in found], float).reshape(-1, 4)
    image = ImageBoxes(
        *('a', 100, 100, boxes, np.array([row[0] for row in labels], int)),
        np.zeros(len(labels), bool) if is_crowd is None else np.array(is_crowd),
        *(found_boxes, np.array([row[0] for row in found], int)),
        np.array([row[1] for row in found], float),
    )
    return {
        (case.kind, case.label, case.found): pytest.approx(case.strength)
        for case in label_errors.cases(image)
    }


def test_a_right_label_is_only_as_doubtful_as_its_support():
    found = strengths([(CAT, [0, 0, 10, 10])], [(CAT, 0.9, [0, 0, 10, 8])])
    assert found == {('spurious', 0, -1): 1 - 0.9 * 0.8}
    assert strengths([(CAT, [0, 0, 10, 10])], []) == {('spurious', 0, -1): 1.0}
    assert strengths([], []) == {}


def test_kinds_of_disagreement():
    labels = [(CAT, [0, 0, 10, 10]), (CAT, [50, 50, 60, 60]), (DOG, [80, 80, 90, 90])]
    found = [
        (DOG, 0.8, [0, 0, 10, 10]),
        (CAT, 0.3, [0, 0, 10, 9]),
        (CAT, 0.9, [50, 54, 60, 64]),
        (DOG, 0.7, [80, 72, 90, 82]),
    ]
    assert strengths(labels, found) == {
        ('wrong_class', 0, 0): 0.8 - 0.3,
        ('spurious', 0, -1): 1 - 0.8,
        ('badly_drawn', 1, 2): 0.9 * (1 - 60 / 140),
        ('spurious', 1, -1): 1 - 0.9 * 60 / 140,
        ('spurious', 2, -1): 1 - 0.7 * 20 / 180,
        ('missing', -1, 3): 0.7 * (1 - 20 / 180),
    }


def test_a_neighbour_does_not_take_the_label_of_another():
    """Of two overlapping objects the label of one is missing; its detection is the surer one."""
    labels = [(CAT, [0, 0, 10, 10])]
    found = [(CAT, 0.9, [0, 5, 10, 15]), (CAT, 0.8, [0, 0, 10, 10])]
    assert ('missing', -1, 0) in strengths(labels, found)
    assert strengths(labels, found)['spurious', 0, -1] == 0.2


def test_crowds_are_not_judged_and_hide_what_is_in_them():
    labels = [(CAT, [0, 0, 50, 50])]
    found = [(CAT, 0.9, [10, 10, 20, 20]), (DOG, 0.9, [60, 60, 70, 70])]
    assert strengths(labels, found, [True]) == {('missing', -1, 1): 0.9}


def test_the_ranking_has_the_kinds_in_equal_parts_and_each_label_once():
    def suspect(kind, label, strength, class_id):
        box = [0.0, 0.0, 1.0, 1.0]
        of_label = {} if label < 0 else {'class_id': class_id, 'box': box}
        found = {'found_class': class_id, 'found_box': box} if kind != 'spurious' else {}
        return Suspect(Place(0, 12), 'a', kind, label, strength, **of_label, **found)

    suspects = [
        suspect('spurious', 0, 0.99, CAT),
        suspect('spurious', 1, 0.98, CAT),
        suspect('missing', -1, 0.5, CAT),
        suspect('missing', -1, 0.4, CAT),
        suspect('badly_drawn', 1, 0.6, CAT),
        suspect('missing', -1, 0.9, DOG),
    ]
    found = label_errors.ranked(suspects, {CAT: 100, DOG: 10})
    assert [(each.kind, each.label, each.score) for each in found] == [
        ('spurious', 0, 0.99),
        ('badly_drawn', 1, 0.99),
        ('missing', -1, 0.99),
        ('missing', -1, 0.98),
        ('missing', -1, 0.9),
    ]


@dataclasses.dataclass
class Detector:
    """Finds the same two objects in every image: a cat, 1, and an elk, 3."""

    labels: label_map.LabelMap
    source: str = 'fake'
    value_range = None
    channels = 3

    @property
    def class_names(self):
        return self.labels.names

    def run(self, images):
        boxes = np.array([[2.4, 6.4, 14.4, 22.4], [0, 0, 24, 32]])
        scores, classes = np.array([0.95, 0.8], np.float32), np.array([1, 3])
        assert all(image.shape == (*SIZE, 3) for image in images)
        return [Detections(boxes, scores, classes, SIZE) for _ in images]


@pytest.fixture
def detector(tmp_path):
    path = tmp_path / 'model.pbtxt'
    path.write_text(
        'item { id: 1 name: "cat" } item { id: 2 name: "dog" } item { id: 3 name: "elk" }'
    )
    return Detector(label_map.load(str(path)))


def test_the_command_lists_the_labels_that_a_model_doubts(tmp_path, detector, monkeypatch):
    """Classes are those of their names; a class that the model lacks is not judged."""
    monkeypatch.setattr(loading, 'load', lambda path: detector)
    labels = tmp_path / 'map.pbtxt'
    labels.write_text(LABELS)
    box, elsewhere = (0.1, 0.2, 0.6, 0.7), (0.7, 0.7, 0.9, 0.9)
    contents = [
        example(0, [box], ['cat']),
        example(1, [elsewhere, box], ['owl', 'dog']),
        example(2, [], FILENAME=tf_examples.bytes_feature([b'photo.jpg'])),
        example(3, [(0.5, 0.5, 0.5, 0.6), elsewhere, box], ['cat', 'cat', 'cat']),
    ]
    name = write(tmp_path / 'a.record', contents)
    page, listed = tmp_path / 'page.html', tmp_path / 'found.json'
    arguments = [name, '--label_map', str(labels), '--model', 'export', '--workers', '1']
    arguments += ['--output', str(page), '--json', str(listed), '--top', '2']
    done = CliRunner().invoke(data.command, ['check', *arguments])
    assert done.exit_code == 1, done.output  # A box has no area.
    assert '4 labels were compared with the detections of fake (1 were not' in done.output
    assert ': 3 doubts, of which the page shows the first 2.' in done.output
    found = json.loads(listed.read_text())['sets'][0]['labels']
    assert [(each['image'], each['kind'], each['label']) for each in found] == [
        ('image 3', 'spurious', 1),
        ('image 1', 'wrong_class', 1),
        ('photo.jpg', 'missing', -1),
    ]
    spurious, swapped, missing = found
    # The model is sure of a cat in each of four images.
    assert (spurious['class'], spurious['found_class'], spurious['score']) == ('cat', None, 0.75)
    assert (missing['class'], missing['found_class'], missing['found_score']) == (None, 'cat', 0.95)
    assert (swapped['class'], swapped['found_class']) == ('dog', 'cat')
    np.testing.assert_allclose(swapped['found_box'], box, atol=1e-6)
    text = page.read_text()
    assert '1. spurious: image 3, label 1' in text
    assert '2. wrong_class: image 1, label 1' in text
    assert '3. missing' not in text


def test_of_lvis_only_classes_that_were_searched_for_can_be_missing(tmp_path, detector):
    cat, dog, elk = (tf_examples.int64_feature([value]) for value in (1, 2, 3))
    contents = [
        example(0, [], NEGATIVE_CLASSES=cat),
        example(1, [], NEGATIVE_CLASSES=dog),
        example(2, [], NEGATIVE_CLASSES=elk, NOT_EXHAUSTIVE_CLASSES=elk),
        example(3, []),
    ]
    records = record_sets.of_files([write(tmp_path / 'a', contents)], '', decodes=True)
    found = label_judge.rank(records, detector, 10).suspects
    assert sorted((each.image, each.found_class) for each in found) == [
        ('image 0', 1),
        ('image 3', 1),
        ('image 3', 3),
    ]


def test_a_model_of_other_classes_is_refused(tmp_path, detector):
    labels = tmp_path / 'map.pbtxt'
    labels.write_text(LABELS)
    name = write(tmp_path / 'a.record', [example(texts=['owl'])])
    records = record_sets.of_files([name], str(labels), decodes=True)
    with pytest.raises(UserError, match=r'--model: expected labels of its classes \(cat, dog, elk'):
        label_judge.rank(records, detector, 10)
    # Without a label map, the names of the model say what the texts mean.
    ranking = label_judge.rank(
        record_sets.of_files([write(tmp_path / 'b', [example()])], '', decodes=True), detector, 10
    )
    assert ranking.num_labels == 1
