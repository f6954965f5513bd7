"""docs/augmentation.md is what its generator writes for the schema and the steps of today."""

import importlib
import pathlib

import numpy as np
import pytest
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'docs' / 'generator'
AGAIN = 'run: python docs/generator/augmentation_page.py'


@pytest.fixture
def page(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module('augmentation_page')


def test_page_is_up_to_date(page):
    text = page.Page(page.SCHEMA.read_text()).text()
    assert page.PAGE.read_text() == text, AGAIN
    # Nothing of the frame is left to fill in.
    assert '<!--' not in text


def test_every_step_has_a_picture_and_all_are_small(page):
    paths = sorted(page.PICTURES.iterdir())
    assert [path.name for path in paths] == sorted(page.picture_names()), AGAIN
    assert sum(path.stat().st_size for path in paths) < 1_500_000
    for path in paths:
        with Image.open(path) as picture:
            assert picture.width <= 620


def test_comments_of_a_schema(page):
    schema = """
        // Not above anything.

        // A step.
        message Step {
          // Which one.
          oneof kind {
            // The first
            // of two.
            Flip flip = 1;
          }
          optional float bare = 2 [default = 1];
          // How.
          enum Way {
            // Up.
            UP = 0;
          }
          // Many.
          repeated int32 many = 3;
        }

        // Without fields.
        message Flip {
        }

        // The last.
        message Last {
          // Its field.
          optional Step.Way way = 1 [default = UP];
        }
    """
    assert page.comments(schema) == {
        'Step': 'A step.',
        'Step.kind': 'Which one.',
        'Step.flip': 'The first of two.',
        'Step.bare': '',
        'Step.Way': 'How.',
        'Step.Way.UP': 'Up.',
        'Step.many': 'Many.',
        'Flip': 'Without fields.',
        'Last': 'The last.',
        'Last.way': 'Its field.',
    }


def test_a_picture_has_the_scene_and_different_results(page):
    # The scene, and one result, as the step is not random.
    assert page.draw('rgb_to_gray').shape[1] == 2 * 144 + 3 * 3
    picture = page.draw('random_horizontal_flip')
    scene, flipped = picture[:, 3:147].astype(int), picture[:, 150:294].astype(int)
    # Pixels of the edge of a mask are rounded differently when it is mirrored.
    assert np.mean(np.abs(scene - flipped[:, ::-1]).max(axis=-1) > 8) < 0.05
    assert np.mean(np.abs(scene - flipped).max(axis=-1) > 8) > 0.5


def test_scenes_hold_objects_with_masks_and_keypoints(page):
    scenes = importlib.import_module('scenes')
    scene = scenes.example(0)
    image = scene['image'].numpy()
    boxes = scene['groundtruth_boxes'].numpy()
    assert image.shape == (108, 144, 3)
    assert len(boxes) == 6
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert scene['groundtruth_instance_mask_crops'].numpy().any(axis=(1, 2)).all()
    assert scene['groundtruth_keypoint_visibilities'].numpy().any(axis=1).all()
    # Drawn again, without the cache, it is the same.
    np.testing.assert_array_equal(image, scenes.example.__wrapped__(0)['image'])
