import numpy as np
import pytest

from object_detection.core.detections import Detections
from object_detection.errors import UserError
from object_detection.prediction.predictor import Predictor
from object_detection.prediction.views import Augmentation, Tiling
from object_detection.runtime import class_names
from tests import rows
from tests.prediction.test_predictor import picture


def test_tiles_have_one_size_and_the_overlap_at_least():
    tiles = Tiling(100, overlap=0.2).tiles(100, 250)
    assert [tile.left for tile in tiles] == [0, 75, 150]
    assert {tile.right - tile.left for tile in tiles} == {100}
    assert Tiling(100).tiles(60, 100) == [(0, 0, 60, 100)]
    tiles = Tiling(64, overlap=0.5).tiles(301, 167)
    covered = np.zeros((301, 167), int)
    for top, left, bottom, right in tiles:
        covered[top:bottom, left:right] += 1
    assert covered.min() == 1
    assert covered[150, 80] >= 4
    assert all(tile.bottom - tile.top == tile.right - tile.left == 64 for tile in tiles)


@rows.parametrize(
    ('make', 'message'),
    [
        (lambda: Tiling(8), 'tile: expected a size of at least 32 pixels. Received: 8'),
        (lambda: Tiling(64, overlap=0.9), 'tile_overlap: expected a share from 0 to 0.75'),
        (lambda: Augmentation.parse('turn'), "Received: 'turn'"),
        (lambda: Augmentation.parse('9'), r'scales from 0.25 to 4.0. Received: 9'),
        (lambda: Augmentation.parse('nan'), 'Received: nan'),
        (lambda: Augmentation.parse('flip', 'mean'), 'tta_merge: expected one of wbf, nms'),
    ],
)
def test_wrong_options_are_named(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_a_list_of_views_is_read():
    assert Augmentation.parse('flip, 0.8,1.25,0.8,1') == Augmentation(True, (0.8, 1.25), 'wbf')


SEAMS = {
    # Longer than the overlap of its two tiles.
    'wide': (40, 60, 60, 190, 255),
    # On the corner of four tiles, and larger than what they share.
    'corner': (60, 60, 140, 150, 255),
    # On a seam, and smaller than the overlap.
    'small': (10, 92, 20, 104, 255),
    # Across three tiles and a whole row of them.
    'all': (70, 2, 75, 298, 255),
    # Ends where a tile ends.
    'end': (10, 20, 30, 100, 255),
}


@rows.parametrize('whole_image', [False, True])
@rows.parametrize('name', SEAMS)
def test_objects_at_seams_are_whole(colour_finder, name, whole_image):
    image = picture(200, 300, green=SEAMS[name])
    tiled = Predictor(colour_finder, tiling=Tiling(100, whole_image=whole_image))
    found = tiled(image)
    np.testing.assert_allclose(found.boxes, [SEAMS[name][:4]], atol=1e-3)
    mask = found.full_mask(0)
    expected = image[..., 1] > 0
    # The margins of a pasted mask are off by up to a pixel.
    assert (mask != expected).sum() <= 2 * sum(expected.any(axis).sum() for axis in (0, 1))


def test_a_tile_shows_what_the_whole_image_does_not(colour_finder):
    # The model finds one object of a colour in an image; tiles have one each.
    image = picture(100, 300, red=(10, 10, 30, 30, 255))
    image[50:70, 250:280, 0] = 255
    parts = Predictor(colour_finder, tiling=Tiling(100, whole_image=False))(image)
    assert sorted(parts.boxes.round(3).tolist()) == [[10, 10, 30, 30], [50, 250, 70, 280]]


@rows.parametrize('merge', ['wbf', 'nms'])
@rows.parametrize('text', ['1', 'flip', '0.5', '2', 'flip,0.8,1.25'])
def test_every_view_is_mapped_back(colour_finder, text, merge, monkeypatch):
    # Bilinear scaling blurs edges; half of the maximum is where the edge was.
    image = picture(60, 80, red=(10, 8, 40, 24, 254), blue=(20, 50, 50, 74, 254))
    augmented = Predictor(colour_finder, augmentation=Augmentation.parse(text, merge))
    run_batch = without_keypoints(augmented.detector.run_batch)
    monkeypatch.setattr(augmented.detector, 'run_batch', run_batch)
    found = augmented(image)
    assert sorted(found.class_names) == ['blue', 'red']
    order = np.argsort(found.classes)
    expected = [[10, 8, 40, 24], [20, 50, 50, 74]]
    np.testing.assert_allclose(found.boxes[order], expected, atol=1.0 / min(1, 0.8) + 0.25)
    if text in ('1', 'flip'):
        np.testing.assert_allclose(found.boxes[order], expected, atol=1e-3)


def without_keypoints(run_batch):
    def detect(images):
        found = run_batch(images)
        return {key: value for key, value in found.items() if 'keypoints' not in key}

    return detect


def test_flipped_views_have_flipped_masks_and_movements(colour_finder, monkeypatch):
    flips = Predictor(colour_finder, augmentation=Augmentation(flip=True))
    run_batch = flips.detector.run_batch
    ramp = np.linspace(0, 1, 4, dtype=np.float32)

    def detect(images):
        found = without_keypoints(run_batch)(images)
        # The second image is the mirrored one: its mask is mirrored, too.
        masks = np.ones((2, 3, 4, 4), np.float32) * ramp
        masks[1] = masks[1, ..., ::-1]
        offsets = np.array([[[0.5, 0.25]] * 3, [[0.5, -0.25]] * 3], np.float32)
        return found | {'detection_masks': masks, 'detection_temporal_offsets': offsets}

    monkeypatch.setattr(flips.detector, 'run_batch', detect)
    image = picture(red=(4, 6, 14, 26, 255))
    found = flips(image)
    np.testing.assert_allclose(found.masks, [[ramp] * 4], rtol=1e-6)
    height, width = image.shape[:2]
    np.testing.assert_allclose(found.movements, [[0.5 * height, 0.25 * width]], rtol=1e-6)
    np.testing.assert_allclose(found.scores, [1.0])


def test_flipped_views_exchange_left_and_right_keypoints(colour_finder, tmp_path):
    """The model finds the upper left and the lower right corner, in either view.

    Those of the mirrored view are the upper right and the lower left one, so that the averages of
    both views are in the middle of the left and of the right side.
    """
    names = tmp_path / 'map.pbtxt'
    points = "keypoints { id: 0 label: '%s' } keypoints { id: 1 label: '%s' }"
    item = f"item {{ id: 1 name: 'red' {points} }}"
    names.write_text(item % ('first', 'second'))
    with pytest.raises(UserError, match=r'which ones these are is not known.* for all 2 keypoints'):
        flipped(colour_finder, names)
    names.write_text(item % ('left', 'right'))
    found = flipped(colour_finder, names)
    np.testing.assert_allclose(found.boxes, [[4, 6, 14, 26]], atol=1e-3)
    np.testing.assert_allclose(found.keypoints, [[[9, 6], [9, 26]]], atol=1e-3)


def test_scores_of_keypoints_go_with_them_and_absent_ones_stay_absent():
    """The third keypoint is one that the class does not have, and the fourth place has no name."""
    points = np.array([[[1, 2], [3, 8], [0, 0], [0, 0]]], np.float32)
    scores = np.array([[0.25, 0.5, 0, 0]], np.float32)
    found = unmirrored(points, scores)
    np.testing.assert_array_equal(found.boxes, [[1, 30, 3, 38]])
    np.testing.assert_array_equal(found.keypoints, [[[3, 32], [1, 38], [0, 0], [0, 0]]])
    np.testing.assert_array_equal(found.keypoint_scores, [[0.5, 0.25, 0, 0]])
    scores[0, 3] = 0.5
    for unnamed in (scores, None):
        with pytest.raises(UserError, match='for all 4 keypoints'):
            unmirrored(points, unnamed)


def unmirrored(points, scores):
    """What the mirrored view of an image of 40 columns finds, in the frame of the image."""
    names = ''.join(
        f"keypoints {{ id: {i} label: '{name}' }} " for i, name in enumerate(('left', 'right', 'c'))
    )
    labels = class_names.parse(f"item {{ id: 1 name: 'a' {names} }}")
    _, mirrored = Augmentation(flip=True).variants(np.zeros((10, 40, 3), np.uint8), 10_000, labels)
    found = Detections(
        boxes=np.array([[1, 2, 3, 10]], np.float32),
        classes=np.ones(1, int),
        scores=np.ones(1, np.float32),
        keypoints=points,
        keypoint_scores=scores,
        size=(10, 40),
    )
    return mirrored.merge([found])


def flipped(model, names):
    flips = Predictor(model, label_map=names, augmentation=Augmentation(flip=True))
    return flips(picture(red=(4, 6, 14, 26, 255)))


def test_enlarged_images_are_bounded(colour_finder):
    large = Predictor(colour_finder, augmentation=Augmentation(scales=(2,)), max_pixels=9599)
    with pytest.raises(UserError, match=r'80 pixels high and 120 wide; expected at most 9599'):
        large(picture())
