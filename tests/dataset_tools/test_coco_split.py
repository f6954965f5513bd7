import json

import pytest

from object_detection.dataset_tools import coco_split
from tests import rows

DOCUMENT = {
    'info': {'year': 2026},
    'categories': [{'id': 1, 'name': 'images'}, {'id': 2, 'name': 'dog'}],
    'images': [{'id': n, 'file_name': f'{n}.jpg'} for n in range(10)],
    'annotations': [{'id': n, 'image_id': n, 'category_id': 1 + n % 2} for n in range(10)],
}


def write(folder, document):
    path = folder / 'all.json'
    path.write_text(json.dumps(document))
    return str(path)


def test_each_image_is_in_one_part_with_its_annotations(tmp_path):
    path = write(tmp_path, DOCUMENT)
    parts = coco_split.split(path, str(tmp_path / 'parts'), val_share=0.3, seed=0)
    read = {
        name: json.loads((tmp_path / 'parts' / f'{name}.json').read_text())
        for name in ('train', 'val')
    }
    ids = {name: [image['id'] for image in part['images']] for name, part in read.items()}
    assert len(ids['val']) == 3
    assert sorted(ids['train'] + ids['val']) == list(range(10))
    for name, part in read.items():
        assert [row['image_id'] for row in part['annotations']] == ids[name]
        assert part['categories'] == DOCUMENT['categories']
        assert part['info'] == DOCUMENT['info']
        listed = (tmp_path / 'parts' / f'{name}.txt').read_text().splitlines()
        assert listed == [f'{image_id}.jpg' for image_id in ids[name]]
        assert parts[name].num_images == len(ids[name])
    assert parts['train'].objects + parts['val'].objects == {'images': 5, 'dog': 5}


def test_a_seed_draws_the_same_images_again(tmp_path):
    path = write(tmp_path, DOCUMENT)

    def held_out(seed):
        coco_split.split(path, str(tmp_path), val_share=0.3, seed=seed)
        return json.loads((tmp_path / 'val.json').read_text())['images']

    assert held_out(1) == held_out(1)
    assert held_out(1) != held_out(2)


@rows.parametrize('share', [0.001, 0.999])
def test_no_part_is_empty(tmp_path, share):
    parts = coco_split.split(write(tmp_path, DOCUMENT), str(tmp_path), val_share=share, seed=0)
    assert min(part.num_images for part in parts.values()) == 1


@rows.parametrize(
    ('change', 'message'),
    [
        ({'images': None}, r'`images`: expected a list'),
        ({'annotations': {}}, r'`annotations`: expected a list'),
        ({'images': [{'file_name': 'a.jpg'}]}, r'images\[0\] must have `id`'),
        ({'annotations': [3]}, r'annotations\[0\] must have `image_id`'),
        ({'images': DOCUMENT['images'][:1]}, 'at least two images'),
    ],
)
def test_errors_name_the_file_and_the_entry(tmp_path, change, message):
    path = write(tmp_path, {**DOCUMENT, **change})
    with pytest.raises(ValueError, match=f'all.json.*{message}'):
        coco_split.split(path, str(tmp_path / 'parts'), val_share=0.2, seed=0)
    assert not (tmp_path / 'parts').exists()


@rows.parametrize('name', ['train', 'val'])
def test_the_file_is_not_replaced_by_a_part_of_it(tmp_path, name):
    source = tmp_path / f'{name}.json'
    source.write_text(json.dumps(DOCUMENT))
    with pytest.raises(ValueError, match=rf'another folder than that of .*{name}\.json'):
        coco_split.split(str(source), str(tmp_path), val_share=0.2, seed=0)
    assert json.loads(source.read_text()) == DOCUMENT
    assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_annotations_without_an_image_are_reported(tmp_path, caplog):
    texts = [{**row, 'image_id': str(row['image_id'])} for row in DOCUMENT['annotations'][:4]]
    path = write(tmp_path, {**DOCUMENT, 'annotations': texts + DOCUMENT['annotations'][4:]})
    parts = coco_split.split(path, str(tmp_path / 'parts'), val_share=0.2, seed=0)
    assert sum(part.num_annotations for part in parts.values()) == 6
    assert '4 annotations are in neither part' in caplog.text
