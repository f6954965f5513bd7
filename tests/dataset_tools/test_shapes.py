import collections
import filecmp
import json

import numpy as np
import pytest
from click.testing import CliRunner
from faster_coco_eval.core import mask as coco_mask
from PIL import Image

from object_detection.dataset_tools import shapes
from tests import rows

IMAGE_SIZE = 96


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp('shapes')
    shapes.write_shapes(path, num_train=60, num_val=5, image_size=IMAGE_SIZE, seed=3)
    return path


@pytest.fixture(scope='module')
def train(folder):
    return json.loads((folder / 'instances_train.json').read_text())


def _decode(annotation: dict) -> np.ndarray:
    segmentation = annotation['segmentation']
    encoded = coco_mask.frPyObjects(segmentation, IMAGE_SIZE, IMAGE_SIZE)
    return coco_mask.decode(
        coco_mask.merge(encoded) if isinstance(segmentation, list) else encoded
    ).astype(bool)


def _by_image(document: dict) -> dict[int, list[dict]]:
    grouped = collections.defaultdict(list)
    for annotation in document['annotations']:
        grouped[annotation['image_id']].append(annotation)
    return grouped


def test_files_are_the_images_of_the_json(folder, train):
    assert len(train['images']) == 60
    for entry in train['images'][:5]:
        with Image.open(folder / 'train' / entry['file_name']) as image:
            assert image.format == 'JPEG'
            assert image.mode == 'RGB'
            assert image.size == (entry['width'], entry['height']) == (IMAGE_SIZE, IMAGE_SIZE)
    ids = [annotation['id'] for annotation in train['annotations']]
    assert len(set(ids)) == len(ids)


def test_boxes_and_areas_are_those_of_the_segmentations(train):
    for annotation in train['annotations']:
        mask = _decode(annotation)
        assert mask.sum() == annotation['area']
        box = coco_mask.toBbox(coco_mask.encode(np.asfortranarray(mask.astype(np.uint8))))
        assert box.tolist() == annotation['bbox']


def test_keypoints_are_centres_and_corners(train):
    names = {item['id']: item['keypoints'] for item in train['categories']}
    visibilities = collections.Counter()
    for annotation in train['annotations']:
        points = np.reshape(annotation['keypoints'], (-1, 3))
        assert len(points) == annotation['num_keypoints'] == len(names[annotation['category_id']])
        visibilities.update(points[:, 2].tolist())
        by_name = dict(zip(names[annotation['category_id']], points[:, :2], strict=True))
        for left, right in (('top_left', 'top_right'), ('bottom_left', 'bottom_right')):
            if left in by_name and right in by_name:
                assert by_name[left][0] < by_name[right][0]
        if 'top_left' in by_name:
            corners = np.array([by_name[name] for name in names[annotation['category_id']][1:]])
            np.testing.assert_allclose(corners.mean(axis=0), by_name['center'], atol=0.02)
    assert visibilities[2] > 4 * visibilities[1] > 0


def test_a_covered_keypoint_is_not_visible():
    covered = visible = 0
    for seed in range(20):
        scene = shapes.draw_scene(np.random.default_rng(seed), 64)
        for mask, points in zip(scene.masks, scene.keypoints, strict=True):
            # Centres are inside of their shapes.
            column, row = np.floor(points[0, :2]).astype(int)
            assert mask[row, column] == (points[0, 2] == 2)
            # Corners are near their shapes, whose tips cover too little of their pixels.
            if (points[:, 2] == 2).all():
                rows, columns = np.nonzero(mask)
                low, high = (np.array([edge(columns), edge(rows)]) for edge in (np.min, np.max))
                assert (points[:, :2] >= low - 2).all()
                assert (points[:, :2] <= high + 3).all()
            covered, visible = covered + (points[0, 2] == 1), visible + (points[0, 2] == 2)
    assert visible > covered > 0


def test_objects_do_not_share_pixels(train):
    for annotations in _by_image(train).values():
        assert np.sum([_decode(annotation) for annotation in annotations], axis=0).max() == 1


def test_both_forms_of_segmentation_and_cut_objects_occur(train):
    forms = collections.Counter(
        type(annotation['segmentation']).__name__ for annotation in train['annotations']
    )
    assert forms['list'] > forms['dict'] > 0
    assert any(
        len(annotation['segmentation']) > 1
        for annotation in train['annotations']
        if isinstance(annotation['segmentation'], list)
    )


