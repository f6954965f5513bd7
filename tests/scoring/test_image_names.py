"""What detections may call an image: its id, a number as text, the name or the path of its file."""

import json

import pytest

from object_detection.dataset_tools import coco_split
from object_detection.errors import UserError
from object_detection.scoring.evaluation import FileOptions, evaluate
from tests import rows
from tests.scoring import coco_cases

BOX = [4, 4, 10, 20]
AR = 'DetectionBoxes_Recall/AR@100'


def _truth(*files):
    """Images of these names, whose ids are 1 and so on, each with an object."""
    ids = {name: number for number, name in enumerate(files, 1)}
    return {
        'images': [
            {'id': number, 'file_name': name, 'height': 40, 'width': 60}
            for name, number in ids.items()
        ],
        'annotations': [
            {'id': number, 'image_id': number, 'category_id': 1, 'bbox': BOX}
            for number in ids.values()
        ],
        'categories': [{'id': 1, 'name': 'cat'}],
    }


TWO = _truth('left/0001.jpg', 'right/0002.png')
SAME = _truth('left/0001.jpg', 'right/0001.jpg')


def _found(*images):
    """A detection of the object of each image."""
    entry = {'category_id': 1, 'bbox': BOX, 'score': 0.9}
    named = [image if isinstance(image, dict) else {'image_id': image} for image in images]
    return [entry | each for each in named]


@rows.parametrize(
    ('truth', 'images', 'is_noted'),
    [
        (TWO, (1, 2), False),
        (TWO, ('1', '2'), True),
        (TWO, ('0001', '0002'), True),
        (TWO, ('0001.jpg', '0002.png'), True),
        (TWO, ('/far/0001.jpg', 'C:\\photos\\0002.png'), True),
        (TWO, ({'file_name': '0001.jpg'}, {'file_name': '0002'}), True),
        (TWO, ({'image_id': 7, 'file_name': '0001.jpg'}, 2), True),
        # An id that fits is taken, whatever else an entry says.
        (TWO, ({'image_id': 1, 'file_name': '0002.png'}, 2), False),
        (SAME, ('left/0001.jpg', '/data/right/0001.jpg'), True),
    ],
)
def test_images_are_found_by_id_or_by_name(tmp_path, truth, images, is_noted):
    result = evaluate(FileOptions(*coco_cases.write(tmp_path, truth, _found(*images))))
    assert result.num_detections == 2
    assert result.metrics[AR] == 1
    assert [('were found by the names' in note) for note in result.notes] == [True] * is_noted


@rows.parametrize(
    ('truth', 'image', 'message'),
    [
        (TWO, '0003', r"image_id: expected an image of .*: 1, 2; or the name of its file.*'0003'"),
        (TWO, {'file_name': '3.jpg'}, r'file_name: .*no image has it.*--image_list'),
        (SAME, {'file_name': '0001.jpg'}, 'file_name: .*several images have it'),
        # The id of the second image, and the file of the first.
        (_truth('2.jpg', '1.jpg'), '2', 'one image has this id, and the file of another'),
    ],
)
def test_names_that_no_image_or_several_have(tmp_path, truth, image, message):
    paths = coco_cases.write(tmp_path, truth, _found(image))
    with pytest.raises(UserError, match=f'entry 0 .*{message}'):
        evaluate(FileOptions(*paths))


@rows.parametrize('name', ['0001', '0001.jpg', '1', 'left/0001.jpg'])
def test_other_formats_name_images_in_the_same_ways(tmp_path, name):
    truth, _ = coco_cases.write(tmp_path, TWO, [])
    rows = tmp_path / 'found.csv'
    rows.write_text(
        f'ImageID,LabelName,Conf,XMin,XMax,YMin,YMax\n{name},cat,0.9,{4 / 60},{14 / 60},0.1,0.6\n'
    )
    voc = tmp_path / 'voc'
    voc.mkdir()
    (voc / 'comp4_det_test_cat.txt').write_text(f'{name} 0.9 4 4 14 24\n')
    listed = tmp_path / 'list.txt'
    listed.write_text(name)
    for detections in (rows, voc):
        options = FileOptions(truth, str(detections), image_list=str(listed))
        result = evaluate(options)
        assert (result.images, result.num_detections) == (1, 1)
        assert result.metrics[AR] == 1


def test_images_of_predict_without_names_have_the_ids_of_records(tmp_path):
    truth, _ = coco_cases.write(tmp_path, TWO, [])
    folder = tmp_path / 'predicted'
    folder.mkdir()
    (folder / 'images.json').write_text(json.dumps([{'id': 1}, {'id': '0002'}]))
    (folder / 'detections.json').write_text(json.dumps(_found(1, '0002')))
    assert evaluate(FileOptions(truth, str(folder))).metrics[AR] == 1
    (folder / 'detections.json').write_text(json.dumps(_found(2)))
    with pytest.raises(UserError, match=r'image_id: expected an id of images.json'):
        evaluate(FileOptions(truth, str(folder)))
    (folder / 'images.json').write_text(json.dumps([{'id': 1, 'file_name': 5}]))
    with pytest.raises(UserError, match=r'images.json, entry 0: id, file_name: expected an id'):
        evaluate(FileOptions(truth, str(folder)))


def test_detections_of_all_photos_are_scored_on_the_held_out_ones(tmp_path):
    """As in the README: all photos are predicted, and those of split/val.txt are evaluated."""
    document = _truth(*(f'{n} of {n % 2}.jpg' for n in range(8)))
    # Ids of predictions are those of the command, and the held-out photos are found by name.
    truth, _ = coco_cases.write(tmp_path, document, [])
    parts = coco_split.split(truth, str(tmp_path / 'split'), val_share=0.25, seed=0)
    held_out = (tmp_path / 'split' / 'val.txt').read_text().splitlines()
    names = [image['file_name'] for image in document['images']]
    folder = tmp_path / 'pictures'
    folder.mkdir()
    images = [{'id': n + 100, 'file_name': f'photos/{name}'} for n, name in enumerate(names)]
    (folder / 'images.json').write_text(json.dumps(images))
    # Objects are found in photos that were trained on alone.
    found = [image['id'] for image in images if image['file_name'][7:] not in held_out]
    (folder / 'detections.json').write_text(json.dumps(_found(*found)))
    assert evaluate(FileOptions(truth, str(folder))).metrics[AR] == pytest.approx(6 / 8)
    for listed in ('val.txt', 'val.json'):
        path = str(tmp_path / 'split' / listed)
        result = evaluate(FileOptions(truth, str(folder), image_list=path))
        assert (result.images, result.num_detections) == (parts['val'].num_images, 0) == (2, 0)
        assert result.metrics[AR] == 0
    with pytest.raises(UserError, match='--image_list'):
        evaluate(FileOptions(str(tmp_path / 'split' / 'val.json'), str(folder)))
