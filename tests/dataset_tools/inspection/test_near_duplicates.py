"""Hashes of pictures, and the search for near ones."""

import numpy as np
from PIL import Image

from object_detection.data import image_files
from object_detection.dataset_tools.inspection import near_duplicates


def distance(first: int, second: int) -> int:
    return (first ^ second).bit_count()


def test_changes_that_keep_the_picture_keep_most_of_the_hash():
    random = np.random.default_rng(0)
    photos = [
        Image.fromarray(random.integers(0, 255, (6, 8), np.uint8)).resize((640, 480), 3)
        for _ in range(8)
    ]
    hashes = [image_files.picture_hash(photo) for photo in photos]
    for i, photo in enumerate(photos):
        changed = [
            photo.resize((97, 61)),
            photo.point(lambda value: round(0.8 * value)),
            photo.crop((6, 5, 634, 475)),
        ]
        for each in changed:
            found = image_files.picture_hash(each)
            assert distance(found, hashes[i]) <= near_duplicates.MAX_DISTANCE
        assert min(distance(hashes[i], other) for other in hashes[:i] + hashes[i + 1 :]) > 12
    assert image_files.picture_hash(Image.fromarray(np.full((32, 32), 200, np.uint8))) == 0


def test_the_nearest_is_found_as_by_comparing_all():
    random = np.random.default_rng(1)
    codes = random.integers(0, 2**64, 300, dtype=np.uint64)
    for row in range(150, 300):
        places = random.choice(64, random.integers(0, 12), replace=False)
        flipped = np.bitwise_or.reduce(np.uint64(1) << places.astype(np.uint64))
        codes[row] = codes[random.integers(row)] ^ flipped
    bits = np.unpackbits(codes.view(np.uint8).reshape(-1, 8), axis=1).astype(int)
    distances = np.abs(bits[:, np.newaxis] - bits).sum(axis=-1)
    earlier = np.where(np.tri(300, k=-1) > 0, distances, 99)
    partners, found = near_duplicates.nearest(codes)
    is_near = earlier.min(axis=1) <= 8
    assert 60 < is_near.sum() < 150
    np.testing.assert_array_equal(partners >= 0, is_near)
    np.testing.assert_array_equal(found[is_near], earlier.min(axis=1)[is_near])
    np.testing.assert_array_equal(earlier[is_near, partners[is_near]], found[is_near])
    known, others = codes[:200], codes[200:]
    partners, found = near_duplicates.nearest(others, known)
    is_near = distances[200:, :200].min(axis=1) <= 8
    np.testing.assert_array_equal(partners >= 0, is_near)
    np.testing.assert_array_equal(found[is_near], distances[200:, :200].min(axis=1)[is_near])
    nothing, _ = near_duplicates.nearest(np.zeros(0, np.uint64))
    assert not len(nothing)