def test_numbers_sizes_and_classes_are_in_range(train):
    numbers = [len(annotations) for annotations in _by_image(train).values()]
    assert len(numbers) == 60
    assert min(numbers) == 1
    assert 10 <= max(numbers) <= shapes.MAX_OBJECTS
    largest = max(max(annotation['bbox'][2:]) for annotation in train['annotations'])
    # One pixel for a shape that lies between pixels.
    assert IMAGE_SIZE / 3 < largest <= IMAGE_SIZE / 2 + 1
    assert min(annotation['area'] for annotation in train['annotations']) >= 20
    classes = collections.Counter(item['category_id'] for item in train['annotations'])
    assert len(classes) == len(train['categories']) >= 4
    assert min(classes.values()) > 0.6 * max(classes.values())


def test_every_object_stays_visible(monkeypatch):
    """Draws the same scenes without covering, to compare the visible with the whole shape."""
    placed = []
    find_place = shapes._find_place

    def record(rng, solid, *args):
        place = find_place(rng, solid, *args)
        if place is not None:
            placed.append(solid.sum())
        return place

    monkeypatch.setattr(shapes, '_find_place', record)
    for seed in range(20):
        placed.clear()
        scene = shapes.draw_scene(np.random.default_rng(seed), 64)
        visible = scene.masks.sum(axis=(1, 2)) / np.array(placed)
        assert visible.min() >= shapes.MIN_VISIBLE_FRACTION


def test_same_seed_same_files(folder, tmp_path):
    shapes.write_shapes(tmp_path, num_train=4, num_val=2, image_size=IMAGE_SIZE, seed=3)
    for name in ('train/000004.jpg', 'val/000002.jpg'):
        assert filecmp.cmp(folder / name, tmp_path / name, shallow=False)
    again = json.loads((tmp_path / 'instances_train.json').read_text())
    whole = json.loads((folder / 'instances_train.json').read_text())
    assert again['annotations'] == whole['annotations'][: len(again['annotations'])]


def test_other_seed_and_split_are_other_images(folder, tmp_path):
    shapes.write_shapes(tmp_path, num_train=1, num_val=1, image_size=IMAGE_SIZE, seed=4)
    first = (folder / 'train/000001.jpg').read_bytes()
    assert first != (tmp_path / 'train/000001.jpg').read_bytes()
    assert first != (folder / 'val/000001.jpg').read_bytes()


def test_colour_does_not_reveal_the_class(folder, train):
    colors = collections.defaultdict(list)
    for image_id, annotations in _by_image(train).items():
        pixels = np.asarray(Image.open(folder / f'train/{image_id:06d}.jpg'), np.float32)
        for annotation in annotations:
            colors[annotation['category_id']].append(pixels[_decode(annotation)].mean(axis=0))
    means = np.array([np.mean(values, axis=0) for values in colors.values()])
    errors = np.array([np.std(values, axis=0) / len(values) ** 0.5 for values in colors.values()])
    difference = np.abs(means[:, np.newaxis] - means)
    assert np.all(difference <= 4 * np.hypot(errors[:, np.newaxis], errors))


@rows.parametrize(
    ('argument', 'value'), [('num_train', -1), ('num_val', -1), ('image_size', 31), ('seed', -1)]
)
def test_arguments_out_of_range(tmp_path, argument, value):
    arguments = {'num_train': 1, 'num_val': 1, 'image_size': 64, 'seed': 0} | {argument: value}
    with pytest.raises(ValueError, match=f'{argument}={value}'):
        shapes.write_shapes(tmp_path, **arguments)


def test_command(tmp_path):
    arguments = ['--output', str(tmp_path), '--num_train', '2', '--num_val', '1']
    result = CliRunner().invoke(shapes.main, [*arguments, '--image_size', '32'])
    assert result.exit_code == 0, result.output
    assert len(list(tmp_path.glob('*/*.jpg'))) == 3
    result = CliRunner().invoke(shapes.main, [*arguments, '--image_size', '3'])
    assert result.exit_code == 1
    assert 'image_size of at least 32' in result.output
