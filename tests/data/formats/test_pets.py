import io
import random

import numpy as np
import pytest
from PIL import Image

from object_detection.data import label_map
from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import source
from object_detection.data.formats.pets import PetsSource

FILES = LocalFiles()
_STEMS = [f'{breed}_{i}' for breed in ('Bengal', 'american_bulldog') for i in range(5)]
_XML = (
    '<annotation><filename>{}.jpg</filename><object><name>cat</name><pose>Frontal</pose>'
    '<truncated>1</truncated><bndbox><xmin>4</xmin><ymin>6</ymin><xmax>14</xmax><ymax>18</ymax>'
    '</bndbox></object></annotation>'
)


@pytest.fixture
def data(tmp_path, png):
    for name in ('images', 'annotations/xmls', 'annotations/trimaps'):
        (tmp_path / name).mkdir(parents=True)
    trimap = np.full((30, 40), 2, np.uint8)
    trimap[5:20, 10:31] = 3
    trimap[6:19, 11:30] = 1
    file = io.BytesIO()
    Image.fromarray(trimap).save(file, 'PNG')
    for stem in _STEMS:
        (tmp_path / f'images/{stem}.jpg').write_bytes(png(40, 30))
        (tmp_path / f'annotations/xmls/{stem}.xml').write_text(_XML.format(stem))
        (tmp_path / f'annotations/trimaps/{stem}.png').write_bytes(file.getvalue())
    lines = ''.join(f'{stem} 1 1 1\n' for stem in _STEMS)
    (tmp_path / 'annotations/trainval.txt').write_text(f'#Image CLASS-ID\n{lines}')
    return tmp_path


def _first(data: PetsSource) -> source.ReadResult:
    opened = data.open(FILES, None)
    return source.read(opened.reader, next(data.entries(FILES)), FILES)


def test_faces(data):
    result = _first(PetsSource(str(data)))
    np.testing.assert_allclose(result.image.boxes, [[0.2, 0.1, 0.6, 0.35]])
    breed = result.image.file_name.rpartition('_')[0]
    assert result.image.class_texts == (breed,)
    assert result.image.class_labels == [{'american_bulldog': 1, 'Bengal': 2}[breed]]
    assert result.image.masks is None
    assert result.image.object_details['image/object/view'].tolist() == ['Frontal']


def test_bodies_are_everything_but_the_background(data):
    result = _first(PetsSource(str(data), bodies=True))
    np.testing.assert_allclose(result.image.boxes, [[5 / 30, 10 / 40, 19 / 30, 30 / 40]])
    mask = np.asarray(Image.open(io.BytesIO(result.image.masks[0])))
    assert mask.sum() == 15 * 21 == result.image.areas[0]
    assert mask[5:20, 10:31].all()


def test_split_is_the_shuffle_of_the_reference(data):
    shuffled = list(_STEMS)
    random.seed(42)
    random.shuffle(shuffled)
    train, val = (item.source for item in PetsSource.detect(str(data), FILES))
    assert [entry.image['id'] for entry in train.entries(FILES)] == shuffled[:7]
    assert [entry.image['id'] for entry in val.entries(FILES)] == shuffled[7:]


@pytest.mark.parametrize('name', ['xmls/{}.xml', 'trimaps/{}.png'])
def test_images_without_annotations_are_left_out(data, name):
    pets = PetsSource(str(data), bodies=True)
    first = next(pets.entries(FILES)).image['id']
    path = data / 'annotations' / name.format(first)
    path.write_bytes(b'nothing')
    with pytest.raises(ValueError, match=r'xmls|trimaps') as error:
        _first(pets)
    assert error.value.reason == 'bad_annotations'
    path.unlink()
    with pytest.raises(ValueError, match='cannot be read'):
        _first(pets)


def test_label_map_of_the_reference(shared, data):
    labels = label_map.load(shared / 'data/tf_od_api_samples/data/pet_label_map.pbtxt')
    opened = PetsSource(str(data)).open(FILES, labels)
    assert {label.text: label.label for label in opened.labels.values()} == {
        'american_bulldog': 2,
        'Bengal': 6,
    }


def test_missing_list(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'no list of images: .*trainval\.txt'):
        PetsSource(str(tmp_path)).open(FILES, None)
